"""Log-probabilities."""

import copy
import dataclasses
import math
import pickle

import numpy as np
import pytest

from llmrt import RequestError, SamplingParams


def generate(llm, **params):
    return llm.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=6, **params))[0]


def test_each_token_has_its_own_and_the_likeliest(llm):
    text = generate(llm, logprobs=3).outputs[0]
    assert len(text.logprobs) == len(text.token_ids) == 6
    for token, places in zip(text.token_ids, text.logprobs):
        assert len(places) == 3, "the picked token is the likeliest"
        assert places[token].rank == 1
        assert sorted(place.rank for place in places.values()) == [1, 2, 3]
        assert places[token].decoded_token == llm.get_tokenizer().token(token)
    total = sum(places[token].logprob for token, places in zip(text.token_ids, text.logprobs))
    assert math.isclose(text.cumulative_logprob, total, rel_tol=1e-9)


def test_outputs_are_copied_and_cross_processes(llm):
    output = generate(llm, logprobs=2, prompt_logprobs=1)
    for copied in pickle.loads(pickle.dumps(output)), copy.deepcopy(output):
        assert copied == output and copied.prompt_logprobs[0] is None
        assert copied.outputs[0].logprobs[0] == output.outputs[0].logprobs[0]
    assert dataclasses.asdict(output)["outputs"][0]["logprobs"] == output.outputs[0].logprobs


def test_arrays_are_views_without_copies(llm):
    logprobs = generate(llm, logprobs=3).outputs[0].logprobs
    assert logprobs.values.shape == logprobs.token_ids.shape == (6, 4)
    assert logprobs.values.dtype == np.float64 and logprobs.token_ids.dtype == np.uint32
    assert not logprobs.values.flags.owndata
    assert (np.diff(logprobs.values[:, 1:]) <= 0).all()


def test_zero_is_the_token_alone_and_minus_one_is_all(llm):
    assert generate(llm, logprobs=0).outputs[0].logprobs.values.shape == (6, 1)
    values = generate(llm, logprobs=-1).outputs[0].logprobs.values
    assert values.shape == (6, 1 + llm.get_tokenizer().vocab_size)
    assert np.allclose(np.exp(values[:, 1:]).sum(axis=1), 1)


def test_a_prompt_begins_with_none(llm):
    output = generate(llm, prompt_logprobs=1)
    assert len(output.prompt_logprobs) == len(output.prompt_token_ids)
    assert output.prompt_logprobs[0] is None
    for token, places in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:]):
        assert token in places and places[token].logprob <= 0
    assert output.prompt_logprobs[-1] == list(output.prompt_logprobs)[-1]


def test_a_stop_string_cuts_the_rows_with_the_tokens(llm):
    word = generate(llm).outputs[0].text.split()[-1]
    text = generate(llm, logprobs=1, stop=word).outputs[0]
    assert len(text.logprobs) == len(text.token_ids) < 6


def test_they_cannot_be_compared_first(llm):
    with pytest.raises(RequestError, match="logprobs") as e:
        SamplingParams(n=1, best_of=2, logprobs=1)
    assert e.value.code == "unsupported_param"
