"""The official `ollama` client: chats, the models of a store, and a registry."""

import os
import tempfile
import unittest
from pathlib import Path

import ollama

import server
from registry import digest, registry

CLIENT = ollama.Client(host=server.shared())
HELLO = [{"role": "user", "content": "hello"}]
FIXED = "The answer to that is a fixed one."
GREEDY = {"temperature": 0, "num_predict": 8}


def weather(city: str) -> str:
    """Reports the weather.

    Args:
      city: where
    """
    return f"18 degrees in {city}"


class Answers(unittest.TestCase):
    def test_generate_streams_the_whole_text(self):
        call = {"model": "stories", "prompt": "Once upon a time", "raw": True, "options": GREEDY}
        whole = CLIENT.generate(**call)
        self.assertTrue(whole.response.startswith(", there was"), whole)
        self.assertEqual((whole.done_reason, whole.eval_count, whole.prompt_eval_count), ("length", 8, 5))
        self.assertGreaterEqual(whole.total_duration, whole.eval_duration)
        *parts, last = CLIENT.generate(**call, stream=True)
        self.assertEqual("".join(part.response for part in parts) + last.response, whole.response)
        self.assertEqual(([part.done for part in parts], last.done), ([False] * len(parts), True))
        self.assertEqual((last.done_reason, last.eval_count), ("length", 8))

    def test_chat_streams_messages(self):
        whole = CLIENT.chat("scripted", messages=HELLO)
        self.assertEqual((whole.message.role, whole.message.content, whole.done_reason), ("assistant", FIXED, "stop"))
        parts = list(CLIENT.chat("scripted", messages=HELLO, stream=True))
        self.assertGreater(len(parts), 2)
        self.assertEqual("".join(part.message.content for part in parts), FIXED)
        stopped = CLIENT.chat("scripted", messages=HELLO, options={"stop": [" fixed"]})
        self.assertEqual(stopped.message.content, "The answer to that is a")

    def test_a_seed_repeats_a_text(self):
        text = lambda seed: CLIENT.generate(
            "stories", "Once", raw=True, options={"seed": seed, "temperature": 1.5, "num_predict": 16}).response
        self.assertEqual(text(1), text(1))
        self.assertNotEqual(text(1), text(2))

    def test_functions_are_tools_and_their_results_are_answered(self):
        call = CLIENT.chat("scripted", messages=HELLO, tools=[weather])
        self.assertEqual([(c.function.name, dict(c.function.arguments)) for c in call.message.tool_calls],
                         [("get_weather", {"city": "Paris"}), ("get_time", {"zone": "UTC"})])
        streamed = [c.function.name for part in CLIENT.chat("scripted", messages=HELLO, tools=[weather], stream=True)
                    for c in part.message.tool_calls or []]
        self.assertEqual(streamed, ["get_weather", "get_time"])
        result = {"role": "tool", "tool_name": "get_weather", "content": weather("Paris")}
        answer = CLIENT.chat("scripted", messages=[*HELLO, call.message, result], tools=[weather])
        self.assertEqual(answer.message.content, "It is 18 degrees in Paris.")

    def test_thinking_is_apart(self):
        message = CLIENT.chat("scripted", messages=HELLO, think=True).message
        self.assertEqual((message.content, message.thinking.strip()), ("Four.", "Two and two."))
        self.assertEqual(CLIENT.chat("scripted", messages=HELLO, think=False).message.thinking, None)

    def test_an_empty_request_loads_and_unloads(self):
        with server.serve() as url:
            client = ollama.Client(host=url)
            loaded = lambda: [model.model for model in client.ps().models]
            self.assertEqual(client.generate("stories", keep_alive=0).done_reason, "unload")
            self.assertEqual(loaded(), [])
            self.assertEqual(client.chat("stories").done_reason, "load")
            self.assertEqual(loaded(), ["stories:latest"])

    def test_vectors_have_the_length_one_and_those_of_a_list_are_those_of_its_texts(self):
        both = CLIENT.embed("stories", ["a fox", "a dog"]).embeddings
        self.assertEqual(both[1], CLIENT.embed("stories", "a dog").embeddings[0])
        self.assertAlmostEqual(sum(x * x for x in both[0]), 1, places=4)
        self.assertEqual(len(CLIENT.embeddings("stories", "a fox").embedding), len(both[0]))

    def test_errors_have_a_status(self):
        def refused(status, call):
            with self.assertRaises(ollama.ResponseError) as caught:
                call()
            self.assertEqual(caught.exception.status_code, status, caught.exception)
            return caught.exception.error
        self.assertIn("`x` does not exist", refused(404, lambda: CLIENT.chat("x", messages=HELLO)))
        self.assertIn("grammars", refused(400, lambda: CLIENT.chat("scripted", messages=HELLO, format="json")))
        self.assertIn("num_ctx", refused(400, lambda: CLIENT.generate("stories", "a", options={"num_ctx": 99999})))
        refused(404, lambda: CLIENT.show("x"))
        refused(404, lambda: CLIENT.delete("x"))


