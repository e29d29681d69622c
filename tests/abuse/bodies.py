"""Requests with mutated bodies: valid ones of every route, in which values, keys, bytes or headers go wrong."""

import copy
import hashlib
import http.client
import json
import random
from collections import Counter

from server import EXPECTED_5XX, Failure, error_text

CHAT = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "Once"}]}]
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]

# (path, a request that is valid)
SEEDS = [
    ("/v1/completions", {"prompt": "Once", "max_tokens": 3}),
    ("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 2, "n": 2, "best_of": 2, "echo": True, "logprobs": 2}),
    ("/v1/completions", {"prompt": [[1, 2], [3]], "max_tokens": 2, "stream": True, "seed": 1, "top_k": 3}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 4, "use_beam_search": True, "n": 2, "temperature": 0}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 4, "min_tokens": 2, "stop": ["x"], "logit_bias": {"3": 1},
                         "stop_token_ids": [2], "bad_words": ["b"], "prompt_logprobs": 1, "priority": 1}),
    ("/v1/chat/completions", {"messages": CHAT, "max_tokens": 3, "stream": True,
                              "stream_options": {"include_usage": True}}),
    ("/v1/chat/completions", {"messages": [*CHAT, {"role": "assistant", "content": None, "tool_calls": [CALL]},
                                           {"role": "tool", "tool_call_id": "c", "content": "2"}],
                              "tools": TOOLS, "tool_choice": "auto", "max_tokens": 2, "logprobs": True,
                              "top_logprobs": 2, "chat_template_kwargs": {"a": 1}}),
    ("/v1/responses", {"input": "hi", "instructions": "s", "max_output_tokens": 3}),
    ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]},
                                 {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
                                 {"type": "function_call_output", "call_id": "1", "output": "2"}],
                       "stream": True, "max_output_tokens": 3}),
    ("/v1/messages", {"max_tokens": 3, "messages": [{"role": "user", "content": "a"}], "system": "s"}),
    ("/v1/messages", {"max_tokens": 3, "stream": True, "stop_sequences": ["x"], "messages": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "2"}]}],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": {"type": "auto"}}),
    ("/tokenize", {"content": "Once upon", "add_special": True, "with_pieces": True}),
    ("/detokenize", {"tokens": [1, 2, 3]}),
    ("/apply-template", {"messages": CHAT, "tools": TOOLS}),
    ("/api/generate", {"model": "stories", "prompt": "Once", "stream": False, "keep_alive": "5m",
                       "options": {"num_predict": 3, "num_ctx": 64, "seed": 1, "stop": ["x"], "top_k": 3}}),
    ("/api/chat", {"model": "stories", "messages": CHAT, "think": False, "options": {"num_predict": 3}}),
    ("/api/show", {"model": "stories"}),
    ("/api/pull", {"model": "a:b", "stream": False}),
    ("/api/create", {"model": "x", "from": "stories", "parameters": {"stop": ["a"]}, "messages": []}),
    ("/api/copy", {"source": "stories", "destination": "x"}),
    ("/api/delete", {"model": "x"}),
]


def nested(depth, inner="[", outer="]"):
    return inner * depth + outer * depth


# JSON texts that replace a value.
HOSTILE = [
    "null", "true", "false", "0", "-0.0", "-1", "-2", "1", "0.5", "1.0", "1e308", "1e-308", "1e999", "-1e999", "NaN",
    "Infinity", "-Infinity", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "18446744073709551615", "18446744073709549568", "18446744073709551616", "4294967295", "4294967296", "2147483648",
    "340282346638528859811704183484516925440", "1" + "0" * 400, '""', '"\\u0000"', '"\\ud800"', '"\\ud83d\\ude00"',
    '"\u202e\u0301\U0001d54c"', '"' + "a" * 5000 + '"', '"' + "\U0001f600" * 500 + '"', '"<|im_end|>"', '"</s>"', "[]", "{}",
    "[null]", '[""]', '["", "a"]', "[[]]", "[{}]", "[1, \"a\"]", '{"": null}', '{"type": "text"}', '{"type": "image_url"}', '"-1"', '"1e400h"',
    nested(64), nested(200), nested(64, '{"a":', "}").replace(":}", ":1}", 1), "[" + "1," * 3000 + "1]",
    '["' + '","'.join("abcdefgh" * 40) + '"]', "01", "+1", "1.", "'a'", '"\t"', '"\\x"',
]


