"""The official `anthropic` client: messages, their events, tools, errors."""

import unittest

import anthropic

import server

CLIENT = anthropic.Anthropic(base_url=server.shared(), api_key="none", max_retries=0)
HELLO = {"model": "scripted", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]}
FIXED = "The answer to that is a fixed one."
TOOLS = [{"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]


def message(**more):
    return CLIENT.messages.create(**{**HELLO, **more})


class Messages(unittest.TestCase):
    def test_a_message_has_blocks_a_reason_and_usage(self):
        answer = message(system="You are brief.")
        self.assertEqual([(block.type, block.text) for block in answer.content], [("text", FIXED)])
        self.assertEqual((answer.role, answer.stop_reason, answer.usage.output_tokens), ("assistant", "end_turn", 4))
        self.assertGreater(answer.usage.input_tokens + answer.usage.cache_read_input_tokens, message().usage.output_tokens)

    def test_lengths_and_stops_have_their_reason(self):
        cut = message(max_tokens=2)
        self.assertEqual((cut.content[0].text, cut.stop_reason), ("The answer to that", "max_tokens"))
        stopped = message(stop_sequences=["no", " fixed"])
        self.assertEqual((stopped.content[0].text, stopped.stop_reason, stopped.stop_sequence),
                         ("The answer to that is a", "stop_sequence", " fixed"))

    def test_events_build_the_message(self):
        with CLIENT.messages.stream(**HELLO) as stream:
            events = [event.type for event in stream]
            final = stream.get_final_message()
        self.assertEqual(events[:2], ["message_start", "content_block_start"])
        self.assertEqual(events[-3:], ["content_block_stop", "message_delta", "message_stop"])
        self.assertEqual((final.content[0].text, final.stop_reason, final.usage.output_tokens), (FIXED, "end_turn", 4))
        with CLIENT.messages.stream(**HELLO) as stream:
            texts = list(stream.text_stream)
        self.assertGreater(len(texts), 1)
        self.assertEqual("".join(texts), FIXED)

    def test_tools_are_used_and_their_results_answered(self):
        first = message(tools=TOOLS)
        self.assertEqual([block.type for block in first.content], ["text", "tool_use", "tool_use"])
        self.assertEqual([(b.name, b.input) for b in first.content[1:]],
                         [("get_weather", {"city": "Paris"}), ("get_time", {"zone": "UTC"})])
        self.assertEqual(first.stop_reason, "tool_use")
        results = [{"type": "tool_result", "tool_use_id": b.id, "content": "18"} for b in first.content[1:]]
        history = [*HELLO["messages"], {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
        self.assertEqual(message(messages=history, tools=TOOLS).content[0].text, "It is 18 degrees in Paris.")
        self.assertEqual(message(tools=TOOLS, tool_choice={"type": "none"}).content[0].text, FIXED)
        with CLIENT.messages.stream(**HELLO, tools=TOOLS) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_message()
        self.assertEqual((kinds.count("content_block_start"), kinds.count("content_block_stop")), (3, 3))
        self.assertEqual([(b.name, b.input) for b in final.content[1:]], [(b.name, b.input) for b in first.content[1:]])

    def test_tokens_are_counted_before_they_are_sent(self):
        counted = CLIENT.messages.count_tokens(model="scripted", messages=HELLO["messages"]).input_tokens
        usage = message().usage
        self.assertEqual(counted, usage.input_tokens + usage.cache_read_input_tokens)
        more = {"tools": TOOLS, "system": "Be brief."}
        with_tools = CLIENT.messages.count_tokens(model="scripted", messages=HELLO["messages"], **more).input_tokens
        self.assertGreater(with_tools, counted + 10)
        long = [{"role": "user", "content": "a fox ran " * 400}]
        self.assertGreater(CLIENT.messages.count_tokens(model="scripted", messages=long).input_tokens, 2048)

    def test_thinking_is_a_block_of_its_own(self):
        thinking = {"type": "enabled", "budget_tokens": 1024}
        answer = message(max_tokens=2000, thinking=thinking)
        self.assertEqual([block.type for block in answer.content], ["thinking", "text"])
        self.assertEqual((answer.content[0].thinking.strip(), answer.content[1].text), ("Two and two.", "Four."))
        with CLIENT.messages.stream(**{**HELLO, "max_tokens": 2000}, thinking=thinking) as stream:
            final = stream.get_final_message()
        self.assertEqual([block.type for block in final.content], ["thinking", "text"])
        self.assertEqual(final.content[0].thinking, answer.content[0].thinking)


class Errors(unittest.TestCase):
    def refused(self, error, kind, call):
        with self.assertRaises(error) as caught:
            call()
        body = caught.exception.body
        self.assertEqual((body["type"], body["error"]["type"]), ("error", kind))
        return body["error"]["message"]

    def test_each_status_has_its_class_and_type(self):
        bad = anthropic.BadRequestError, "invalid_request_error"
        self.refused(anthropic.NotFoundError, "not_found_error", lambda: message(model="x"))
        self.refused(*bad, lambda: message(messages=[]))
        self.refused(*bad, lambda: message(extra_body={"temperature": -1}))
        self.assertIn("tool_choice", self.refused(*bad, lambda: message(tools=TOOLS, tool_choice={"type": "any"})))
        image = {"type": "image", "source": {"type": "url", "url": "http://localhost/a.png"}}
        self.assertIn("image", self.refused(*bad, lambda: message(messages=[{"role": "user", "content": [image]}])))
        long = [{"role": "user", "content": "a fox ran " * 400}]
        self.assertIn("context", self.refused(*bad, lambda: message(messages=long)))
        with server.serve("--max-body", "100") as url:
            small = CLIENT.with_options(base_url=url)
            large = {**HELLO, "messages": [{"role": "user", "content": "a" * 200}]}
            self.refused(anthropic.RequestTooLargeError, "request_too_large", lambda: small.messages.create(**large))

    def test_a_key_is_required_where_one_is_set(self):
        with server.serve("--api-key", "secret") as url:
            call = {**HELLO, "model": "stories", "max_tokens": 2}
            wrong = CLIENT.with_options(base_url=url, api_key="wrong")
            self.refused(anthropic.AuthenticationError, "authentication_error", lambda: wrong.messages.create(**call))
            right = CLIENT.with_options(base_url=url, api_key="secret")
            self.assertEqual(right.messages.create(**call).usage.output_tokens, 2)


if __name__ == "__main__":
    unittest.main()
