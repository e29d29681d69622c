"""Parameters: types, ranges, and what llmrt lacks."""

from pathlib import Path

import pytest

from llmrt import (
    LLM,
    AsyncEngine,
    BeamSearchParams,
    EngineArgs,
    ModelError,
    RequestError,
    RequestOutputKind,
    SamplingParams,
)

WRONG_TYPES = [
    ("temperature", "hot"),
    ("temperature", True),
    ("top_p", None),
    ("top_k", 1.5),
    ("n", "2"),
    ("max_tokens", 2.0),
    ("stop", 3),
    ("stop", ["a", 3]),
    ("stop_token_ids", "abc"),
    ("stop_token_ids", [1, "x"]),
    ("logit_bias", [1, 2]),
    ("logit_bias", {"x": 1.0}),
    ("bad_words", [b"x"]),
    ("ignore_eos", 1),
    ("seed", "a"),
    ("logprobs", 1.5),
    ("output_kind", "delta"),
    ("cache_salt", 3),
]

OUT_OF_RANGE = [
    ("temperature", float("nan")),
    ("n", 0),
    ("max_tokens", 0),
    ("max_tokens", 10**20),
    ("top_k", -2),
    ("logprobs", -2),
    ("stop_token_ids", [-1]),
    ("seed", 2**70),
    ("stop", "\ud800"),
    ("temperature", -1),
    ("temperature", 10**400),
    ("top_p", 0),
    ("top_p", 1.5),
    ("min_p", -1),
    ("typical_p", 0),
]

LACKING = [
    ("detokenize", False),
    ("skip_special_tokens", False),
    ("include_stop_str_in_output", True),
    ("truncate_prompt_tokens", 5),
    ("logits_processors", [len]),
    ("allowed_token_ids", [1]),
    ("structured_outputs", {"json": {}}),
    ("guided_decoding", object()),
]


@pytest.mark.parametrize("name, value", WRONG_TYPES)
def test_a_wrong_type_is_named(name, value):
    with pytest.raises(TypeError, match=name):
        SamplingParams(**{name: value})


@pytest.mark.parametrize("name, value", OUT_OF_RANGE)
def test_a_value_out_of_range_is_named(name, value):
    with pytest.raises(RequestError, match=name) as e:
        SamplingParams(**{name: value})
    assert e.value.code == "bad_param" and e.value.remedy
    assert isinstance(e.value, ValueError)


@pytest.mark.parametrize("name, value", LACKING)
def test_what_llmrt_lacks_is_refused_unless_it_has_no_effect(name, value):
    SamplingParams(**{name: getattr(SamplingParams, name)})
    with pytest.raises(RequestError, match=name) as e:
        SamplingParams(**{name: value})
    assert e.value.code == "unsupported_param" and e.value.remedy


@pytest.mark.parametrize("name, value", [("presence_penalty", 1000), ("repetition_penalty", 0)])
def test_ranges_of_the_sampler_are_those_of_the_engine(llm, name, value):
    with pytest.raises(RequestError, match="expected") as e:
        llm.generate("Once", SamplingParams(**{name: value}))
    assert e.value.code == "bad_param"


def test_an_unknown_name_is_an_error():
    with pytest.raises(TypeError, match="temprature"):
        SamplingParams(temprature=1)
    with pytest.raises(TypeError, match="max_model_length"):
        LLM(max_model_length=5)


def test_min_tokens_is_at_most_max_tokens(llm):
    with pytest.raises(RequestError, match="min_tokens"):
        llm.generate("Once", SamplingParams(min_tokens=9, max_tokens=3))


def test_parameters_compare_and_copy():
    params = SamplingParams(stop=["a"], output_kind=RequestOutputKind.DELTA)
    assert params.clone() == params != SamplingParams()
    assert "stop=['a']" in repr(params)


def test_beams_are_checked():
    with pytest.raises(RequestError, match="beam_width"):
        BeamSearchParams(beam_width=1, max_tokens=4)
    with pytest.raises(RequestError, match="temperature"):
        BeamSearchParams(beam_width=2, max_tokens=4, temperature=0.5)


@pytest.mark.parametrize(
    "name, value",
    [("tensor_parallel_size", 2), ("quantization", "awq"), ("tokenizer", "other"), ("runner", "draft"),
     ("hf_overrides", {"a": 1}), ("generation_config", "folder")],
)
def test_arguments_that_llmrt_lacks_are_refused(name, value):
    with pytest.raises(RequestError, match=name) as e:
        EngineArgs(**{name: value})
    assert e.value.code == "unsupported_param" and e.value.remedy


@pytest.mark.parametrize(
    "name, value",
    [("model", 5), ("devices", 3), ("max_model_len", "4k"), ("max_num_seqs", 2.5), ("plugins", "file.so"),
     ("plugin_options", ["a"]), ("strict", "yes"), ("kv_cache_dtype", 8), ("chat_template", 7), ("swap_space", "4")],
)
def test_arguments_of_wrong_types_are_named(name, value):
    with pytest.raises(TypeError, match=name):
        LLM(**{name: value})


