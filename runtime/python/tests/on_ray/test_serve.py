"""The application on a cluster: routes, routing, replicas and nodes that are lost."""

import asyncio
import json
import os
import threading
import time

import pytest
from conftest import kill, replicas, until
from ray.serve.request_router import RequestRouter

import llmrt
import llmrt.ray._app
import llmrt.ray._router

N_KILLS = int(os.environ.get("TESTS_RAY_KILLS", "6"))
STORY = {"prompt": "Once upon a time", "max_tokens": 200, "ignore_eos": True, "seed": 5}


def text(events):
    return "".join(event["choices"][0].get("text", "") for event in events if event["choices"])


@pytest.fixture(scope="session")
def expected():
    """The text of a server without a cluster."""

    async def run(server):
        async with await server.request("POST", "/v1/completions", body=json.dumps(STORY).encode()) as reply:
            return (await reply.json())["choices"][0]["text"]

    with llmrt.Server("--ctx", "384") as server:
        return asyncio.run(run(server))


def test_routes_give_the_text_of_a_server(app, expected):
    assert app.post("/v1/completions", **STORY)["choices"][0]["text"] == expected
    assert text(app.events("/v1/completions", **STORY)) == expected
    chat = {"messages": [{"role": "user", "content": "a dragon"}], "max_tokens": 8, "temperature": 0}
    whole = app.post("/v1/chat/completions", **chat)["choices"][0]["message"]["content"]
    deltas = [event["choices"][0]["delta"] for event in app.events("/v1/chat/completions", **chat)]
    assert "".join(delta.get("content", "") for delta in deltas) == whole
    assert app.post("/tokenize", content="Once")["tokens"]
    with app.open("/v1/models") as answer:
        assert json.load(answer)["data"][0]["id"] == "stories"
    with app.open("/health") as answer:
        assert json.load(answer) == {"status": "ok"}


def test_errors_are_those_of_a_server(app):
    status, error = app.refused("/v1/completions", {"prompt": 5})
    assert (status, error["error"]["param"]) == (400, "prompt")
    assert app.refused("/nowhere")[0] == 404
    assert app.refused("/api/pull", {"model": "x"})[0] == 404


def test_hostile_requests_are_refused_and_leave_the_ingress(app, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
    app.post("/v1/chat/completions", **chat, chat_template_kwargs={"chat_template": str(tmp_path / "pipe")})
    for body in b'{"prompt": "a", "stream": true, "resume_token_ids": 5}', b"[" * 200_000, b'{"prompt": "\xff"}':
        assert app.refused("/v1/completions", body)[0] == 400
    for path in "/v1/models/a%20b", "/v1/models/%3Fx=1", "/v1/models/%FF%00":
        assert app.refused(path)[0] in (400, 404)
    began = time.monotonic()
    assert app.refused("/v1/completions", b'{"prompt": "' + b"a" * (17 << 20))[0] == 413
    assert time.monotonic() - began < 10
    assert app.post("/tokenize", content="Once")["tokens"]


def test_one_scrape_has_the_metrics_of_all_replicas(app):
    assert len(app.metrics("vllm:num_requests_running")) == 2
    with app.open("/metrics") as answer:
        types = [line for line in answer.read().decode().splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types)) > 5


def test_a_client_that_is_gone_ends_its_request(app):
    def n_running():
        return sum(app.metrics("vllm:num_requests_running").values())

    until(lambda: n_running() == 0)
    answer = app.open("/v1/completions", {**STORY, "max_tokens": 370, "stream": True, "n": 4})
    answer.read(100)
    answer.close()
    until(lambda: n_running() == 0, 10)
    assert sum(app.metrics("vllm:generation_tokens_total").values()) > 0


class Load:
    """Clients in threads, until they are stopped; each text is compared."""

    def __init__(self, app, expected):
        self.stopping, self.n_done, self.failures = threading.Event(), 0, []
        work = (app, expected)
        self.threads = [threading.Thread(daemon=True, target=self.run, args=(*work, i % 2 == 0)) for i in range(4)]
        for thread in self.threads:
            thread.start()

    def run(self, app, expected, is_streamed):
        while not self.stopping.is_set():
            try:
                if is_streamed:
                    found = text(app.events("/v1/completions", **STORY))
                else:
                    found = app.post("/v1/completions", **STORY)["choices"][0]["text"]
                if found != expected:
                    self.failures.append(found)
            except Exception as e:
                self.failures.append(repr(e))
            self.n_done += 1

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(90)
        assert self.failures == []
        return self.n_done


