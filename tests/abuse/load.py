"""Many clients at once: readers that never read, heads that drip, clients that hang up, full queues, a small KV cache, the end
of the server under load, and memory over time."""

import json
import random
import socket
import threading
import time
from collections import Counter

from bodies import check_answer
from server import Failure, error_text

LONG = {"prompt": "Once", "max_tokens": 3900, "ignore_eos": True, "stream": True}


def post(path, value):
    body = json.dumps(value).encode()
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(body), body)


def connect(server):
    connection = socket.create_connection((server.host, server.port), timeout=120)
    connection.settimeout(120)
    return connection


def together(n, work):
    """Runs `work(i)` on `n` threads; their results. The first exception is raised."""
    results, failures = [None] * n, []

    def one(i):
        try:
            results[i] = work(i)
        except Exception as e:  # noqa: BLE001 — raised below, on the caller's thread
            failures.append(e)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def storm(server, n, seed=1):
    """`n` clients that hang up: before the answer, in its head, or in the middle of a stream; half with a reset."""
    r = random.Random(seed)
    dice = [(r.choice(["/v1/completions", "/v1/completions", "/api/generate"]), r.random(), r.random() < 0.5) for _ in range(n)]

    def one(i):
        path, when, resets = dice[i]
        value = LONG if path.startswith("/v1") else {"model": "stories", "prompt": "Once", "options": {"num_predict": 3900}}
        with connect(server) as connection:
            connection.sendall(post(path, value))
            if when > 0.3:
                connection.recv(200)
            time.sleep(when / 5)
            if resets:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    for at in range(0, n, 100):
        together(min(100, n - at), lambda i, at=at: one(at + i))
    server.check_idle()


def slow(server, n, seconds):
    """Clients that never read their streams, and heads that drip, while another one is answered; then all go away."""
    # Log-probabilities make these streams larger than what sockets hold.
    unread = {**LONG, "max_tokens": 1000, "logprobs": 20}
    readers = []
    for i in range(n):
        connection = connect(server)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.sendall(post("/v1/completions", {**unread, "prompt": str(i)}) if i % 2 == 0 else b"POST /v1/comp")
        readers.append(connection)
    deadline = time.monotonic() + seconds
    n_answered = 0
    while time.monotonic() < deadline:
        for connection in readers[1::2]:
            try:
                connection.send(b"l")
            except OSError:
                pass  # The server may refuse to wait any longer.
        status, _, body = server.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 2}))
        if status != 200:
            raise Failure(f"beside slow clients: {status} {body[:300]!r}")
        n_answered += 1
        time.sleep(0.2)
    for connection in readers:
        connection.close()
    server.check_idle()
    return n_answered


def overflow(server, n):
    """`n` requests at once to a server with a small queue: each is answered, or refused with when to try again."""
    document = server.document()

    def one(i):
        status, headers, body = server.request(
            "POST", "/v1/completions", json.dumps({"prompt": str(i), "max_tokens": 200, "ignore_eos": True}))
        check_answer("/v1/completions", "POST", status, headers, body, document)
        if status == 200 and json.loads(body)["usage"]["completion_tokens"] != 200:
            raise Failure(f"an accepted request has another length: {body[:300]!r}")
        return status

    counts = Counter(together(n, one))
    if set(counts) != {200, 503}:
        raise Failure(f"expected 200 and 503: {counts}")
    server.check_idle()
    return counts


def exhaust(server, n):
    """`n` requests that together need more KV cache than there is; the number of preemptions."""
    before = server.metric("vllm:num_preemptions_total")

    def one(i):
        body = json.dumps({"prompt": f"{i} Once upon a time", "max_tokens": 300, "ignore_eos": True})
        status, _, body = server.request("POST", "/v1/completions", body)
        if status != 200:
            raise Failure(f"{status} {error_text('/v1/completions', body)}")
        if json.loads(body)["usage"]["completion_tokens"] != 300:
            raise Failure(f"another length: {body[:300]!r}")

    together(n, one)
    server.check_idle()
    n_preemptions = server.metric("vllm:num_preemptions_total") - before
    if n_preemptions == 0:
        raise Failure("nothing was preempted: the cache is not small enough for this test")
    return int(n_preemptions)


def terminate(server, n):
    """SIGTERM while `n` requests run and wait: all are answered, and the exit code is 0."""
    value = {"prompt": "Once", "max_tokens": 150, "ignore_eos": True}
    connections = [connect(server) for _ in range(n)]
    for i, connection in enumerate(connections):
        connection.sendall(post("/v1/completions", {**value, "stream": i % 2 == 0}))
    while server.metric("vllm:num_requests_running") + server.metric("vllm:num_requests_waiting") == 0:
        time.sleep(0.01)
    code = [None]
    ending = threading.Thread(target=lambda: code.__setitem__(0, server.stop()))
    ending.start()
    for i, connection in enumerate(connections):
        text = b""
        while part := connection.recv(65536):
            text += part
        connection.close()
        is_whole = b"data: [DONE]" in text if i % 2 == 0 else b'"completion_tokens":150' in text
        if not is_whole:
            raise Failure(f"an accepted request was not answered: {text[-300:]!r}")
    ending.join()
    if code[0] != 0:
        raise Failure(f"the exit code is {code[0]}: {server.errors()[-1000:]}")


def memory(server, seconds, seed=1):
    """Mixed load; resident bytes over the four fifths of the time after the warm-up, and the number of requests."""
    r = random.Random(seed)
    end = time.monotonic() + seconds
    warm = time.monotonic() + seconds / 5
    samples, n_requests = [], [0]
    lock = threading.Lock()

    def client(_):
        while time.monotonic() < end:
            with lock:
                kind, n, salt = r.randrange(6), r.randrange(1, 300), r.random()
            value = {"prompt": f"{salt} Once", "max_tokens": n, "ignore_eos": True}
            match kind:
                case 0:
                    with connect(server) as connection:
                        connection.sendall(post("/v1/completions", {**value, "stream": True}))
                        connection.recv(100)
                case 1:
                    server.request("POST", "/v1/completions", b'{"prompt": ' + b"[" * n)
                case 2:
                    server.request("POST", "/tokenize", json.dumps({"content": "a " * n * 20, "with_pieces": True}))
                case 3:
                    server.request("POST", "/api/generate", json.dumps({"model": "stories", "prompt": "a", "options": {"num_predict": n}}))
                case 4:
                    server.request("POST", "/v1/completions", json.dumps({**value, "n": 3, "logprobs": 5}))
                case _:
                    server.request("POST", "/v1/completions", json.dumps({**value, "stream": True}))
            with lock:
                n_requests[0] += 1

    def watch():
        while time.monotonic() < end:
            if time.monotonic() >= warm:
                samples.append(server.resident())
            time.sleep(min(1, seconds / 30))

    watcher = threading.Thread(target=watch)
    watcher.start()
    together(6, client)
    watcher.join()
    server.check_idle()
    return samples, n_requests[0]
