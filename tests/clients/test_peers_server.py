"""Behaviours of the whole server, from the public tests of llama.cpp and vLLM: `docs/reference/api.md` has them."""

import unittest
import urllib.request

import server
from server import get, post

ONCE = {"model": "stories", "prompt": "Once upon a time", "max_tokens": 2}


class Server(unittest.TestCase):
    def test_bodies_that_are_no_objects_are_refused(self):
        for path in ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/tokenize"):
            for body in (b"{", b"", b"[]", b'"text"', b"42", b"null", b"\xff{}"):
                self.assertEqual(post(path, body)[0], 400, (path, body))

    def test_health_version_models_and_slots(self):
        self.assertEqual(get("/health"), (200, {"status": "ok"}))
        self.assertEqual(list(get("/api/version")[1]), ["version"])
        self.assertEqual(get("/v1/models")[1]["data"][0]["id"], "stories")
        self.assertEqual(post("/v1/completions", ONCE)[0], 200, "the model is loaded")
        slots = [slot for slot in get("/slots")[1] if slot["model"] == "stories"]
        self.assertEqual(([slot["id"] for slot in slots], {slot["n_ctx"] for slot in slots}), (list(range(8)), {384}))
        props = get("/props")[1]
        self.assertEqual((props["total_slots"], props["default_generation_settings"]["n_ctx"]), (8, 384))
        self.assertIn("vllm:prompt_tokens_total", get("/metrics")[1])

    def test_texts_of_tokens_come_back(self):
        content = "What is the capital of France ?"
        tokens = post("/tokenize", {"content": content})[1]["tokens"]
        self.assertEqual(post("/detokenize", {"tokens": tokens})[1]["content"].strip(), content)
        self.assertEqual(post("/tokenize", {"content": content, "add_special": True})[1]["tokens"], [1, *tokens])
        pieces = post("/tokenize", {"content": "a \u5abd \U0001f917", "with_pieces": True})[1]["tokens"]
        as_bytes = b"".join(bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode() for p in pieces)
        self.assertEqual(as_bytes.decode().strip(), "a \u5abd \U0001f917")

    def test_pages_need_no_key_and_models_do(self):
        with server.serve("--api-key", "secret") as url:
            self.assertEqual([get(path, url)[0] for path in ("/", "/health")], [200, 200])
            for path in ("/v1/models", "/metrics", "/api/tags"):
                self.assertEqual(get(path, url)[0], 401)
                for header in ({"authorization": "Bearer secret"}, {"x-api-key": "secret"}):
                    self.assertEqual(post(path, url=url, method="GET", headers=header)[0], 200)
            self.assertIsInstance(get("/api/tags", url)[1]["error"], str, "in the form of Ollama")

    def test_preflights_are_answered_for_the_origins_that_are_allowed(self):
        with server.serve("--cors", "http://a.example") as url:
            def allowed(origin):
                headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
                request = urllib.request.Request(url + "/v1/completions", headers=headers, method="OPTIONS")
                with urllib.request.urlopen(request) as answer:
                    return [answer.headers.get(f"access-control-allow-{name}") for name in ("origin", "headers")]
            self.assertEqual(allowed("http://a.example"), ["http://a.example", "*"])
            self.assertNotEqual(allowed("http://b.example")[0], "http://b.example")

    def test_a_prompt_that_is_too_long_has_its_length_in_the_message(self):
        for stream in (False, True):
            status, answer = post("/v1/completions", {**ONCE, "prompt": "a fox ran " * 400, "stream": stream})
            self.assertEqual((status, answer["error"]["code"]), (400, "context_length_exceeded"))
            self.assertRegex(answer["error"]["message"], r"the prompt has \d+ tokens and the context holds 384")

    def test_routes_of_other_models_answer_that_they_are_not_built(self):
        for path in ("/v1/audio/transcriptions", "/infill", "/completion", "/lora-adapters"):
            self.assertEqual((post(path, {})[0], post(path, {})[1]["error"]["code"]), (404, "not_found"), path)


if __name__ == "__main__":
    unittest.main()
