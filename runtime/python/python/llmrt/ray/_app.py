"""The application of Ray Serve: an ingress in front of replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray import serve
from ray.serve import Application
from ray.serve.config import RequestRouterConfig

from . import _fit
from ._args import AppArgs
from ._ingress import Ingress
from ._replica import Replica
from ._router import REPORT_PERIOD, PrefixRouter

# Requests that the ingress has at a time.
_MAX_INGRESS = 4096
# The ingress has the connections of clients, so it is where Ray's own control is: it is lost with the cluster, not with a node.
_ON_HEAD = {"node:__internal_head__": 0.001}


def app(args: Mapping[str, Any]) -> Application:
    """Builds the application, for `serve run llmrt.ray:app model=/models/m.gguf replicas=1-4` or a config file of Ray Serve.

    Args:
        args: Those of `AppArgs`. Wrong ones, and a model that fits no node, are exceptions before any replica starts.
    """
    given = AppArgs.read(args)
    planned = _fit.plan(given)
    _fit.check(planned, _fit.nodes())
    router = RequestRouterConfig(
        request_router_class=PrefixRouter,
        request_router_kwargs={"queue_margin": given.queue_margin},
        request_routing_stats_period_s=REPORT_PERIOD,
    )
    replicas = serve.deployment(Replica).options(
        name="llmrt",
        ray_actor_options={**given.actor_options, **({"memory": planned["process"]} if planned["process"] else {})},
        max_ongoing_requests=given.max_requests,
        graceful_shutdown_timeout_s=given.grace,
        health_check_period_s=2,
        request_router_config=router,
        **_number(given),
    )
    ingress = serve.deployment(Ingress).options(
        name="ingress",
        ray_actor_options={"num_cpus": 0, "resources": _ON_HEAD},
        max_ongoing_requests=_MAX_INGRESS,
        graceful_shutdown_timeout_s=given.grace,
    )
    return ingress.bind(replicas.bind(given.words), given, planned["kv_block_size"])


def _number(args: AppArgs) -> dict[str, Any]:
    """How many replicas there are."""
    if args.min_replicas == args.max_replicas:
        return {"num_replicas": args.min_replicas}
    scaling = {
        "min_replicas": args.min_replicas,
        "max_replicas": args.max_replicas,
        "target_ongoing_requests": args.target_requests,
    }
    return {"autoscaling_config": scaling}
