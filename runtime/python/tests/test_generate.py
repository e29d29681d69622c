"""Lists of prompts."""

import threading

import numpy as np
import pytest

from llmrt import LLM, BeamSearchParams, SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=12)


def texts(outputs):
    return [output.outputs[0].text for output in outputs]


def test_outputs_have_the_order_of_the_prompts(llm):
    prompts = ["Once upon a time", "The cat", "A boy named Tim"]
    outputs = llm.generate(prompts, GREEDY)
    assert [output.prompt for output in outputs] == prompts
    assert all(output.finished and len(output.outputs[0].token_ids) == 12 for output in outputs)
    assert texts(outputs) == [texts(llm.generate(prompt, GREEDY))[0] for prompt in prompts]
    assert len({output.request_id for output in outputs}) == 3


def test_prompts_have_four_forms(llm):
    ids = llm.get_tokenizer().encode("Once upon a time")
    expected = texts(llm.generate("Once upon a time", GREEDY))
    for prompts in [ids, [ids], {"prompt_token_ids": ids}, [{"prompt": "Once upon a time"}]]:
        [output] = llm.generate(prompts, GREEDY)
        assert output.prompt_token_ids == ids
        assert texts([output]) == expected
    assert llm.generate([], GREEDY) == []


def test_parameters_are_for_all_prompts_or_one_each(llm):
    short, long = (SamplingParams(temperature=0, max_tokens=n) for n in (2, 5))
    outputs = llm.generate(["Once", "Once"], [short, long])
    assert [len(output.outputs[0].token_ids) for output in outputs] == [2, 5]
    with pytest.raises(ValueError, match="2 items for 1 prompts"):
        llm.generate(["Once"], [short, long])


def test_defaults_are_those_of_vllm(llm):
    [output] = llm.generate("Once upon a time")
    assert len(output.outputs[0].token_ids) == 16
    assert output.outputs[0].finish_reason == "length"
    assert output.outputs[0].cumulative_logprob is None
    assert output.outputs[0].logprobs is None


def test_several_texts_have_seeds_of_their_own(llm):
    params = SamplingParams(n=3, seed=5, max_tokens=12)
    [output] = llm.generate("Once upon a time", params)
    assert [text.index for text in output.outputs] == [0, 1, 2]
    assert len({text.text for text in output.outputs}) > 1
    [again] = llm.generate("Once upon a time", params)
    assert again.outputs == output.outputs


def test_without_a_seed_texts_differ_and_a_model_repeats_them():
    def three():
        with LLM(seed=7) as llm:
            return texts(llm.generate(["Once upon a time"] * 3, SamplingParams(max_tokens=12)))

    assert len(set(three())) > 1
    assert three() == three()


def test_a_stop_string_ends_a_text_and_is_no_part_of_it(llm):
    whole = texts(llm.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=40)))[0]
    word = whole.split()[4]
    params = SamplingParams(temperature=0, max_tokens=40, stop=[word])
    text = llm.generate("Once upon a time", params)[0].outputs[0]
    assert (text.finish_reason, text.stop_reason) == ("stop", word)
    assert text.text == whole[: whole.index(word)]


def test_a_stop_token_ends_a_text(llm):
    ids = llm.generate("Once upon a time", GREEDY)[0].outputs[0].token_ids
    at = next(i for i, token in enumerate(ids) if i > 2 and token not in ids[:i])
    params = SamplingParams(temperature=0, max_tokens=12, stop_token_ids=[ids[at]])
    text = llm.generate("Once upon a time", params)[0].outputs[0]
    assert (text.finish_reason, text.stop_reason, text.token_ids) == ("stop", ids[at], ids[:at])


def test_a_bias_forbids_a_token_and_bad_words_are_avoided(llm):
    first = llm.generate("Once upon a time", GREEDY)[0].outputs[0]
    params = SamplingParams(temperature=0, max_tokens=12, logit_bias={first.token_ids[0]: float("-inf")})
    assert llm.generate("Once upon a time", params)[0].outputs[0].token_ids[0] != first.token_ids[0]
    word = first.text.split()[-1]
    params = SamplingParams(temperature=0, max_tokens=12, bad_words=[word])
    assert word not in llm.generate("Once upon a time", params)[0].outputs[0].text.split()


def test_beam_search_returns_the_likeliest_texts_first(llm):
    [output] = llm.beam_search("Once upon a time", BeamSearchParams(beam_width=3, max_tokens=6))
    sums = [sequence.cum_logprob for sequence in output.sequences]
    assert len(sums) == 3 and sums == sorted(sums, reverse=True)
    assert all(sequence.text.startswith("Once upon a time") for sequence in output.sequences)


def test_vectors_have_length_one_and_prompts_of_their_own(llm):
    cat, dog, again = llm.embed(["The cat", "The dog", "The cat"])
    assert np.isclose(np.linalg.norm(cat.outputs.embedding), 1, atol=1e-3)
    assert np.allclose(cat.outputs.embedding, again.outputs.embedding, atol=1e-5)
    assert not np.allclose(cat.outputs.embedding, dog.outputs.embedding, atol=1e-3)
    assert np.linalg.norm(llm.embed("The cat", normalize=False)[0].outputs.embedding) > 1.1


def test_logits_are_a_view_with_a_row_for_each_token(llm):
    [logits] = llm.logits("Once upon a time")
    ids = llm.get_tokenizer().encode("Once upon a time")
    assert logits.shape == (len(ids), llm.get_tokenizer().vocab_size)
    assert logits.dtype == np.float32 and logits.base is not None
    next_id = llm.generate("Once upon a time", GREEDY)[0].outputs[0].token_ids[0]
    assert logits[-1].argmax() == next_id
    [last] = llm.logits("Once upon a time", start=len(ids) - 1)
    assert np.allclose(last[0], logits[-1], atol=1e-3)


def test_threads_share_the_engine(llm):
    expected = texts(llm.generate("Once upon a time", GREEDY))
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(texts(llm.generate("Once upon a time", GREEDY))))
        for _ in range(8)
    ]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert found == [expected] * 8


def test_a_bar_counts_prompts(llm):
    calls = []

    class Bar:
        def __init__(self, total, desc):
            calls.append(total)

        def update(self, n):
            calls.append(n)

        def close(self):
            calls.append("closed")

    llm.generate(["Once", "The"], GREEDY, use_tqdm=Bar)
    assert calls == [2, 1, 1, "closed"]


def test_priorities_and_salts_are_taken(llm):
    params = SamplingParams(temperature=0, max_tokens=4, cache_salt="a")
    assert len(llm.generate(["Once", "The"], params, priority=[1, -1])) == 2


def test_metrics_are_in_order(llm):
    [output] = llm.generate("Once upon a time", GREEDY)
    times = output.metrics
    assert times.arrival_time < times.first_token_time < times.finished_time
    assert llm.generate("Once upon a time", GREEDY)[0].num_cached_tokens is not None
