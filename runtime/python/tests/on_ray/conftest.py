"""A cluster of two nodes in this machine, on loopback, and an application on it."""

import json
import random
import socket
import time
import urllib.error
import urllib.request

import pytest
import ray
from ray import serve
from ray.cluster_utils import Cluster

import llmrt.ray
import llmrt.ray._app

# Logical cores of each node; the tests run on two.
CORES = 4


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class App:
    """An application that runs, and its requests."""

    def __init__(self, port):
        self.address = f"http://127.0.0.1:{port}"

    def open(self, path, body=None, timeout=60):
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        return urllib.request.urlopen(urllib.request.Request(self.address + path, data), timeout=timeout)

    def post(self, path, **body):
        with self.open(path, body) as answer:
            return json.load(answer)

    def refused(self, path, body=None):
        """Status and answer of a request that fails."""
        with pytest.raises(urllib.error.HTTPError) as raised:
            self.open(path, body)
        return raised.value.code, json.load(raised.value)

    def events(self, path, **body):
        with self.open(path, {**body, "stream": True}) as answer:
            lines = answer.read().decode().split("\n\n")
        assert lines[-2:] == ["data: [DONE]", ""], lines[-3:]
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]

    def metrics(self, name):
        """A metric of each replica."""
        with self.open("/metrics") as answer:
            lines = answer.read().decode().splitlines()
        found = [line.rpartition(" ") for line in lines if line.startswith(name + "{")]
        return {labels.split('replica="')[1].split('"')[0]: float(value) for labels, _, value in found}


def replicas():
    """The actors of the replicas, by name."""
    named = ray.util.list_named_actors(all_namespaces=True)
    return [one for one in named if one["name"].startswith("SERVE_REPLICA::llmrt#llmrt#")]


def kill(one):
    """Ends the process of a replica at once."""
    try:
        ray.kill(ray.get_actor(one["name"], namespace=one["namespace"]))
    except ValueError:
        pass


def until(holds, seconds=60):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.1)


@pytest.fixture(scope="session")
def cluster():
    options = {"num_cpus": CORES, "include_dashboard": False, "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args=options)
    cluster.second = cluster.add_node(num_cpus=CORES, object_store_memory=80 * 2**20)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    serve.shutdown()
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="session")
def start(cluster):
    """Starts an application, in the place of the one that runs."""
    port = free_port()
    # All nodes are this machine: of several proxies the system would choose one.
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})

    def start(is_open=True, **args):
        serve.run(llmrt.ray.app(args), name="llmrt")
        app = App(port)
        if not is_open:
            return app
        until(lambda: len(app.metrics("vllm:num_requests_running")) >= llmrt.ray.AppArgs.read(args).min_replicas)
        return app

    return start


@pytest.fixture(scope="session")
def app(start):
    """Two replicas."""
    return start(replicas=2, serve_args="--ctx 384")


@pytest.fixture
def chance():
    return random.Random(1)
