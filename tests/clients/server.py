"""Servers that tests start, and plain requests to them."""

import json
import os
import subprocess
import urllib.error
import urllib.request
from contextlib import contextmanager


@contextmanager
def serve(*arguments, models=None):
    """A server on a free port; yields its URL. `models` is the folder of its store."""
    environment = {**os.environ, "LLMRT_PLUGIN_PATH": "", "LLMRT_MODELS": models or os.environ["LLMRT_MODELS"]}
    # A variable of the tests in Rust; the program warns of those that it does not read.
    environment.pop("LLMRT_REQUIRE_FIXTURES", None)
    command = [os.environ["TESTS_PROGRAM"], "serve", "--port", "0", *arguments]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        if not line.startswith("listening on "):
            raise RuntimeError(f"{command} does not listen: {line!r}")
        yield line.removeprefix("listening on ").strip()
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def shared():
    """The URL of the server that `run.py` started, with the models `stories`, `scripted` and `tales`."""
    return os.environ["TESTS_URL"]


def post(path, body=None, url=None, method="POST", headers=None):
    """Status and JSON of an answer; the body is JSON, or bytes as they are."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    data = None if method == "GET" else data
    headers = {"content-type": "application/json", **(headers or {})}
    request = urllib.request.Request((url or shared()) + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as answer:
        status, text = answer.code, answer.read()
    try:
        return status, json.loads(text or b"null")
    except ValueError:
        return status, text.decode()


def get(path, url=None):
    """The same for GET."""
    return post(path, url=url, method="GET")


def refused(path, body, param, status=400):
    """Asserts that a request is refused because of this field; returns the message."""
    found, answer = post(path, body)
    assert (found, answer["error"]["param"]) == (status, param), (body, found, answer)
    return answer["error"]["message"]
