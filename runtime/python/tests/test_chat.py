"""Conversations and the tokenizer."""

import pytest

from llmrt import LLM, RequestError, SamplingParams, Tokenizer

GREEDY = SamplingParams(temperature=0, max_tokens=8)
TEMPLATE = "{% for m in messages %}{{ m.content }}{% if not loop.last %}, {% endif %}{% endfor %}{{ extra }}"
ONCE = [{"role": "user", "content": "Once upon a time"}]


def test_a_conversation_is_rendered_by_the_template_that_is_given(llm):
    [output] = llm.chat(ONCE, GREEDY, chat_template=TEMPLATE)
    assert output.prompt == "Once upon a time"
    [plain] = llm.generate("Once upon a time", GREEDY)
    assert output.outputs[0].token_ids == plain.outputs[0].token_ids


def test_many_conversations_are_computed_together(llm, tmp_path):
    file = tmp_path / "template.jinja"
    file.write_text(TEMPLATE)
    two = [*ONCE, {"role": "assistant", "content": [{"type": "text", "text": "there was"}]}]
    outputs = llm.chat([ONCE, two], GREEDY, chat_template=file, chat_template_kwargs={"extra": "!"})
    assert [output.prompt for output in outputs] == ["Once upon a time!", "Once upon a time, there was!"]


def test_a_model_has_a_template_of_its_options():
    with LLM(chat_template=TEMPLATE) as llm:
        assert llm.get_tokenizer().chat_template == TEMPLATE
        assert llm.chat(ONCE, GREEDY)[0].prompt == "Once upon a time"


@pytest.mark.parametrize(
    "messages, error, text",
    [
        ("hello", TypeError, "messages"),
        ([], RequestError, "no messages"),
        ([{"content": "x"}], TypeError, "role"),
        ([{"role": "user", "content": object()}], TypeError, "JSON"),
        ([["hello"]], TypeError, "messages"),
        ([None], TypeError, "messages"),
        ([{"role": "user", "content": "\ud800"}], RequestError, "surrogates"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], RequestError, "image_url"),
    ],
)
def test_messages_are_checked(llm, messages, error, text):
    with pytest.raises(error, match=text):
        llm.chat(messages, GREEDY, chat_template=TEMPLATE)


def test_variables_of_a_template_are_a_dict(llm):
    with pytest.raises(TypeError, match="chat_template_kwargs"):
        llm.chat(ONCE, GREEDY, chat_template=TEMPLATE, chat_template_kwargs=5)


def test_a_template_that_fails_names_its_line(llm):
    with pytest.raises(RequestError, match="line 1") as e:
        llm.chat(ONCE, GREEDY, chat_template="{{ messages[0].content }")
    assert e.value.code == "chat_template"
    with pytest.raises(RequestError, match="no thanks"):
        llm.chat(ONCE, GREEDY, chat_template="{{ raise_exception('no thanks') }}")
    with pytest.raises(RequestError, match="no-such-file"):
        llm.chat(ONCE, GREEDY, chat_template="no-such-file.jinja")
    with pytest.raises(RequestError, match="continue_final_message"):
        llm.chat(ONCE, GREEDY, chat_template=TEMPLATE, continue_final_message=True)


def test_the_tokenizer_works_without_the_engine():
    with LLM(chat_template=TEMPLATE) as llm:
        tokenizer = llm.get_tokenizer()
    ids = tokenizer.encode("Once upon a time")
    assert tokenizer.decode(ids, skip_special_tokens=True).strip() == "Once upon a time"
    assert tokenizer.encode("Once", add_special_tokens=False) == tokenizer.encode("Once")[1:]
    assert ids[0] == tokenizer.bos_token_id and len(tokenizer) == tokenizer.vocab_size
    assert tokenizer.apply_chat_template(ONCE, tokenize=False) == "Once upon a time"
    assert tokenizer.apply_chat_template(ONCE) == tokenizer.apply_chat_template(ONCE, tools=[])
    assert tokenizer.token(10**9) is None


def test_the_tokenizer_has_the_names_of_hugging_face(llm):
    tokenizer = llm.get_tokenizer()
    assert tokenizer("Once")["input_ids"] == tokenizer.encode("Once")
    assert tokenizer(["Once", "The"])["input_ids"] == [tokenizer.encode("Once"), tokenizer.encode("The")]
    ids = tokenizer.encode("Once", add_special_tokens=False)
    assert tokenizer.batch_decode([ids, ids]) == [tokenizer.decode(ids)] * 2
    assert tokenizer.convert_ids_to_tokens(ids) == [tokenizer.token(id) for id in ids]
    assert tokenizer.eos_token == tokenizer.token(tokenizer.eos_token_id)
    # Texts have any length, prompts do not.
    long = "word " * 40_000
    assert len(tokenizer.encode(long)) > 16_384 < len(Tokenizer.from_file().encode(long))
    with pytest.raises(RequestError) as e:
        llm.generate(long)
    assert e.value.code == "prompt_too_long"


def test_ids_are_checked(llm):
    tokenizer = llm.get_tokenizer()
    with pytest.raises(RequestError) as e:
        tokenizer.decode([10**8])
    assert e.value.code == "bad_prompt"
    with pytest.raises(TypeError, match="text"):
        tokenizer.encode(5)
    with pytest.raises(RequestError):
        tokenizer.decode([-1])
