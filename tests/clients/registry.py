"""A registry of models on a port of this machine: manifests and blobs in memory, pulled and pushed."""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Registry(ThreadingHTTPServer):
    """`files` has bodies by path, `uploads` those that are not complete."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.uploads = {}, {}
        self.host = f"127.0.0.1:{self.server_port}"

    def put_model(self, repository, tag, gguf, system):
        """Puts a model there; returns the name to pull it by."""
        layers = [("application/vnd.ollama.image.model", gguf), ("application/vnd.ollama.image.system", system.encode())]
        config = b'{"model_format":"gguf"}'
        for data in [config, *(data for _, data in layers)]:
            self.files[f"/v2/{repository}/blobs/{digest(data)}"] = data
        describe = lambda kind, data: {"mediaType": kind, "digest": digest(data), "size": len(data)}
        manifest = {
            "schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "config": describe("application/vnd.docker.container.image.v1+json", config),
            "layers": [describe(*layer) for layer in layers],
        }
        self.files[f"/v2/{repository}/manifests/{tag}"] = json.dumps(manifest).encode()
        return f"http://{self.host}/{repository}:{tag}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_GET(self):
        data = self.server.files.get(self.path)
        if data is None:
            return self.answer(404)
        begin = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0]
        rest = data[int(begin):]
        if int(begin) == 0:
            return self.answer(200, rest)
        self.answer(206, rest, **{"Content-Range": f"bytes {begin}-{len(data) - 1}/{len(data)}"})

    do_HEAD = do_GET

    def do_POST(self):
        self.body()
        place = f"{self.path}{len(self.server.uploads)}"
        self.server.uploads[place] = b""
        self.answer(202, Location=place)

    def do_PATCH(self):
        self.server.uploads[self.path] += self.body()
        self.answer(202, Location=self.path)

    def do_PUT(self):
        url, body = urlsplit(self.path), self.body()
        if "/uploads/" not in url.path:
            self.server.files[url.path] = body
            return self.answer(201)
        data = self.server.uploads.pop(url.path) + body
        if parse_qs(url.query)["digest"] != [digest(data)]:
            return self.answer(400, b"another digest")
        self.server.files[url.path.split("uploads/")[0] + digest(data)] = data
        self.answer(201)

    def log_message(self, *_):
        pass


@contextmanager
def registry():
    """One that runs until the end of the block."""
    server = Registry()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
