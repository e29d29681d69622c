"""The official `openai` client: models and completions."""

import asyncio
import unittest

import openai

import server
from openai_calls import CLIENT, ONCE, complete, texts


class Models(unittest.TestCase):
    def test_models_are_listed_and_found(self):
        names = [model.id for model in CLIENT.models.list()]
        self.assertLessEqual({"stories", "scripted"}, set(names))
        self.assertEqual(CLIENT.models.retrieve("scripted").id, "scripted")
        with self.assertRaisesRegex(openai.NotFoundError, "`x` does not exist"):
            CLIENT.models.retrieve("x")


class Embeddings(unittest.TestCase):
    def test_vectors_are_in_the_order_of_their_texts_in_numbers_or_in_base64(self):
        texts = ["a fox", "a dog ran"]
        made = CLIENT.embeddings.create(model="stories", input=texts)  # In base64 by default.
        plain = CLIENT.embeddings.create(model="stories", input=texts, encoding_format="float")
        self.assertEqual([row.index for row in made.data], [0, 1])
        for a, b in zip(made.data, plain.data):
            self.assertEqual(len(a.embedding), len(b.embedding))
            self.assertLess(max(abs(x - y) for x, y in zip(a.embedding, b.embedding)), 1e-6)
            self.assertAlmostEqual(sum(x * x for x in a.embedding), 1, places=4)
        self.assertGreater(made.usage.prompt_tokens, 2)


