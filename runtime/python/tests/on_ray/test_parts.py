"""What needs no cluster: arguments, routing, merged metrics, streams that go on."""

import asyncio
import json
import re
import subprocess
import time

import click
import pytest

import llmrt
from llmrt.ray import AppArgs
from llmrt.ray._fit import check, nodes, plan
from llmrt.ray._metrics import merge
from llmrt.ray._policy import Contents, Sent, n_cached, rank
from llmrt.ray._relay import Lost, Relay
from llmrt.ray._stream import Resumable


def test_arguments_are_checked_and_may_be_texts():
    args = AppArgs.read({"replicas": "1-4", "num_cpus": "2", "serve_args": "--ctx 256 --swa-full", "backend": "cann"})
    assert (args.min_replicas, args.max_replicas) == (1, 4)
    assert args.words == ["--threads", "2", "--max-body", "16777216", "--ctx", "256", "--swa-full", "--backend", "cann"]
    assert AppArgs(backend="cuda", resources='{"GPU": 2}').actor_options["num_gpus"] == 2
    assert args.actor_options == {"num_cpus": 2, "resources": {"NPU": 1}}
    assert AppArgs(backend="cuda").actor_options == {"num_cpus": 1, "num_gpus": 1}
    assert AppArgs(backend="cuda", resources={"GPU": 2, "NPU": 1}).actor_options == {
        "num_cpus": 1,
        "num_gpus": 2,
        "resources": {"NPU": 1},
    }
    assert AppArgs(replicas={"min": 2, "max": 2}, resources={"TPU": 1}).actor_options["resources"] == {"TPU": 1}
    for wrong, error, match in [
        ({"replcas": 2}, llmrt.RequestError, "replcas"),
        ({"replicas": 0}, llmrt.RequestError, "replicas"),
        ({"replicas": "two"}, TypeError, "replicas"),
        ({"replicas": "4-2"}, llmrt.RequestError, "replicas"),
        ({"replicas": "1-"}, TypeError, "replicas"),
        ({"queue_time": 0}, llmrt.RequestError, "queue_time"),
        ({"num_cpus": "many"}, TypeError, "num_cpus"),
        ({"serve_args": 5}, TypeError, "serve_args"),
        ({"resources": "TPU"}, TypeError, "resources"),
        ({"model": 3}, TypeError, "model"),
    ]:
        with pytest.raises(error, match=match):
            AppArgs.read(wrong)


def test_a_device_of_other_machines_is_planned_without():
    # Resolved on a machine that has none of it; one that has it plans with it.
    planned = plan(AppArgs(backend="cann", serve_args="--ctx 384"))
    assert planned["kv_block_size"] and planned["process"] >= 0


@pytest.mark.parametrize("words", ["--nope 1", "--api-key", "--port 99999999", "extra=no-such.gguf"])
def test_what_no_server_starts_with_is_refused(words):
    with pytest.raises(llmrt.Error):
        plan(AppArgs(serve_args=words))
    with pytest.raises(llmrt.ModelError, match="no such device"):
        plan(AppArgs(backend="nope"))


def test_a_router_counts_the_requests_that_it_has_sent():
    sent = Sent()
    sent.expected("a", "x", 0.0)
    sent.expected("b", "x", 0.0)
    sent.routed("a", "y")
    assert sent.by_replica(0.2) == {"x": 1, "y": 1}
    sent.completed("a", "y", 0.3)
    assert sent.by_replica(0.3) == {"x": 1}
    # One that is reported before it was sent there, one that a replica did not take, and one without a report.
    sent.completed("c", "x", 1.0)
    sent.routed("c", "x")
    sent.expected("d", "y", 1.2)
    sent.completed("d", "x", 1.3)
    assert sent.by_replica(2.0) == {"x": 1, "y": 1}
    sent.lost("y")
    assert sent.by_replica(Sent.PATIENCE + 2) == {} and len(sent) == 0


def test_the_memory_of_the_cluster_that_serve_run_names_counts(monkeypatch):
    addresses = []

    def run(command, **_):
        addresses.append(command[-1])
        return subprocess.CompletedProcess(command, 0, stdout="log\n[]\n")

    monkeypatch.setattr("llmrt.ray._fit.subprocess.run", run)
    monkeypatch.setattr("llmrt.ray._fit.ray.is_initialized", lambda: False)
    assert nodes() == []
    with click.Context(click.Command("run")) as command:
        command.params["address"] = "192.0.2.7:6379"
        assert nodes() == []
    assert addresses == ["auto", "192.0.2.7:6379"]


def test_a_model_that_fits_no_node_is_refused():
    planned = plan(AppArgs(serve_args="--ctx 384 --parallel=2 --api-key x"))
    assert planned["n_sequences"] == 2
    check(planned, [])
    nodes = [{"Alive": True, "Resources": {"memory": planned["process"] - 1}}]
    check(planned, [*nodes, {"Alive": True, "Resources": {"memory": planned["process"]}}])
    dead = {"Alive": False, "Resources": {"memory": 2 * planned["process"]}}
    with pytest.raises(llmrt.OutOfMemoryError, match="largest node"):
        check(planned, [*nodes, dead])
    with pytest.raises(llmrt.ModelError, match="no-such"):
        plan(AppArgs(model="no-such.gguf"))


