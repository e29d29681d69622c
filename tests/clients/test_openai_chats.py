"""The official `openai` client: chats, tools, responses."""

import json
import unittest

import openai

from openai_calls import CALLS, CLIENT, DRAGON, FIXED, HELLO, PARAMETERS, WEATHER, chat, named, texts


class Chats(unittest.TestCase):
    def test_a_stream_has_the_role_first_and_the_reason_last(self):
        whole = chat(DRAGON, max_tokens=12).choices[0]
        self.assertRegex(whole.message.content, r"^\w+\. ")
        chunks = list(chat(DRAGON, max_tokens=12, stream=True))
        self.assertEqual([chunk.choices[0].delta.role for chunk in chunks], ["assistant"] + [None] * (len(chunks) - 1))
        self.assertEqual(texts(chunks), {0: whole.message.content})
        self.assertEqual([c.choices[0].finish_reason for c in chunks], [None] * (len(chunks) - 1) + ["length"])

    def test_an_answer_that_ends_has_stop(self):
        answer = chat(HELLO)
        self.assertEqual((answer.choices[0].message.content, answer.choices[0].finish_reason), (FIXED, "stop"))
        self.assertEqual(answer.usage.completion_tokens, 4)
        self.assertEqual(chat(HELLO, max_completion_tokens=2).choices[0].message.content, "The answer to that")
        self.assertEqual(chat(HELLO, stop=[" fixed"]).choices[0].message.content, "The answer to that is a")

    def test_logprobs_spell_the_content(self):
        for n in (0, 5):
            choice = chat(DRAGON, max_tokens=5, logprobs=True, top_logprobs=n).choices[0]
            entries = choice.logprobs.content
            self.assertEqual([len(entry.top_logprobs) for entry in entries], [n] * 5)
            spelled = bytes(byte for entry in entries for byte in entry.bytes).decode()
            self.assertEqual(choice.message.content, spelled.lstrip(" "), "a text begins without a space")
            streamed = [entry for chunk in chat(DRAGON, max_tokens=5, logprobs=True, top_logprobs=n, stream=True)
                        if chunk.choices[0].logprobs for entry in chunk.choices[0].logprobs.content]
            self.assertEqual([e.token for e in streamed], [e.token for e in entries])
        self.assertIsNone(chat(DRAGON, max_tokens=2, logprobs=False).choices[0].logprobs)

    def test_n_choices_stream_side_by_side(self):
        sampled = {"n": 3, "temperature": 1.0, "seed": 7, "max_tokens": 16}
        whole = [choice.message.content for choice in chat(DRAGON, **sampled).choices]
        self.assertGreater(len(set(whole)), 1)
        self.assertEqual(texts(chat(DRAGON, **sampled, stream=True)), dict(enumerate(whole)))

    def test_parts_of_text_and_unknown_fields_are_read(self):
        parts = [{"type": "text", "text": "a brave dragon"}]
        message = {"role": "user", "content": parts, "extra_field": "0"}
        expected = chat(DRAGON, max_tokens=8).choices[0].message.content
        self.assertEqual(chat(DRAGON, messages=[message], max_tokens=8).choices[0].message.content, expected)
        self.assertEqual(chat(DRAGON, max_tokens=8, user="u", metadata={"a": "b"}).choices[0].message.content, expected)
        self.assertEqual(chat(DRAGON, max_tokens=8, response_format={"type": "text"}).choices[0].message.content, expected)

    def test_reasoning_is_apart_from_the_content(self):
        think = {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}}
        message = chat(HELLO, **think).choices[0].message
        self.assertEqual((message.content, message.reasoning_content.strip()), ("Four.", "Two and two."))
        deltas = [chunk.choices[0].delta for chunk in chat(HELLO, **think, stream=True)]
        self.assertEqual("".join(delta.content or "" for delta in deltas), "Four.")
        reasoning = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
        self.assertEqual(reasoning, message.reasoning_content)


class Tools(unittest.TestCase):
    def test_calls_are_returned_and_their_results_answered(self):
        choice = chat(HELLO, tools=[WEATHER]).choices[0]
        self.assertEqual((choice.finish_reason, choice.message.content), ("tool_calls", "I look it up.\n"))
        self.assertEqual(named(choice.message.tool_calls), CALLS)
        self.assertEqual(len({call.id for call in choice.message.tool_calls}), 2)
        results = [{"role": "tool", "tool_call_id": call.id, "content": "18"} for call in choice.message.tool_calls]
        messages = [*HELLO["messages"], choice.message, *results]
        answer = chat(HELLO, messages=messages, tools=[WEATHER]).choices[0]
        self.assertEqual((answer.message.content, answer.finish_reason), ("It is 18 degrees in Paris.", "stop"))

    def test_streamed_calls_accumulate_to_the_same(self):
        with CLIENT.chat.completions.stream(**HELLO, tools=[WEATHER]) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_completion().choices[0]
        self.assertEqual(kinds.count("tool_calls.function.arguments.done"), 2)
        self.assertEqual(named(final.message.tool_calls), CALLS)
        self.assertEqual((final.message.content, final.finish_reason), ("I look it up.\n", "tool_calls"))

    def test_no_calls_without_tools_or_with_none(self):
        for more in ({}, {"tools": [WEATHER], "tool_choice": "none"}):
            message = chat(HELLO, **more).choices[0].message
            self.assertEqual((message.content, message.tool_calls), (FIXED, None))
        for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
            with self.assertRaisesRegex(openai.BadRequestError, "tool_choice"):
                chat(HELLO, tools=[WEATHER], tool_choice=choice)


class Responses(unittest.TestCase):
    def test_text_whole_and_streamed(self):
        whole = CLIENT.responses.create(model="scripted", input="hello")
        self.assertEqual((whole.output_text, whole.status, whole.usage.output_tokens), (FIXED, "completed", 4))
        with CLIENT.responses.stream(model="scripted", input="hello") as stream:
            text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            self.assertEqual((text, stream.get_final_response().output_text), (FIXED, FIXED))
        cut = CLIENT.responses.create(model="scripted", input="hello", max_output_tokens=2)
        self.assertEqual((cut.status, cut.incomplete_details.reason), ("incomplete", "max_output_tokens"))

    def test_calls_and_their_results(self):
        tools = [{"type": "function", "name": "get_weather", "parameters": PARAMETERS}]
        first = CLIENT.responses.create(model="scripted", input="hello", tools=tools)
        calls = [item for item in first.output if item.type == "function_call"]
        self.assertEqual([(call.name, json.loads(call.arguments)) for call in calls], CALLS)
        results = [{"type": "function_call_output", "call_id": call.call_id, "output": "18"} for call in calls]
        history = [{"role": "user", "content": "hello"}, *(call.to_dict() for call in calls), *results]
        answer = CLIENT.responses.create(model="scripted", input=history, tools=tools)
        self.assertEqual(answer.output_text, "It is 18 degrees in Paris.")


if __name__ == "__main__":
    unittest.main()