@pytest.mark.limit(120 + 60 * N_KILLS)
def test_no_request_is_lost_with_its_replica(app, expected, chance):
    load = Load(app, expected)
    for _ in range(N_KILLS):
        until(lambda: len(app.metrics("vllm:num_requests_running")) == 2)
        time.sleep(chance.random() * 0.8)
        kill(chance.choice(replicas()))
    until(lambda: len(app.metrics("vllm:num_requests_running")) == 2)
    n_done = load.stop()
    print(f"{n_done} requests, {N_KILLS} replicas killed, none lost")
    assert n_done > N_KILLS


class RoundRobin(RequestRouter):
    """One after the other, whatever they have."""

    def initialize_state(self, queue_margin):
        self.n = 0

    async def choose_replicas(self, candidate_replicas, pending_request=None):
        self.n += 1
        pending_request.routing_context.should_backoff = True
        first = self.n % len(candidate_replicas)
        return [[one] for one in candidate_replicas[first:] + candidate_replicas[:first]]


def cached_share(app):
    """Of tokens of prompts with 9 beginnings of 192 tokens that take turns: round robin gives each to both replicas."""

    def hits():
        return sum(app.metrics("vllm:prefix_cache_hits_total").values())

    n_tokens = 0
    for turn in range(6):
        if turn == 2:
            # Caches are filled.
            n_tokens, before = 0, hits()
        for i in range(9):
            prompt = [1, 300 + i] * 96 + [400 + turn] * 16
            app.post("/v1/completions", prompt=prompt, max_tokens=1, temperature=0)
            n_tokens += len(prompt)
        # Until the replicas have reported what they have.
        time.sleep(2.5 * llmrt.ray._router.REPORT_PERIOD)
    return (hits() - before) / n_tokens


def test_prefixes_are_computed_half_as_often_as_by_round_robin(start, monkeypatch):
    # 96 blocks of 16 tokens: 5 of the 9 beginnings, their ends, and a request that runs.
    args = {"replicas": 2, "serve_args": "--ctx 384 --kv-memory 2304KiB"}
    ours = cached_share(start(**args))
    with monkeypatch.context() as patch:
        patch.setattr(llmrt.ray._app, "PrefixRouter", RoundRobin)
        turns = cached_share(start(**args, grace=1))
    print(f"tokens from the prefix cache: {ours:.2f} by prefix, {turns:.2f} by round robin")
    assert ours >= 2 * turns and ours > 0.5


def test_requests_end_on_the_replicas_that_a_new_version_replaces(start, expected):
    # Without time for another try, an answer is that of the replica that began it.
    app = start(replicas=2, retry_time=0, serve_args="--ctx 384")
    before = {one["name"] for one in replicas()}
    load = Load(app, expected)
    time.sleep(1)
    start(replicas=2, retry_time=0, serve_args="--ctx 400")
    until(lambda: not before & {one["name"] for one in replicas()})
    assert load.stop() > 4


def test_a_model_that_fits_no_node_is_refused_before_a_replica_starts(start, app):
    before = {one["name"] for one in replicas()}
    with pytest.raises(llmrt.OutOfMemoryError, match="largest node"):
        start(replicas=2, serve_args="--ctx 1000000 --parallel 64")
    assert {one["name"] for one in replicas()} == before
    assert app.post("/tokenize", content="Once")["tokens"]


def test_the_ingress_has_no_metrics_without_the_key(start):
    app = start(replicas=1, serve_args="--ctx 384 --api-key secret", is_open=False)
    until(lambda: app.refused("/metrics")[0] == 401)


def test_a_queue_starts_replicas_and_a_removed_node_loses_no_request(start, cluster, expected):
    app = start(replicas="1-5", target_requests=1, serve_args="--ctx 384")
    load = Load(app, expected)
    # More than the head has cores for.
    until(lambda: len(app.metrics("vllm:num_requests_running")) >= 3, 90)
    cluster.remove_node(cluster.second)
    time.sleep(5)
    assert load.stop() > 0
    assert app.post("/v1/completions", **STORY)["choices"][0]["text"] == expected
