"""Errors of a cluster in the forms of the routes."""

from __future__ import annotations

import json


def error_body(message: str, code: str) -> bytes:
    """An answer in OpenAI's form."""
    error = {"message": message, "type": "server_error", "param": None, "code": code}
    return json.dumps({"error": error}).encode()


def error_end(path: str, message: str, code: str) -> bytes:
    """What ends a stream that cannot go on, in the form of its route."""
    if path.startswith("/api/"):
        return json.dumps({"error": message}).encode() + b"\n"
    if path.startswith("/v1/messages"):
        error = {"type": "error", "error": {"type": "api_error", "message": message}}
        return b"event: error\ndata: " + json.dumps(error).encode() + b"\n\n"
    if path.startswith("/v1/responses"):
        error = {"type": "error", "code": code, "message": message, "param": None}
        return b"event: error\ndata: " + json.dumps(error).encode() + b"\n\n"
    return b"data: " + error_body(message, code) + b"\n\ndata: [DONE]\n\n"
