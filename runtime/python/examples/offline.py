"""Offline inference, as in vLLM's quick start; the import is llmrt's."""

import sys

from llmrt import LLM, SamplingParams

prompts = [
    "Once upon a time",
    "The little dog",
    "One day, a girl named Lily",
]
sampling_params = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=32)

llm = LLM(model=sys.argv[1])
outputs = llm.generate(prompts, sampling_params)

for output in outputs:
    prompt = output.prompt
    generated_text = output.outputs[0].text
    print(f"Prompt: {prompt!r}, Generated text: {generated_text!r}")
