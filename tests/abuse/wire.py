"""Bytes on a socket that are no HTTP, or hardly: lines, heads, lengths, chunks, pipelines, connections that close early."""

import random
import re
import socket
from collections import Counter

from server import EXPECTED_5XX, Failure

BODY = b'{"prompt":"a","max_tokens":1}'


def post(*headers, body=b"", path=b"/v1/completions", line=None):
    head = [line or b"POST " + path + b" HTTP/1.1", b"Host: x", *headers]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def length(n):
    return b"Content-Length: " + str(n).encode()


def lines(r):
    """Request lines."""
    noise = bytes(r.randrange(256) for _ in range(r.randrange(1, 60)))
    return r.choice([
        noise + b"\r\n\r\n", b"\r\n" * r.randrange(1, 50), b"GET\r\n\r\n", b"GET /\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/2.0\r\n\r\n", b"get / HTTP/1.1\r\nHost: x\r\n\r\n", b"G\0T / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + noise, b"GET http://[::1 HTTP/1.1\r\n\r\n", b"CONNECT a:1 HTTP/1.1\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", b"BREW /api/tags HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /" + b"a" * r.choice([1000, 9000, 70000]) + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /%ff%00%zz/../.. HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /v1/models/%ff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /api/blobs/%ff HTTP/1.1\r\nHost: x\r\n\r\n", b"HEAD /api/blobs/sha256:00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /assets/../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /assets/%2e%2e%2fx HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise,
    ])


def heads(r):
    """Headers."""
    value = bytes(r.randrange(256) for _ in range(r.randrange(1, 40)))
    return r.choice([
        post(b"x: " + b"a" * r.choice([8000, 100_000, 1_000_000])),
        post(*[b"x-%d: y" % i for i in range(r.choice([99, 101, 5000]))]),
        post(b"no colon"), post(b": empty"), post(b"x y: z"), post(b"x: " + value), post(b" folded: x"), post(b"x: a\r\n\tb"),
        post(b"Host: y", length(len(BODY)), body=BODY), post(b"Expect: 100-continue", length(len(BODY)), body=BODY),
        post(b"Expect: x", length(len(BODY)), body=BODY), post(b"Upgrade: websocket", b"Connection: upgrade"),
        post(b"Authorization: Bearer " + value, length(len(BODY)), body=BODY),
        post(b"Origin: " + value, b"Access-Control-Request-Method: X", line=b"OPTIONS /v1/models HTTP/1.1"),
    ])


def lengths(r):
    """Lengths of bodies that are not theirs."""
    n = len(BODY)
    return r.choice([
        post(length(n - r.randrange(1, n)), body=BODY), post(length(n + r.randrange(1, 9999)), body=BODY),
        post(length(-1), body=BODY), post(b"Content-Length: x", body=BODY), post(b"Content-Length: +5", body=BODY),
        post(b"Content-Length: 99999999999999999999999", body=BODY), post(length(2**63), body=BODY),
        post(length(n), length(n + 1), body=BODY), post(length(n), b"Transfer-Encoding: chunked", body=BODY),
        post(body=BODY), post(length(17 << 20), body=BODY),
    ])


def chunks(r):
    """Chunked bodies."""
    noise = bytes(r.randrange(256) for _ in range(r.randrange(1, 80)))
    size = b"%x\r\n" % len(BODY)
    body = r.choice([
        size + BODY + b"\r\n0\r\n\r\n", size + BODY + b"0\r\n\r\n", size + BODY, noise, b"zz\r\n" + BODY, b"-1\r\n" + BODY,
        b"ffffffffffffffff\r\n" + BODY, b"1ffffffffffffffff\r\n" + BODY, b"0\r\n\r\n", b"0" * 500 + b"\r\n\r\n",
        size[:-2] + b";" + b"e" * 20000 + b"\r\n" + BODY + b"\r\n0\r\n\r\n",
        size + BODY + b"\r\n0\r\n" + b"t: x\r\n" * 3000 + b"\r\n", b"".join(b"1\r\n%c\r\n" % b for b in BODY) + b"0\r\n\r\n",
    ])
    coding = r.choice([b"chunked"] * 5 + [b"gzip, chunked", b"chunked, gzip", b"x", b"chunked\0"])
    return post(b"Transfer-Encoding: " + coding, body=body)


def pipelines(r):
    """Several requests at once, some of them wrong."""
    parts = [post(length(len(BODY)), body=BODY), b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", lines(r), lengths(r), chunks(r)]
    return b"".join(r.choice(parts) for _ in range(r.randrange(2, 12)))


KINDS = [lines, heads, lengths, chunks, pipelines]


def exchange(server, data, r):
    """Sends bytes, in pieces or at once, and closes as the dice fall. The statuses of the answers."""
    received = b""
    with socket.create_connection((server.host, server.port), timeout=60) as connection:
        connection.settimeout(20)
        try:
            cut = r.randrange(len(data)) if r.random() < 0.3 else len(data)
            connection.sendall(data[:cut])
            if r.random() < 0.1:
                return []
            connection.sendall(data[cut:])
            # Half-closed: the server sees the end, and answers what it has.
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                received += part
        except TimeoutError as e:
            raise Failure(f"neither an answer nor the end of the connection in 20 s: {received[:300]!r}") from e
        except OSError:
            pass  # The server may close before it has read everything.
    return [int(code) for code in re.findall(rb"HTTP/1\.[01] (\d{3})", received)]


def fuzz(server, n, seed=1):
    """`n` connections; the number of answers by status, and of those without one."""
    r = random.Random(seed)
    counts = Counter()
    for i in range(n):
        kind = r.choice(KINDS)
        data = kind(r)
        try:
            statuses = exchange(server, data, r)
        except (Failure, ConnectionRefusedError) as e:
            server.check_alive()
            raise Failure(f"connection {i}, {kind.__name__}: {data[:500]!r}\n  {e}") from e
        for status in statuses or ["none"]:
            counts[status] += 1
            if status != "none" and status >= 500 and status not in EXPECTED_5XX:
                raise Failure(f"connection {i}, {kind.__name__}: {status} to {data[:500]!r}")
        if i % 200 == 199:
            server.check_alive()
    return counts
