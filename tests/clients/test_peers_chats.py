"""Behaviours of chats, from the public tests of llama.cpp and vLLM: `docs/reference/api.md` has them."""

import json
import unittest

from server import post, refused

HELLO = {"model": "scripted", "messages": [{"role": "user", "content": "hello"}]}
FIXED = "The answer to that is a fixed one."


def rendered(*messages):
    """The prompt for messages."""
    return post("/apply-template", {"model": "scripted", "messages": messages})[1]["prompt"]


class Chats(unittest.TestCase):
    def test_messages_that_are_no_messages_are_refused(self):
        for messages in (None, "text", [], [123], [{}], [{"role": 123}], [{"role": "system", "content": 123}],
                         [{"content": "hello"}], [{"role": "system", "content": "a"}, {}]):
            status, answer = post("/v1/chat/completions", {**HELLO, "messages": messages})
            self.assertEqual(status, 400, messages)
            self.assertTrue(answer["error"]["param"].startswith("messages"), answer)

    def test_parts_of_a_custom_role_are_its_text(self):
        self.assertEqual(rendered({"role": "my-role", "content": [{"type": "text", "text": "a"}]}), "<|my-role|>a<|text|>")
        self.assertEqual(rendered({"role": "my-role", "content": "a"}), "<|my-role|>a<|text|>")

    def test_developer_is_system(self):
        self.assertEqual(rendered({"role": "developer", "content": "a"}), "<|system|>a<|text|>")

    def test_arguments_of_earlier_calls_are_objects_for_the_template(self):
        for arguments in ('{"a": 1}', {"a": 1}):
            call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
            assistant = {"role": "assistant", "content": None, "tool_calls": [call]}
            prompt = rendered(assistant, {"role": "tool", "tool_call_id": "1", "content": "2"})
            call = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
            self.assertEqual(prompt, f"<|assistant|>{call}<|tool|>2<|result|>")

    def test_a_call_that_is_cut_is_text(self):
        tools = [{"type": "function", "function": {"name": "get_weather"}}]
        choice = post("/v1/chat/completions", {**HELLO, "tools": tools, "max_tokens": 4})[1]["choices"][0]
        self.assertEqual(choice["finish_reason"], "length")
        self.assertNotIn("tool_calls", choice["message"])
        self.assertTrue(choice["message"]["content"].endswith('"arguments": {"city": "Par'), choice)

    def test_a_chat_with_prompt_logprobs_has_them_beside_the_choices(self):
        answer = post("/v1/chat/completions", {**HELLO, "prompt_logprobs": 1})[1]
        self.assertEqual(len(answer["prompt_logprobs"]), answer["usage"]["prompt_tokens"])
        refused("/v1/chat/completions", {**HELLO, "prompt_logprobs": 1, "stream": True}, "prompt_logprobs")

    def test_more_than_100_logprobs_are_refused(self):
        refused("/v1/chat/completions", {**HELLO, "logprobs": True, "top_logprobs": 101}, "top_logprobs")

    def test_what_would_change_a_chat_and_is_not_built_is_refused(self):
        for field in ("echo", "continue_final_message", "functions", "function_call", "audio", "documents", "chat_template"):
            refused("/v1/chat/completions", {**HELLO, field: True}, field)
        for kind in ("json_object", "json_schema", "sound"):
            refused("/v1/chat/completions", {**HELLO, "response_format": {"type": kind}}, "response_format")


class Anthropic(unittest.TestCase):
    def test_unsupported_blocks_and_missing_fields_are_refused(self):
        empty = {"max_tokens": 5, "messages": [{"role": "user"}]}
        for body in ({}, {"messages": HELLO["messages"]}, {"max_tokens": 5}, empty):
            status, answer = post("/v1/messages", {"model": "scripted", **body})
            self.assertEqual((status, answer["error"]["type"]), (400, "invalid_request_error"), body)

    def test_metadata_and_sampling_are_accepted(self):
        more = {"max_tokens": 50, "metadata": {"user_id": "u"}, "temperature": 0.5, "top_p": 0.9, "top_k": 40}
        self.assertEqual(post("/v1/messages", {**HELLO, **more})[1]["content"][0]["text"], FIXED)

    def test_blocks_of_a_stream_are_numbered(self):
        body = {**HELLO, "max_tokens": 50, "stream": True, "tools": [{"name": "get_weather", "input_schema": {}}]}
        events = [json.loads(line[6:]) for line in post("/v1/messages", body)[1].splitlines() if line.startswith("data: ")]
        numbers = lambda kind: [event["index"] for event in events if event["type"] == kind]
        self.assertEqual((numbers("content_block_start"), numbers("content_block_stop")), ([0, 1, 2], [0, 1, 2]))
        self.assertGreater(events[0]["message"]["usage"]["input_tokens"], 0)


class Responses(unittest.TestCase):
    def test_what_needs_a_memory_is_refused(self):
        for field in ("previous_response_id", "conversation", "background"):
            refused("/v1/responses", {"model": "scripted", "input": "a", field: "x"}, field)
        text = {"format": {"type": "json_object"}}
        refused("/v1/responses", {"model": "scripted", "input": "a", "text": text}, "text.format")

    def test_ids_begin_as_openais_do(self):
        answer = post("/v1/responses", {"model": "scripted", "input": "a"})[1]
        self.assertTrue(answer["id"].startswith("resp_"), answer)
        self.assertTrue(answer["output"][0]["id"].startswith("msg_"), answer)


if __name__ == "__main__":
    unittest.main()