@pytest.mark.parametrize(
    "name, value",
    [("max_model_len", 0), ("block_size", 2**31 - 1), ("max_num_batched_tokens", 2**31 - 1), ("swap_space", 1e30),
     ("swap_space", -1), ("kv_cache_dtype", "fp8"), ("load_mode", "fast"), ("seed", 2**70)],
)
def test_arguments_out_of_range_are_named(name, value):
    with pytest.raises(RequestError, match=name) as e:
        LLM(**{name: value})
    assert e.value.code == "bad_param" and e.value.remedy


def test_a_context_is_not_longer_than_what_the_model_was_trained_on():
    with LLM(max_model_len=-1) as llm:
        trained = llm.max_model_len
    with pytest.raises(RequestError, match=f"trained on {trained} tokens"):
        LLM(max_model_len=trained + 1)


def test_parameters_are_read_as_vllm_reads_them():
    params = SamplingParams(stop="a", seed=-1, logprobs=True, cache_salt=None, logits_processors=[], extra_args={})
    assert (params.stop, params.stop_token_ids, params.bad_words, params.seed) == (["a"], [], [], None)
    params.stop.append("b")
    assert params.to_native(7)["stop"] == ["a", "b"] and params.to_native(7)["logprobs"] == 1
    assert params.to_native(7)["seed"] == 7


def test_names_are_where_vllm_has_them():
    from llmrt import AsyncLLM
    from llmrt.engine.arg_utils import AsyncEngineArgs
    from llmrt.engine.async_llm_engine import AsyncLLMEngine
    from llmrt.inputs import TokensPrompt
    from llmrt.outputs import RequestOutput
    from llmrt.sampling_params import RequestOutputKind as Kind
    from llmrt.v1.engine.async_llm import AsyncLLM as Same

    assert AsyncLLM is Same is AsyncLLMEngine is AsyncEngine and AsyncEngineArgs is EngineArgs
    assert Kind is RequestOutputKind and TokensPrompt(prompt_token_ids=[1]) and RequestOutput


@pytest.mark.parametrize(
    "config, expected",
    [({"method": "eagle"}, "method"), ({"tokens": 3}, "num_speculative_tokens"), ({"method": "mtp"}, "path of a file"),
     ({"method": "ngram", "model": "x.gguf"}, "no model"), ({"model": "x.gguf", "draft_p_min": 2}, "draft_p_min"),
     ({"num_speculative_tokens": 0}, "num_speculative_tokens"), ({"prompt_lookup_min": 5}, "prompt_lookup_min")],
)
def test_a_wrong_choice_of_what_guesses_is_named(config, expected):
    with pytest.raises(RequestError, match=expected):
        EngineArgs(speculative_config=config)
    with pytest.raises(TypeError, match="speculative_config"):
        EngineArgs(speculative_config="ngram")


def test_guesses_of_next_tokens_change_no_text():
    relu = Path(__file__).parents[3] / "tests/fixtures/trained/relu.powerinfer.gguf"
    prompts = ["Once upon a time", "The dog", "One day, a cat"]
    params = SamplingParams(max_tokens=60, seed=3)

    def texts(**args):
        with LLM(max_model_len=256, **args) as llm:
            found = [output.outputs[0].text for output in llm.generate(prompts, params)]
            return found, llm.stats()

    expected, stats = texts()
    assert stats["n_draft_tokens"] == 0
    for config in ({"model": relu, "num_speculative_tokens": 4}, {"method": "ngram", "prompt_lookup_max": 3}):
        found, stats = texts(speculative_config=config)
        assert found == expected and stats["n_draft_tokens"] > 0, config
        assert stats["n_accepted_draft_tokens"] > (90 if "model" in config else -1)
    with pytest.raises(ModelError, match="x.gguf"):
        texts(speculative_config={"model": "x.gguf"})


@pytest.mark.parametrize("name, value", [("dtype", "float16"), ("gpu_memory_utilization", 0.5)])
def test_arguments_with_an_effect_elsewhere_are_taken_with_a_warning(name, value):
    with pytest.warns(UserWarning, match=f"{name}.*has no effect"):
        EngineArgs(**{name: value})


def test_arguments_of_vllm_without_effect_are_taken():
    args = dict(tensor_parallel_size=1, dtype="auto", trust_remote_code=True, gpu_memory_utilization=0.9)
    args |= dict(enforce_eager=True, enable_chunked_prefill=False, served_model_name=None)
    with LLM(max_model_len=128, max_num_seqs=2, enable_prefix_caching=False, **args) as llm:
        assert llm.max_model_len == 128
    with AsyncEngine.from_engine_args(EngineArgs(max_model_len=64)) as engine:
        assert engine.max_model_len == 64