class Store(unittest.TestCase):
    """Each test has a server over a store of its own."""

    def run_in_store(self, test):
        with tempfile.TemporaryDirectory() as models, server.serve(models=models) as url, registry() as remote:
            test(ollama.Client(host=url), remote)

    def test_a_model_is_pulled_copied_created_run_pushed_and_deleted(self):
        self.run_in_store(self.life_of_a_model)

    def life_of_a_model(self, client, remote):
        gguf = Path(os.environ["TESTS_SCRIPTED"]).read_bytes()
        name = remote.put_model("library/tiny", "a", gguf, "Be brief.")
        with self.assertRaises(ollama.ResponseError):
            client.pull(name)
        steps = list(client.pull(name, insecure=True, stream=True))
        self.assertEqual((steps[0].status, steps[-1].status), ("pulling manifest", "success"))
        totals = {step.digest: step for step in steps if step.digest}
        self.assertEqual((totals[digest(gguf)].completed, totals[digest(gguf)].total), (len(gguf), len(gguf)))
        self.assertEqual(client.pull(name, insecure=True).status, "success")

        name = name.removeprefix("http://")
        client.copy(name, "tiny")
        shown = client.show("tiny")
        self.assertEqual((shown.details.family, shown.details.quantization_level), ("llama", "F32"))
        self.assertIn("tools", shown.capabilities)
        self.assertEqual(shown.modelinfo["llama.embedding_length"], 320)
        self.assertEqual(client.chat("tiny", messages=HELLO).message.content, FIXED)
        self.assertIn("tiny:latest", [model.model for model in client.ps().models])

        made = client.create("short", from_="tiny", parameters={"num_predict": 2}, system="Two tokens.")
        self.assertEqual(made.status, "success")
        self.assertEqual(client.chat("short", messages=HELLO).message.content, "The answer to that")
        self.assertIn("num_predict", client.show("short").parameters)
        names = {model.model: model for model in client.list().models}
        self.assertLessEqual({name, "tiny:latest", "short:latest"}, set(names))
        self.assertEqual(names["tiny:latest"].size, sum(step.total for step in totals.values()))

        target = f"{remote.host}/me/short:v2"
        client.copy("short", target)
        steps = list(client.push(f"http://{target}", insecure=True, stream=True))
        self.assertEqual(steps[-1].status, "success")
        self.assertIn("/v2/me/short/manifests/v2", remote.files)
        self.assertEqual(remote.files[f"/v2/me/short/blobs/{digest(gguf)}"], gguf)

        client.delete("tiny")
        self.assertNotIn("tiny:latest", [model.model for model in client.list().models])
        with self.assertRaises(ollama.ResponseError) as caught:
            client.chat("tiny", messages=HELLO)
        self.assertEqual(caught.exception.status_code, 404)
        self.assertEqual(client.chat("short", messages=HELLO).message.content, "The answer to that")

    def test_a_model_is_created_from_an_uploaded_file(self):
        self.run_in_store(self.upload)

    def upload(self, client, _):
        blob = client.create_blob(os.environ["TESTS_SCRIPTED"])
        steps = list(client.create("mine", files={"model.gguf": blob}, stream=True))
        self.assertEqual(steps[-1].status, "success")
        self.assertEqual(client.chat("mine", messages=HELLO).message.content, FIXED)


if __name__ == "__main__":
    unittest.main()