def test_the_longest_prefix_goes_first_while_its_queue_is_short():
    def order(n_cached, queues, n_held=(0, 0, 0)):
        return rank(n_cached, queues, n_held, 4)

    assert order([0, 0, 0], [2, 0, 1]) == [1, 2, 0]
    assert order([3, 5, 5], [0, 4, 2]) == [2, 1, 0]
    assert order([0, 5, 1], [0, 5, 3]) == [2, 0, 1]
    assert order([0, 0, 0], [1, 1, 0], [7, 3, 9]) == [2, 1, 0]
    assert order([], []) == []
    assert n_cached([1, 2, 3], {1, 3}) == 1
    contents = Contents()
    contents.report([1])
    contents.sent([2, 3], 10.0)
    contents.sent([3], 20.0)
    assert (contents.n_cached([1, 2, 3, 4]), len(contents)) == (3, 3)
    contents.forget(15.0)
    assert (contents.n_cached([1, 2]), 3 in contents) == (1, True)


def test_metrics_are_merged_by_family():
    text = '# HELP a A.\n# TYPE a counter\na 1\na{x="y"} 2\n# TYPE b gauge\nb{} 3\n'
    merged = merge({"one": text, 'tw"o': text}).splitlines()
    assert merged[:6] == [
        "# HELP a A.",
        "# TYPE a counter",
        'a{replica="one"} 1',
        'a{replica="one",x="y"} 2',
        'a{replica="tw\\"o"} 1',
        'a{replica="tw\\"o",x="y"} 2',
    ]
    assert merged[6:] == ["# TYPE b gauge", 'b{replica="one"} 3', 'b{replica="tw\\"o"} 3']


class Replica:
    """Streams five tokens; is lost after so many parts."""

    def __init__(self, *lost_after):
        self.lost_after = list(lost_after)
        self.bodies = []
        self.n_open = 0

    async def send(self, body):
        fields = json.loads(body)
        self.bodies.append(fields)
        left = self.lost_after.pop(0) if self.lost_after else 100
        self.n_open += 1
        try:
            for part in self.parts(len(self.bodies), fields):
                if left == 0:
                    raise Lost("killed")
                left -= 1
                yield part
        finally:
            self.n_open -= 1

    def parts(self, id, fields):
        if not fields.get("stream"):
            yield 200, [(b"content-type", b"application/json")]
            yield b'{"a":'
            yield b"1}"
            return
        yield 200, [(b"content-type", b"text/event-stream")]
        bytes = b""
        for token in range(5):
            choice = {"index": 0, "text": f"t{token}", "token_ids": [token]}
            bytes += b"data: " + json.dumps({"id": id, "choices": [choice]}).encode() + b"\n\n"
        bytes += b"data: [DONE]\n\n"
        # Parts end anywhere.
        yield from (bytes[i : i + 50] for i in range(0, len(bytes), 50))


def relayed(replica, path, retry_time=5, **fields):
    async def run():
        relay = Relay(replica.send, path, json.dumps(fields).encode(), retry_time)
        return b"".join([part async for part in await relay.begin()])

    return asyncio.run(run())


def test_a_stream_goes_on_where_it_was_lost():
    def stream(replica):
        """The events, which have one id."""
        relay = relayed(replica, "/v1/completions", stream=True)
        [id] = set(re.findall(rb'"id":(\d)', relay))
        return relay.replace(b'"id":' + id, b"")

    whole = stream(Replica())
    assert whole.count(b"data: ") == 6 and b"token_ids" not in whole
    for lost in [(0,), (1,), (3,), (0, 0, 4, 1, 6), (5,)]:
        replica = Replica(*lost)
        assert stream(replica) == whole, lost
        assert len({fields["seed"] for fields in replica.bodies}) == 1
        known = [fields.get("resume_token_ids", []) for fields in replica.bodies]
        assert all(after[: len(before)] == before for before, after in zip(known, known[1:]))
        assert replica.n_open == 0
    assert known[-1] == list(range(len(known[-1]))) and known[-1]
    assert b"token_ids" in relayed(Replica(3), "/v1/completions", stream=True, return_token_ids=True)
    # A client's own known tokens are sent once, and a request that ends its replicas is refused.
    replica = Replica(4, 5)
    relayed(replica, "/v1/completions", stream=True, resume_token_ids=[0, 1])
    assert all(fields["resume_token_ids"] == list(range(len(fields["resume_token_ids"]))) for fields in replica.bodies)
    replica = Replica(*[4] * 100)
    assert b"replica_lost" in relayed(replica, "/v1/completions", stream=True) and len(replica.bodies) < 12


def test_other_answers_are_computed_again_or_end_with_an_error():
    assert relayed(Replica(0, 1, 2), "/v1/embeddings") == b'{"a":1}'
    ended = relayed(Replica(2), "/v1/responses", stream=True)
    assert b'event: error\ndata: {"type": "error", "code": "replica_lost"' in ended and b"[DONE]" not in ended
    assert b'{"error": ' in relayed(Replica(2), "/api/chat", stream=True)
    began = time.monotonic()
    with pytest.raises(Lost):
        relayed(Replica(*[0] * 100), "/v1/completions", retry_time=0.5, stream=True)
    ended = relayed(Replica(*[3] + [0] * 100), "/v1/completions", retry_time=0.5, stream=True)
    assert b"replica_lost" in ended and time.monotonic() - began < 10


def test_what_cannot_go_on_elsewhere_is_no_resumable_stream():
    def is_resumable(path="/v1/completions", **fields):
        return Resumable.read(path, json.dumps({"stream": True, **fields}).encode()) is not None

    assert is_resumable() and is_resumable(prompt=[1, 2], n=1) and is_resumable("/v1/chat/completions?x=y")
    assert not is_resumable(n=2) and not is_resumable(prompt=["a", "b"]) and not is_resumable(logprobs=0)
    assert not is_resumable(resume_token_ids=5) and Resumable.read("/v1/completions", b"[" * 200_000) is None
    assert not is_resumable("/v1/responses") and not is_resumable(stream=False) and not is_resumable(use_beam_search=True)
    assert Resumable.read("/v1/completions", b"{") is None and Resumable.read("/v1/completions", b"[]") is None
