"""`python -m llmrt.ray batch PROMPTS ANSWERS`: answers a file of prompts on the cluster."""

from __future__ import annotations

import argparse
import json
import sys

from ray.exceptions import RayError

from .. import SamplingParams
from ..errors import Error
from . import batch_file


def main() -> int:
    program = argparse.ArgumentParser(prog="python -m llmrt.ray", description=__doc__)
    command = program.add_subparsers(required=True).add_parser("batch", help="answer a file of prompts; resumable")
    command.add_argument("prompts", help="lines of JSON with a field `prompt`")
    command.add_argument("answers", help="file to write; beside it is ANSWERS.parts until it is complete")
    command.add_argument("-m", "--model", help="GGUF file, the same on every node; the story model")
    command.add_argument("--concurrency", type=int, default=1, help="workers, each with the model (%(default)s)")
    command.add_argument("--batch-size", type=int, default=64, help="lines that a worker takes at a time (%(default)s)")
    command.add_argument("--num-cpus", type=int, default=1, help="cores of a worker (%(default)s)")
    command.add_argument("--num-gpus", type=float, default=0, help="GPUs of a worker (%(default)s)")
    command.add_argument("--params", type=json.loads, default={}, help='as JSON: {"temperature": 0, "max_tokens": 64}')
    command.add_argument("--engine-args", type=json.loads, default={}, help='as JSON: {"max_model_len": 8192}')
    args = program.parse_args()
    resources = {"num_cpus": args.num_cpus, **({"num_gpus": args.num_gpus} if args.num_gpus else {})}
    try:
        n = batch_file(
            args.prompts,
            args.answers,
            args.model,
            SamplingParams(**args.params),
            engine_args=args.engine_args,
            concurrency=args.concurrency,
            batch_size=args.batch_size,
            **resources,
        )
    except (Error, OSError, TypeError, ValueError, RayError) as e:
        print(f"llmrt.ray: {e}", file=sys.stderr)
        return 1
    print(f"{args.answers}: {n} lines were computed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
