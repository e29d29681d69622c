"""What the tests of the `openai` client share: the client, requests, and the texts of streams."""

import json
from collections import defaultdict

import openai

import server

CLIENT = openai.OpenAI(base_url=server.shared() + "/v1", api_key="none", max_retries=0)
ONCE = {"model": "stories", "prompt": "Once upon a time", "temperature": 0}
DRAGON = {"model": "tales", "messages": [{"role": "user", "content": "a brave dragon"}], "temperature": 0}
HELLO = {"model": "scripted", "messages": [{"role": "user", "content": "hello"}]}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}
CALLS = [("get_weather", {"city": "Paris"}), ("get_time", {"zone": "UTC"})]
FIXED = "The answer to that is a fixed one."


def complete(**more):
    return CLIENT.completions.create(**{**ONCE, **more})


def chat(base, **more):
    return CLIENT.chat.completions.create(**{**base, **more})


def texts(stream):
    """The texts of a stream by the index of their choice."""
    by_index = defaultdict(str)
    for chunk in stream:
        for choice in chunk.choices:
            by_index[choice.index] += choice.text if hasattr(choice, "text") else choice.delta.content or ""
    return dict(by_index)


def named(calls):
    return [(call.function.name, json.loads(call.function.arguments)) for call in calls]