class Completions(unittest.TestCase):
    def test_a_stream_has_the_text_of_the_whole_answer(self):
        whole = complete(max_tokens=12)
        self.assertTrue(whole.choices[0].text.startswith(", there was"), whole)
        self.assertEqual(whole.choices[0].finish_reason, "length")
        self.assertEqual((whole.usage.prompt_tokens, whole.usage.completion_tokens), (5, 12))
        self.assertEqual(whole.usage.total_tokens, 17)
        chunks = list(complete(max_tokens=12, stream=True))
        self.assertEqual(texts(chunks), {0: whole.choices[0].text})
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason], ["length"])
        self.assertEqual(chunks[-1].choices[0].finish_reason, "length")
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)

    def test_usage_comes_last_and_only_if_it_is_requested(self):
        for options in ({}, {"include_usage": False}):
            for chunk in complete(max_tokens=3, stream=True, stream_options=options):
                self.assertIsNone(chunk.usage)
        *chunks, last = complete(max_tokens=3, stream=True, stream_options={"include_usage": True})
        self.assertEqual([chunk.usage for chunk in chunks], [None] * len(chunks))
        self.assertEqual((last.choices, last.usage.completion_tokens, last.usage.total_tokens), ([], 3, 8))

    def test_several_prompts_have_choices_in_their_order(self):
        prompts = ["Once upon a time", "The fox", "Once upon a time"]
        choices = complete(prompt=prompts, max_tokens=5).choices
        self.assertEqual([choice.index for choice in choices], [0, 1, 2])
        self.assertEqual(choices[0].text, choices[2].text)
        self.assertNotEqual(choices[0].text, choices[1].text)
        streamed = texts(complete(prompt=prompts, max_tokens=5, stream=True))
        self.assertEqual(streamed, {choice.index: choice.text for choice in choices})

    def test_token_ids_are_prompts(self):
        ids = server.post("/tokenize", {"content": "Once upon a time", "add_special": True})[1]["tokens"]
        text = complete(max_tokens=5).choices[0].text
        self.assertEqual(complete(prompt=ids, max_tokens=5).choices[0].text, text)
        self.assertEqual([c.text for c in complete(prompt=[ids, ids], max_tokens=5).choices], [text] * 2)

    def test_a_seed_repeats_all_texts_of_n_and_they_differ(self):
        sampled = {"n": 3, "max_tokens": 16, "temperature": 1.0}
        first = [choice.text for choice in complete(**sampled, seed=42).choices]
        self.assertEqual(len(set(first)), 3)
        self.assertEqual([choice.text for choice in complete(**sampled, seed=42).choices], first)
        self.assertEqual(texts(complete(**sampled, seed=42, stream=True)), dict(enumerate(first)))
        self.assertNotEqual([choice.text for choice in complete(**sampled, seed=43).choices], first)

    def test_best_of_is_at_least_n(self):
        self.assertEqual(len(complete(n=2, best_of=3, max_tokens=4, temperature=1.0).choices), 2)
        with self.assertRaises(openai.BadRequestError):
            complete(n=3, best_of=2, max_tokens=4)

    def test_stops_are_not_part_of_the_text(self):
        text = complete(max_tokens=12).choices[0].text
        first, later = text.split()[2], text.split()[4]
        for stop in (first, [later, first]):
            stopped = complete(max_tokens=12, stop=stop).choices[0]
            self.assertEqual((stopped.text, stopped.finish_reason), (text.split(first)[0], "stop"))
            self.assertEqual(texts(complete(max_tokens=12, stop=stop, stream=True)), {0: stopped.text})

    def test_logprobs_have_as_many_tokens_as_are_requested(self):
        self.assertIsNone(complete(max_tokens=3).choices[0].logprobs)
        for n, bounds in ((0, (1, 1)), (1, (1, 1)), (5, (5, 6))):
            choice = complete(max_tokens=4, logprobs=n).choices[0]
            logprobs = choice.logprobs
            self.assertEqual("".join(logprobs.tokens), choice.text)
            self.assertEqual([len(logprobs.token_logprobs), len(logprobs.text_offset)], [4, 4])
            for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs):
                self.assertTrue(bounds[0] <= len(top) <= bounds[1], top)
                self.assertEqual(max(top, key=top.get), token, "temperature 0 takes the likeliest")
                self.assertAlmostEqual(top[token], logprob)
                self.assertLessEqual(logprob, 0)
        offsets = [chunk.choices[0].logprobs.text_offset for chunk in complete(max_tokens=4, logprobs=1, stream=True)
                   if chunk.choices[0].logprobs]
        self.assertEqual([offset for offsets in offsets for offset in offsets],
                         complete(max_tokens=4, logprobs=1).choices[0].logprobs.text_offset)

    def test_echo_repeats_the_prompt_with_its_logprobs(self):
        choice = complete(max_tokens=3, echo=True, logprobs=1).choices[0]
        self.assertTrue(choice.text.startswith("Once upon a time"))
        self.assertEqual(len(choice.logprobs.tokens), 8)
        self.assertEqual((choice.logprobs.token_logprobs[0], choice.logprobs.top_logprobs[0]), (None, None))
        for top in choice.logprobs.top_logprobs[1:]:
            self.assertTrue(1 <= len(top) <= 2, top)
        only = complete(max_tokens=0, echo=True).choices[0]
        self.assertEqual(only.text, "Once upon a time")

    def test_a_bias_of_minus_100_forbids_a_token(self):
        text = complete(max_tokens=1).choices[0].text
        first = server.post("/tokenize", {"content": "Once upon a time" + text, "add_special": True})[1]["tokens"][-1]
        self.assertNotEqual(complete(max_tokens=1, logit_bias={str(first): -100}).choices[0].text, text)

    def test_extras_of_vllm(self):
        choice = complete(max_tokens=1, extra_body={"prompt_logprobs": 1}).choices[0]
        places = choice.prompt_logprobs
        self.assertEqual((len(places), places[0]), (5, None))
        self.assertTrue(all(1 <= len(place) <= 2 for place in places[1:]), places)
        beams = complete(n=2, max_tokens=4, extra_body={"use_beam_search": True}).choices
        self.assertEqual(len({beam.text for beam in beams}), 2)
        text = complete(model="scripted", prompt="x", max_tokens=3, extra_body={"ignore_eos": True})
        self.assertEqual((text.usage.completion_tokens, text.choices[0].finish_reason), (3, "length"))
        ended = complete(model="scripted", prompt="x", max_tokens=3)
        self.assertEqual((ended.choices[0].text, ended.choices[0].finish_reason), ("", "stop"))

    def test_many_clients_at_a_time_get_what_one_gets(self):
        prompts = ["Once", "The fox", "A girl", "One day"] * 5
        alone = {prompt: complete(prompt=prompt, max_tokens=10).choices[0].text for prompt in set(prompts)}

        async def run():
            async with openai.AsyncOpenAI(base_url=server.shared() + "/v1", api_key="none", max_retries=0) as client:
                calls = [client.completions.create(**{**ONCE, "prompt": p, "max_tokens": 10}) for p in prompts]
                return [answer.choices[0].text for answer in await asyncio.gather(*calls)]

        self.assertEqual(asyncio.run(run()), [alone[prompt] for prompt in prompts])


if __name__ == "__main__":
    unittest.main()
