"""Writes the greedy continuations that other implementations must reproduce, and checks them against JAX."""

import argparse
import json

import jax
import numpy as np
import sentencepiece

import model
import reference

PROMPTS = ["Once upon a time", "Deep in the forest, there lived a brave dog named Max.", "Long ago"]
N_TOKENS = 64


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("gguf", help="file written by export.py")
    args.add_argument("checkpoint", help="checkpoint it was made from")
    args.add_argument("tokenizer", help="sentencepiece model it was made from")
    args.add_argument("out", help="file to write, one JSON object a line: prompt, prompt_ids, ids, text")
    args = args.parse_args()

    file = reference.Model(args.gguf)
    tokenizer = reference.Tokenizer(file)
    sp = sentencepiece.SentencePieceProcessor(model_file=args.tokenizer)
    lines = []
    for prompt in PROMPTS:
        ids, margins = reference.generate(file, tokenizer, prompt, N_TOKENS)
        prompt_ids = tokenizer.encode(prompt)
        assert prompt_ids == [sp.bos_id(), *sp.encode(prompt)], "the file's tokenizer differs from sentencepiece"
        apart = compare_with_jax(args.checkpoint, prompt_ids, ids, file)
        print(f"{prompt!r}: smallest margin {min(margins):.3f}, JAX on the unrounded weights at most {apart:.4f} apart")
        lines.append({"prompt": prompt, "prompt_ids": prompt_ids, "ids": ids, "text": tokenizer.decode(ids)})
    with open(args.out, "w", encoding="ascii") as f:
        f.writelines(json.dumps(line) + "\n" for line in lines)


def compare_with_jax(checkpoint, prompt_ids, ids, file):
    """Asserts that model.py prefers the same tokens; returns the largest difference of a logit."""
    params = dict(np.load(checkpoint))
    cfg = model.Config(**json.loads(str(params.pop("config"))))
    tokens = np.array([prompt_ids + ids])
    theirs = np.asarray(jax.jit(lambda p: model.logits(cfg, p, tokens))(params))[0]
    assert theirs[len(prompt_ids) - 1 : -1].argmax(-1).tolist() == ids, "JAX continues with other tokens"

    file.restart()
    ours = np.stack([file.next_logits(t) for t in tokens[0]])
    return float(np.abs(ours - theirs).max())


if __name__ == "__main__":
    main()
