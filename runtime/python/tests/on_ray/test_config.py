"""`serve run` with a config file, as `docs/guide/cluster.md` has it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import replicas, until

CONFIG = """
applications:
  - name: llmrt
    import_path: llmrt.ray:app
    args: {{ replicas: {{ min: 1, max: 2 }}, serve_args: "{words}" }}
"""


@pytest.fixture
def serve_run(cluster, tmp_path):
    """Runs the command, which the test ends. What it started goes on until another application takes its place."""
    running = []

    def serve_run(words):
        config, log = tmp_path / "serve.yaml", tmp_path / "log"
        config.write_text(CONFIG.format(words=words))
        command = [Path(sys.executable).parent / "serve", "run", "--address", cluster.address, config]
        with log.open("w") as stderr:
            running.append(subprocess.Popen(list(map(str, command)), stdout=stderr, stderr=stderr))
        return running[-1], log

    yield serve_run
    for process in running:
        process.kill()
        process.wait()


def n_ctx(app):
    with app.open("/props") as answer:
        return json.load(answer)["default_generation_settings"]["n_ctx"]


def test_a_config_file_is_run(start, serve_run):
    app = start(replicas=1)
    process, log = serve_run("--ctx 320")
    until(lambda: n_ctx(app) == 320, 90)
    assert process.poll() is None, log.read_text()


def test_what_a_config_file_has_wrong_is_reported_before_a_replica_starts(start, serve_run):
    start(replicas=1)
    before = {one["name"] for one in replicas()}
    _, log = serve_run("--ctx 1000000 --parallel 64")
    # The command goes on, as it does for every application that cannot be built.
    until(lambda: "largest node" in log.read_text())
    assert {one["name"] for one in replicas()} <= before
