"""Vectors of texts, as in vLLM's example of embeddings, and how similar they are; the import is llmrt's."""

import sys

import numpy as np

from llmrt import LLM

prompts = ["The cat sat on the mat.", "A cat is on a mat.", "The sun is hot."]

llm = LLM(model=sys.argv[1], runner="pooling")
outputs = llm.embed(prompts)

vectors = np.stack([output.outputs.embedding for output in outputs])
print(np.round(vectors @ vectors.T, 3))
