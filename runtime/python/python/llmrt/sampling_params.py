"""Parameters, where vLLM has them."""

from ._params import BeamSearchParams, RequestOutputKind, SamplingParams

__all__ = ["BeamSearchParams", "RequestOutputKind", "SamplingParams"]
