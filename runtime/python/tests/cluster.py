#!/usr/bin/env python3
"""Tests `llmrt.ray` on a cluster in this machine: `runtime/python/tests/cluster.py WHEEL|LIBRARY [ARGUMENT…]`.

As `run.py`, with Ray in the environment; a job of its own, since Ray alone takes minutes to install. LLMRT_TEST_KILLS is how
many replicas are killed (6)."""

import run

run.PLACE = run.ROOT / "target/python-ray"
run.PACKAGES += ["ray[serve,data]>=2.60,<3"]
run.TESTS = run.HERE / "on_ray"
run.__doc__ = __doc__

if __name__ == "__main__":
    run.sys.exit(run.main())
