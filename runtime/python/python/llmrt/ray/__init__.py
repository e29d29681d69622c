"""Many machines, by Ray: `serve run llmrt.ray:app`, and batches on Ray Data.

`app` builds an application of Ray Serve whose replicas have the routes of `llmrt serve`; `batch` and `batch_file` generate texts
for data sets. Ray schedules; here are what a replica is, which one a request goes to, and what happens when one is lost.
"""

from ..errors import Error

try:
    import ray  # noqa: F401
    from ray import serve  # noqa: F401
except ImportError as e:
    raise Error("Ray Serve is not installed", "no_ray", "pip install 'ray[serve,data]'") from e

from ._app import app
from ._args import AppArgs
from ._batch import batch, batch_file

__all__ = ["AppArgs", "app", "batch", "batch_file"]
