"""Behaviours of /v1/completions, from the public tests of llama.cpp and vLLM: `docs/reference/api.md` has them."""

import concurrent.futures
import unittest

from server import post, refused

ONCE = {"model": "stories", "prompt": "Once upon a time", "temperature": 0, "max_tokens": 6}


def complete(**more):
    status, answer = post("/v1/completions", {**ONCE, **more})
    assert status == 200, answer
    return answer["choices"]


class Completions(unittest.TestCase):
    def test_temperature_0_repeats_whatever_runs_beside_it(self):
        expected = complete()[0]["text"]
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            runs = pool.map(lambda i: complete(prompt="The fox", seed=i)[0] if i % 2 else complete(seed=i)[0], range(12))
            self.assertEqual([run["text"] for run in list(runs)[::2]], [expected] * 6)

    def test_seeds_differ_at_temperature_1(self):
        texts = [complete(temperature=1.0, seed=seed, max_tokens=16)[0]["text"] for seed in range(4)]
        self.assertEqual(len(set(texts)), 4)

    def test_a_cached_prompt_has_the_text_of_one_that_is_not(self):
        prompt = "The cat and the dog went to the big house near the river one day, and then they saw a boat. " * 2
        runs = [post("/v1/completions", {**ONCE, "prompt": prompt, "cache_salt": "peers"})[1] for _ in range(2)]
        cached = [run["usage"]["prompt_tokens_details"]["cached_tokens"] for run in runs]
        self.assertEqual(cached[0], 0)
        self.assertGreater(cached[1], 0)
        self.assertEqual(runs[0]["choices"][0]["text"], runs[1]["choices"][0]["text"])

    def test_a_text_ends_at_the_end_of_the_context(self):
        answer = post("/v1/completions", {**ONCE, "max_tokens": -1, "ignore_eos": True})[1]
        # The last token is not computed with, so it needs no place in the context of 384.
        self.assertEqual((answer["choices"][0]["finish_reason"], answer["usage"]["total_tokens"]), ("length", 385))

    def test_a_text_without_a_limit_has_16_tokens(self):
        self.assertEqual(post("/v1/completions", {**ONCE, "max_tokens": None})[1]["usage"]["completion_tokens"], 16)

    def test_min_tokens_and_stop_token_ids(self):
        text = complete(max_tokens=1, echo=True)[0]["text"]
        first = post("/tokenize", {"model": "stories", "content": text, "add_special": True})[1]["tokens"][-1]
        self.assertEqual(complete(stop_token_ids=[first])[0]["finish_reason"], "stop")
        self.assertEqual(complete(stop_token_ids=[first], min_tokens=3)[0]["finish_reason"], "length")
        self.assertIn("stop_token_ids", refused("/v1/completions", {**ONCE, "stop_token_ids": [-1]}, "stop_token_ids"))

    def test_bad_words_are_not_generated(self):
        word = complete()[0]["text"].split()[1]
        self.assertNotIn(word, complete(bad_words=[word])[0]["text"].split())

    def test_equal_prompts_of_a_batch_have_equal_beams(self):
        beams = [choice["text"] for choice in complete(prompt=["Once", "Once"], n=2, use_beam_search=True)]
        self.assertEqual(beams[:2], beams[2:])
        self.assertNotEqual(beams[0], beams[1])

    def test_numbers_out_of_range_name_their_field(self):
        for field, value in {
            "temperature": -0.1, "top_p": 1.1, "min_p": -1, "top_k": "x", "frequency_penalty": "x", "logprobs": -1,
            "prompt_logprobs": -1, "seed": 2**64, "max_tokens": "many", "n": 0, "min_tokens": -1, "stop": 5,
            "logit_bias": {"no id": 1}, "best_of": 0,
        }.items():
            refused("/v1/completions", {**ONCE, field: value}, field)
        for bias in ({"no id": 1}, {"1": "x"}, {"99999999": 1}):
            self.assertIn("bias", refused("/v1/completions", {**ONCE, "logit_bias": bias}, "logit_bias"))

    def test_prompts_that_are_no_prompts_are_refused(self):
        for prompt in (None, [], [[]], [-1], [[-1]], ["a", 1], {"a": 1}, 5, [99999999]):
            refused("/v1/completions", {**ONCE, "prompt": prompt}, "prompt")

    def test_what_needs_a_grammar_or_an_encoder_is_refused(self):
        for field in ("suffix", "grammar", "json_schema", "guided_json", "structured_outputs", "prompt_embeds", "lora",
                      "truncate_prompt_tokens", "allowed_token_ids", "logits_processors"):
            refused("/v1/completions", {**ONCE, field: [{"a": 1}]}, field)

    def test_names_of_other_servers_are_refused_where_they_would_be_ignored(self):
        for field in ("n_predict", "n_probs", "return_tokens_as_token_ids"):
            refused("/v1/completions", {**ONCE, field: 1}, field)
            refused("/v1/chat/completions", {**ONCE, "messages": [{"role": "user", "content": "a"}], field: 1}, field)

    def test_an_empty_prompt_begins_a_text(self):
        self.assertTrue(complete(prompt="")[0]["text"])

    def test_more_than_100_logprobs_are_refused(self):
        self.assertGreaterEqual(len(complete(logprobs=100)[0]["logprobs"]["top_logprobs"][0]), 90)
        refused("/v1/completions", {**ONCE, "logprobs": 101}, "logprobs")


if __name__ == "__main__":
    unittest.main()
