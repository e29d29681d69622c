"""The routes of `llmrt serve` in this process."""

import asyncio
import gc
import json
import os

import pytest
from conftest import ROOT, until_idle

import llmrt
from llmrt import SamplingParams, Server, Tokenizer

# Of the story model, which the command has beside it.
TEMPLATE = ROOT / "cli/assets/stories.jinja"


@pytest.fixture(scope="module")
def server():
    with Server("--ctx", "512", "--parallel", "4") as server:
        yield server


def post(server, path, **body):
    async def call():
        async with await server.request("POST", path, body=json.dumps(body).encode()) as reply:
            return reply.status, await reply.read()

    return asyncio.run(call())


def events(body):
    lines = [line[6:] for line in body.decode().split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_a_route_gives_the_text_of_the_package(server, llm):
    expected = llm.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=12))[0].outputs[0].text
    request = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
    status, body = post(server, "/v1/completions", **request)
    assert (status, json.loads(body)["choices"][0]["text"]) == (200, expected)
    status, body = post(server, "/v1/completions", stream=True, **request)
    assert "".join(event["choices"][0]["text"] for event in events(body)) == expected


def test_errors_are_answers(server):
    status, body = post(server, "/v1/completions", prompt=5)
    assert (status, json.loads(body)["error"]["param"]) == (400, "prompt")
    assert post(server, "/nowhere")[0] == 404
    for method, path in [("GET", "no slash"), ("NO METHOD", "/")]:
        with pytest.raises(llmrt.Error, match="a method, a path"):
            asyncio.run(server.request(method, path))


def test_a_reply_comes_in_parts_and_one_that_is_left_ends_its_request(server):
    body = json.dumps({"prompt": "Once", "max_tokens": 400, "ignore_eos": True, "stream": True}).encode()

    async def leave():
        async with await server.request("POST", "/v1/completions", body=body) as reply:
            assert dict(reply.headers)[b"content-type"] == b"text/event-stream"
            async for chunk in reply:
                assert chunk.startswith(b"data: ")
                break
        await until_idle(server)
        # Dropped, while it is waited for, and within a time.
        reply = await server.request("POST", "/v1/completions", body=body)
        del reply
        gc.collect()
        await until_idle(server)
        with pytest.raises(TimeoutError):
            await server.request("POST", "/v1/completions", body=body.replace(b'"stream"', b'"x"'), timeout=0.05)
        await until_idle(server)

    asyncio.run(leave())


def test_requests_of_one_loop_and_of_two_share_the_server(server):
    async def several():
        async def one():
            body = json.dumps({"prompt": "The cat", "max_tokens": 8, "temperature": 0}).encode()
            async with await server.request("POST", "/v1/completions", body=body) as reply:
                return (await reply.json())["choices"][0]["text"]

        return set(await asyncio.gather(*[one() for _ in range(12)]))

    assert len(asyncio.run(several()) | asyncio.run(several())) == 1


def asgi(server, body, scope, leave_after=None):
    """What an ASGI server gets; it leaves after so many messages."""

    async def call():
        sent, left = [], asyncio.Event()
        received = [{"type": "http.request", "body": body}]

        async def receive():
            if received:
                return received.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)
            if len(sent) == leave_after:
                left.set()

        await asyncio.wait_for(server(scope, receive, send), 60)
        return sent

    return asyncio.run(call())


def test_it_is_an_asgi_application(server):
    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}
    request = {"prompt": "Once", "max_tokens": 4, "temperature": 0, "stream": True}
    start, *parts = asgi(server, json.dumps(request).encode(), {**scope, "path": "/v1/completions"})
    assert (start["status"], dict(start["headers"])[b"content-type"]) == (200, b"text/event-stream")
    assert len(parts) > 4 and not parts[-1].get("more_body", False)
    query = {**scope, "method": "GET", "path": "/props", "query_string": b"model=none"}
    assert asgi(server, b"", query)[0]["status"] == 404
    endless = {**request, "max_tokens": 400, "ignore_eos": True}
    n_sent = len(asgi(server, json.dumps(endless).encode(), {**scope, "path": "/v1/completions"}, leave_after=3))
    assert n_sent < 100
    asyncio.run(until_idle(server))
    with pytest.raises(llmrt.Error, match="expected http"):
        asgi(server, b"", {"type": "websocket"})


def test_block_hashes_of_a_prompt_are_those_of_the_cache():
    tokenizer = Tokenizer.from_file()
    text = "Once upon a time, there was a little dog who liked to run in the park with a red ball. " * 2
    messages = [{"role": "user", "content": "a brave dragon " * 12}]
    with Server("--ctx", "512") as server:
        assert server.block_hashes() == []
        post(server, "/v1/completions", prompt=text, max_tokens=1)
        post(server, "/v1/completions", prompt=text, max_tokens=1, cache_salt="s")
        post(server, "/v1/chat/completions", messages=messages, max_tokens=1)
        cached = set(server.block_hashes())
        size = server.stats()["block_size"]
        ids = tokenizer.encode(text)
        chat = tokenizer.apply_chat_template(messages, TEMPLATE, add_generation_prompt=True)
        for prompt, salt in [(ids, ""), (ids, "s"), (chat, "")]:
            hashes = tokenizer.block_hashes(prompt, salt, size)
            assert len(hashes) == len(prompt) // size >= 2
            assert cached.issuperset(hashes)
        # And the ends of the three prompts, which are no full blocks.
        assert len(cached) <= 2 * (len(ids) // size) + len(chat) // size + 3
    assert Tokenizer.from_file(os.environ.get("STORIES")).vocab_size == 1024


def test_what_cannot_start_is_an_exception():
    for words, error in [
        (["no-such-model.gguf"], llmrt.ModelError),
        (["--parallel", "0"], llmrt.RequestError),
        (["--no-such-flag"], llmrt.RequestError),
        (["--backend", "none-such"], llmrt.Error),
    ]:
        with pytest.raises(error) as raised:
            Server(*words)
        assert raised.value.cause
    with pytest.raises(TypeError, match="word 1"):
        Server("--parallel", 4)


def test_a_closed_server_ends_its_requests():
    server = Server("--ctx", "512")
    body = json.dumps({"prompt": "Once", "max_tokens": 400, "ignore_eos": True}).encode()

    async def close():
        request = asyncio.ensure_future(server.request("POST", "/v1/completions", body=body))
        await asyncio.sleep(0.05)
        await asyncio.get_running_loop().run_in_executor(None, server.close)
        with pytest.raises(llmrt.ClosedError):
            await asyncio.wait_for(request, 10)
        with pytest.raises(llmrt.ClosedError):
            await server.request("GET", "/health")

    asyncio.run(close())
    server.close()
    assert not server.is_open
    with pytest.raises(llmrt.ClosedError):
        server.stats()
