#!/usr/bin/env python3
"""Tests `llmrt.ray` on a cluster in this machine: `runtime/python/tests/cluster.py WHEEL|LIBRARY [ARGUMENT…]`.

As `run.py`, with Ray in the environment; a job of its own, since Ray alone takes minutes to install. TESTS_RAY_KILLS is how
many replicas are killed (6)."""

import sys

import run

if __name__ == "__main__":
    packages = [*run.PACKAGES, "ray[serve,data]>=2.60,<3"]
    sys.exit(run.main(__doc__, run.ROOT / "target/python-ray", packages, run.HERE / "on_ray"))
