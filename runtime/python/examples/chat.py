"""Conversations, one and many, as in vLLM's example of chats; the import is llmrt's.

The story model has no chat template, so that this gives one; other models have theirs in their files."""

import sys

from llmrt import LLM, SamplingParams

template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"

llm = LLM(model=sys.argv[1])
sampling_params = SamplingParams(temperature=0.5, max_tokens=24)

conversation = [
    {"role": "system", "content": "Once upon a time, there was a girl named Lily."},
    {"role": "user", "content": "She had a cat."},
]
outputs = llm.chat(conversation, sampling_params, use_tqdm=False, chat_template=template)
print(f"Generated text: {outputs[0].outputs[0].text!r}")

conversations = [conversation for _ in range(4)]
outputs = llm.chat(messages=conversations, sampling_params=sampling_params, chat_template=template)
for output in outputs:
    print(f"Prompt: {output.prompt!r}, Generated text: {output.outputs[0].text!r}")
