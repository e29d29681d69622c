"""The official `openai` client: which exception each refusal is."""

import unittest

import openai

import server
from openai_calls import CLIENT, FIXED, HELLO, ONCE, chat, complete


class Errors(unittest.TestCase):
    def refused(self, error, call, status, param=None, code=None):
        with self.assertRaises(error) as caught:
            call()
        found = caught.exception
        self.assertEqual((found.status_code, found.body["param"], found.body["code"]), (status, param, code))
        return found.body["message"]

    def test_each_status_has_its_class(self):
        bad, unsupported = openai.BadRequestError, "unsupported_parameter"
        self.refused(openai.NotFoundError, lambda: chat(HELLO, model="x"), 404, "model", "model_not_found")
        self.refused(bad, lambda: complete(temperature=-1), 400, "temperature")
        self.refused(bad, lambda: chat(HELLO, top_logprobs=2), 400, "top_logprobs")
        self.refused(bad, lambda: complete(prompt=[]), 400, "prompt")
        self.refused(bad, lambda: complete(prompt=[1, 99999999]), 400, "prompt")
        self.refused(bad, lambda: chat(HELLO, messages=[]), 400, "messages")
        self.refused(bad, lambda: complete(logit_bias={"99999999": 1}), 400, "logit_bias")
        self.refused(bad, lambda: complete(suffix="b"), 400, "suffix", unsupported)
        schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}
        self.refused(bad, lambda: chat(HELLO, response_format=schema), 400, "response_format", unsupported)
        image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
        self.refused(bad, lambda: chat(HELLO, messages=image), 400, "messages[0].content", unsupported)
        long = self.refused(bad, lambda: complete(prompt="a fox ran " * 400), 400, None, "context_length_exceeded")
        self.assertIn("the context holds 384", long)
        self.refused(bad, lambda: CLIENT.embeddings.create(model="stories", input=[]), 400, "input")
        self.assertEqual(chat(HELLO).choices[0].message.content, FIXED, "the server goes on")

    def test_an_error_of_a_stream_comes_before_it(self):
        self.refused(openai.NotFoundError, lambda: chat(HELLO, model="x", stream=True), 404, "model", "model_not_found")
        self.refused(openai.BadRequestError, lambda: complete(top_p=2, stream=True), 400, "top_p")

    def test_an_error_within_a_stream_is_raised(self):
        with server.serve("-c", "4096", "--parallel", "16", "--request-timeout", "1") as url:
            client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
            long = {**ONCE, "max_tokens": 3900, "n": 16, "extra_body": {"ignore_eos": True}, "stream": True}
            with self.assertRaisesRegex(openai.APIError, "--request-timeout"):
                self.assertGreater(sum(1 for _ in client.completions.create(**long)), 0)

    def test_a_key_is_required_where_one_is_set(self):
        with server.serve("--api-key", "secret") as url:
            wrong = openai.OpenAI(base_url=url + "/v1", api_key="wrong", max_retries=0)
            self.refused(openai.AuthenticationError, lambda: wrong.models.list(), 401, None, "invalid_api_key")
            right = openai.OpenAI(base_url=url + "/v1", api_key="secret", max_retries=0)
            self.assertEqual(next(iter(right.models.list())).id, "stories")

    def test_a_full_queue_is_tried_again_by_the_client(self):
        with server.serve("-c", "4096", "--parallel", "1", "--max-queue", "0") as url:
            client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
            long = {**ONCE, "max_tokens": 3900, "extra_body": {"ignore_eos": True}, "stream": True}
            with client.completions.create(**long) as stream:
                next(iter(stream))
                with self.assertRaises(openai.InternalServerError) as caught:
                    client.completions.create(**ONCE, max_tokens=1)
                self.assertEqual(caught.exception.status_code, 503)
                self.assertEqual(caught.exception.response.headers["retry-after"], "1")
            patient = client.with_options(max_retries=20)
            self.assertEqual(patient.completions.create(**ONCE, max_tokens=1).usage.completion_tokens, 1)


if __name__ == "__main__":
    unittest.main()
