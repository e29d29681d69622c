"""The perplexity of a text, from the log-probabilities of its tokens as a NumPy array."""

import sys

import numpy as np

from llmrt import LLM, SamplingParams

with LLM(sys.argv[1]) as llm:
    text = "Once upon a time, there was a little girl named Lily."
    [output] = llm.generate(text, SamplingParams(max_tokens=1, prompt_logprobs=0))
    logprobs = output.prompt_logprobs.values[:, 0]
    print(f"{len(logprobs)} tokens, perplexity {np.exp(-logprobs.mean()):.2f}")
