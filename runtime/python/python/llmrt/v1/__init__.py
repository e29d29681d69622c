"""Names where vLLM has them."""
