"""A server under abuse: starts it, reads its metrics and memory, and holds what must be true afterwards."""

import http.client
import json
import os
import re
import signal
import subprocess
import tempfile
import time

# Statuses that the document lists per operation are allowed there; of those from 500 on, only these are ever expected.
EXPECTED_5XX = {501, 503, 504}


class Failure(Exception):
    """Something that must not happen."""


class Server:
    def __init__(self, program, *flags, store=None, **variables):
        # Without HOME there is no store: no request of a fuzzer reaches a registry of models.
        env = {"PATH": os.environ.get("PATH", ""), "LLMRT_PLUGIN_PATH": "", **variables}
        if store:
            env["LLMRT_MODELS"] = store
        self.stderr = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [program, "serve", "--port", "0", "-t", "1", *flags],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.stderr, env=env,
        )
        line = self.process.stdout.readline().decode()
        found = re.match(r"listening on http://(.+):(\d+)\s", line)
        if not found:
            raise Failure(f"the server does not start: {line!r} {self.errors()}")
        self.host, self.port = found[1], int(found[2])

    @property
    def url(self):
        return f"http://{self.host}:{self.port}"

    def request(self, method, path, body=None, headers=None, timeout=600):
        """Status, headers and body of an answer; one connection each."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def document(self):
        status, _, body = self.request("GET", "/openapi.json")
        if status != 200:
            raise Failure(f"/openapi.json: {status}")
        return json.loads(body)

    def metric(self, name):
        """Sum of a metric over the loaded models."""
        text = self.request("GET", "/metrics")[2].decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name + "{"))

    def resident(self):
        """Resident bytes of the process."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return int(re.search(r"VmRSS:\s+(\d+) kB", file.read())[1]) * 1024

    def errors(self):
        self.stderr.seek(0)
        return self.stderr.read().decode(errors="replace")

    def check_alive(self):
        """The process runs, answers, and has printed no panic."""
        if self.process.poll() is not None:
            raise Failure(f"the server ended with {self.process.returncode}: {self.errors()[-2000:]}")
        status = self.request("GET", "/health")[0]
        if status != 200:
            raise Failure(f"/health: {status}")
        if "panicked" in (text := self.errors()):
            raise Failure(f"a panic: {text[:2000]}")

    def check_idle(self, seconds=120):
        """Nothing runs or waits, and no block of the KV cache is in use."""
        self.check_alive()
        names = ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"]
        deadline = time.monotonic() + seconds
        while any(values := [self.metric(name) for name in names]):
            if time.monotonic() > deadline:
                raise Failure(f"not idle after {seconds} s: {dict(zip(names, values))}")
            time.sleep(0.05)

    def stop(self):
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=120)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def error_text(path, body):
    """The message of an error; fails if it has not the form of its route."""
    try:
        value = json.loads(body)
        if path.startswith("/api/"):
            text = value["error"]
            is_form = set(value) == {"error"}
        elif path.startswith("/v1/messages"):
            text = value["error"]["message"]
            is_form = value["type"] == "error" and isinstance(value["error"]["type"], str)
        else:
            text = value["error"]["message"]
            is_form = set(value["error"]) == {"message", "type", "param", "code"}
    except (ValueError, KeyError, TypeError) as e:
        raise Failure(f"{path}: an error has another form: {body[:300]!r}") from e
    if not is_form or not isinstance(text, str) or not text:
        raise Failure(f"{path}: an error has another form: {body[:300]!r}")
    return text
