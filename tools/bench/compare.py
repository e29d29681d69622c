"""Speed of llmrt beside llama.cpp's llama-bench on the same file: alternating runs, medians, and their ratio.

    python compare.py --llmrt target/release/llmrt --peer PATH/llama-bench -m MODEL.gguf [-p 512] [-n 64] [-r 5] [-t 2]

A ratio above 1 means llmrt is faster. Pairs run directly after each other, so that noise hits both alike.
"""
import argparse
import json
import statistics
import subprocess


def llmrt(args):
    out = run(args.llmrt, "bench", "-m", args.model, "-p", args.prompt, "-n", args.gen, "-r", 1, "-t", args.threads, "--json")
    result = json.loads(out)
    return result["prompt_tok_s"], result["decode_tok_s"]


def peer(args):
    out = run(args.peer, "-m", args.model, "-p", args.prompt, "-n", args.gen, "-r", 1, "-t", args.threads, "-o", "json")
    speeds = {row["n_gen"] == 0: row["avg_ts"] for row in json.loads(out)}
    return speeds[True], speeds[False]


def run(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--llmrt", default="target/release/llmrt")
    args.add_argument("--peer", required=True)
    args.add_argument("-m", "--model", required=True)
    args.add_argument("-p", "--prompt", type=int, default=512)
    args.add_argument("-n", "--gen", type=int, default=64)
    args.add_argument("-r", "--pairs", type=int, default=5)
    args.add_argument("-t", "--threads", type=int, default=2)
    args = args.parse_args()

    pairs = [(llmrt(args), peer(args)) for _ in range(args.pairs)]
    for i, name in enumerate(("prompt", "decode")):
        ours, theirs = ([pair[side][i] for pair in pairs] for side in (0, 1))
        ratios = [a / b for a, b in zip(ours, theirs)]
        print(
            f"{name}: llmrt {statistics.median(ours):.1f} tok/s, llama.cpp {statistics.median(theirs):.1f} tok/s, "
            f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f} in {args.pairs} pairs)"
        )


main()