def nodes(value, path=()):
    """Paths of all values in a value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from nodes(inner, (*path, key))


def parent(value, path):
    for key in path[:-1]:
        value = value[key]
    return value


class Mutator:
    def __init__(self, seed, document):
        self.random = random.Random(seed)
        schemas = document["components"]["schemas"]
        self.fields = sorted({name for schema in schemas.values() for part in [schema, *schema.get("allOf", [])]
                              for name in part.get("properties", {})})

    def mutated(self, seed):
        """A body: bytes."""
        value = copy.deepcopy(seed)
        marks = {}
        for _ in range(self.random.choice([1, 1, 2, 3])):
            self.change(value, marks)
        text = json.dumps(value, ensure_ascii=self.random.random() < 0.5)
        for mark, hostile in marks.items():
            text = text.replace(f'"{mark}"', hostile)
        return self.damaged(text.encode("utf-8", "surrogatepass"))

    def change(self, value, marks):
        paths = [path for path in nodes(value) if path]
        kind = self.random.randrange(4)
        if kind == 0 or not paths:
            mark = f"mark-{len(marks)}"
            marks[mark] = self.random.choice(HOSTILE)
            value[self.random.choice(self.fields)] = mark
        elif kind == 1:
            path = self.random.choice(paths)
            del parent(value, path)[path[-1]]
        else:
            path = self.random.choice(paths)
            mark = f"mark-{len(marks)}"
            marks[mark] = self.random.choice(HOSTILE)
            parent(value, path)[path[-1]] = mark

    def damaged(self, body):
        """The bytes, in one of four cases no longer what they were."""
        r = self.random
        kind = r.randrange(28)
        at = r.randrange(len(body) + 1)
        match kind:
            case 0:
                return body[:at]
            case 1:
                return body[:at] + bytes([r.randrange(256)]) + body[at:]
            case 2:
                return body[:at] + bytes(r.randrange(256) for _ in range(r.randrange(20))) + body[at + r.randrange(9):]
            case 3:
                return b'{"model": 1, "model": null, ' + body[1:]
            case 4:
                return body + r.choice([b"}", b"{}", b"\0", b"  \n", b",", b"\xff"])
            case 5:
                return r.choice([b"", b"\xef\xbb\xbf" + body, b"[" + body + b"]", body.decode("utf-8", "replace").encode("utf-16")])
            case 6:
                return b"[" * r.choice([64, 127, 128, 129, 10000]) + body
        return body

    def headers(self):
        kinds = ["application/json"] * 6 + ["text/plain", "", "multipart/form-data; boundary=x", "application/xml", "a/b;;;=",
                                            "application/json; charset=utf-16"]
        headers = {"content-type": self.random.choice(kinds)}
        if self.random.random() < 0.02:
            headers["content-encoding"] = self.random.choice(["gzip", "br", "x"])
        return headers


def check_answer(path, method, status, headers, body, document):
    """An answer that the document describes, with an error of the route's form."""
    responses = document["paths"][path][method.lower()]["responses"]
    if str(status) not in responses or status >= 500 and status not in EXPECTED_5XX:
        raise Failure(f"{method} {path}: {status} {body[:500]!r}")
    if status >= 400:
        error_text(path, body)
    if status == 503 and not headers.get("retry-after", "").isdigit():
        raise Failure(f"{path}: 503 without Retry-After")
    if b"this is a defect" in body or b"panicked" in body:
        raise Failure(f"{path}: {body[:500]!r}")


def check_lists(server, document):
    """The names that requests have created are listed without an error."""
    for path in ["/v1/models", "/api/tags", "/api/ps", "/props", "/slots", "/metrics"]:
        status, headers, body = server.request("GET", path)
        check_answer(path, "GET", status, headers, body, document)
        if status != 200:
            raise Failure(f"{path}: {status} {body[:500]!r}")


def fuzz(server, n, seed=1, seeds=None):
    """Sends `n` mutated requests; the number of answers by status."""
    document = server.document()
    mutator = Mutator(seed, document)
    counts = Counter()
    connection = http.client.HTTPConnection(server.host, server.port, timeout=120)
    for i in range(n):
        path, valid = mutator.random.choice(seeds or SEEDS)
        body, headers = mutator.mutated(valid), mutator.headers()
        method = "DELETE" if path == "/api/delete" else "POST"
        try:
            try:
                connection.request(method, path, body=body, headers=headers)
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException) as e:
                connection.close()
                server.check_alive()
                raise Failure(f"no answer: {e!r}") from e
            check_answer(path, method, answer.status, answer.headers, content, document)
        except Failure as e:
            raise Failure(f"request {i}: {method} {path} {headers} {body[:1500]!r}\n  {e}") from e
        counts[answer.status] += 1
        if i % 500 == 499:
            server.check_alive()
            check_lists(server, document)
    connection.close()
    return counts


STORE = [
    ("/api/show", {"model": "stories"}), ("/api/show", {"name": "a"}), ("/api/copy", {"source": "a", "destination": "b"}),
    ("/api/delete", {"model": "a"}), ("/api/delete", {"name": "a"}),
]


def blobs(server, n, seed=1):
    """Blobs under their own digest, another one, and what is none; the number of answers by status."""
    document = server.document()
    r = random.Random(seed)
    counts = Counter()
    for _ in range(n):
        body = r.randbytes(r.choice([0, 1, 1000, 100_000]))
        digest = hashlib.sha256(body).hexdigest()
        name = r.choice([digest, digest, digest[:-1], digest.upper(), "0" * 64, "..%2f..%2fx", "%00", "", digest + "/x"])
        path = "/api/blobs/" + r.choice(["sha256-", "sha256:", "sha256-", "md5-", ""]) + name
        for method in ["POST", "HEAD"]:
            status, headers, content = server.request(method, path, body if method == "POST" else None)
            if status not in (200, 201, 400, 404):
                raise Failure(f"{method} {path}: {status} {content[:300]!r}")
            if status >= 400 and method == "POST":
                error_text("/api/", content)
            if status < 300 and name.lower() != digest:
                raise Failure(f"{method} {path}: {status}, and {digest} is its digest")
            counts[status] += 1
    server.check_alive()
    check_lists(server, document)
    return counts
