#!/usr/bin/env python3
"""A stand-in for llama.cpp's server that renders chat templates with Jinja2, set up as `apply_chat_template` of transformers does:
`cargo ci templates ci/src/peer/jinja2_server.py TREE` compares with that. Needs Python's jinja2.
"""

import datetime
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


def raise_exception(message):
    raise TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def after(flag):
    return sys.argv[sys.argv.index(flag) + 1]


environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
with open(after("--chat-template-file"), encoding="utf-8") as file:
    TEMPLATE = environment.from_string(file.read())


def prompt(body):
    for message in body["messages"]:
        for call in message.get("tool_calls") or []:
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return TEMPLATE.render(
        messages=body["messages"],
        tools=body.get("tools"),
        documents=None,
        add_generation_prompt=body.get("add_generation_prompt", True),
        bos_token="<s>",
        eos_token="</s>",
        **body.get("chat_template_kwargs", {}),
    )


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, value):
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.answer(200, {"status": "ok"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        try:
            self.answer(200, {"prompt": prompt(body)})
        except Exception as e:  # whatever a template does is its refusal
            self.answer(500, {"error": str(e)})


ThreadingHTTPServer(("127.0.0.1", int(after("--port"))), Handler).serve_forever()
