"""Faults: Ctrl-C, forks, files and devices that are absent, engines that are closed. Every one is an exception, and none hangs."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import llmrt
from llmrt import LLM, ClosedError, DeviceError, ForkedError, ModelError, RequestError, SamplingParams

MANY = ["Once upon a time"] * 4000
LONG = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)


def interrupt_after(seconds):
    """Ctrl-C for this process; returns when it came."""
    # A job in the background is started without the handler.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    came = []

    def send():
        came.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(seconds, send).start()
    return came


def test_ctrl_c_ends_a_call_and_its_requests_give_their_blocks_back():
    with LLM() as llm:
        came = interrupt_after(0.3)
        with pytest.raises(KeyboardInterrupt):
            llm.generate(MANY, LONG)
        assert time.monotonic() - came[0] < 1
        while llm.stats()["n_running"] + llm.stats()["n_waiting"]:
            assert time.monotonic() - came[0] < 5
            time.sleep(0.01)
        assert llm.stats()["n_blocks_used"] == 0
        assert len(llm.generate("Once", SamplingParams(max_tokens=3))) == 1


def test_ctrl_c_ends_a_load_that_takes_long():
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        came = interrupt_after(0.1)
        # Loads in a row, as one may be over before.
        while True:
            LLM(max_num_seqs=1024).close()
    assert time.monotonic() - came[0] < 1
    assert threading.active_count() == before


def test_the_interpreter_runs_other_threads_while_a_call_computes(llm):
    steps = []
    done = threading.Event()

    def count():
        while not done.is_set():
            steps.append(time.monotonic())
            time.sleep(0.005)

    thread = threading.Thread(target=count)
    thread.start()
    llm.generate(MANY[:40], LONG)
    done.set()
    thread.join()
    pauses = [after - before for before, after in zip(steps, steps[1:])]
    assert len(steps) > 3 and sorted(pauses)[len(pauses) // 2] < 0.5


def test_the_first_error_ends_a_call_and_aborts_the_others(llm):
    with pytest.raises(RequestError) as e:
        llm.generate([*MANY[:20], "word " * 5000], LONG)
    assert e.value.code == "prompt_too_long"
    assert "shorten" in e.value.remedy and "tokens" in e.value.cause
    assert llm.stats()["n_running"] == 0


@pytest.mark.parametrize("prompts", [5, None, b"x", [5.5], [None], {"text": "x"}, {"multi_modal_data": 1}, [["a"]]])
def test_a_prompt_of_a_wrong_type_is_named(llm, prompts):
    with pytest.raises((TypeError, RequestError), match="prompts"):
        llm.generate(prompts, LONG)


def test_empty_prompts_and_ids_out_of_the_vocabulary_are_refused(llm):
    for prompts in [{"prompt_token_ids": []}, {"prompt_token_ids": [10**6]}, [[]]]:
        with pytest.raises(RequestError) as e:
            llm.generate(prompts, LONG)
        assert e.value.code == "bad_prompt", prompts
    with pytest.raises(TypeError, match="sampling_params"):
        llm.generate("Once", {"temperature": 0})
    with pytest.raises(RequestError, match="lora_request"):
        llm.generate("Once", LONG, lora_request=object())


def test_what_is_absent_is_named(tmp_path):
    with pytest.raises(ModelError, match="no-such-model.gguf") as e:
        LLM("no-such-model.gguf")
    assert e.value.code == "model_file" and e.value.cause and e.value.remedy
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelError):
        LLM(broken)
    for template in "nowhere.jinja", "":
        with pytest.raises(RequestError, match="chat_template") as e:
            LLM(chat_template=template)
        assert e.value.code == "chat_template" and e.value.remedy
    with pytest.raises(DeviceError, match="npu7") as e:
        LLM(devices="npu7")
    assert e.value.code == "no_device" and "cpu" in e.value.cause


def test_a_closed_model_takes_no_calls():
    llm = LLM()
    llm.close()
    llm.close()
    for call in [lambda: llm.generate("Once"), lambda: llm.embed("Once"), lambda: llm.logits("Once"), llm.stats]:
        with pytest.raises(ClosedError) as e:
            call()
        assert e.value.code == "closed"
    assert not llm.is_open and llm.get_tokenizer().encode("Once")


def test_a_call_that_runs_ends_when_another_thread_closes_the_model():
    llm = LLM()
    threading.Timer(0.2, llm.close).start()
    began = time.monotonic()
    with pytest.raises(ClosedError):
        llm.generate(MANY, LONG)
    assert time.monotonic() - began < 10


def test_a_model_that_is_dropped_is_closed():
    llm = LLM()
    native = llm._native
    del llm
    gc.collect()
    assert not native.is_open


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_has_no_engine_and_is_refused():
    with LLM() as llm:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                llm.generate("Once", LONG)
            except ForkedError as e:
                llm.close()
                del llm
                code = 0 if e.code == "forked" and "spawn" in e.remedy else 2
            except BaseException:
                code = 3
            os._exit(code)
        assert ended_with(pid) == 0
        assert len(llm.generate("Once", SamplingParams(max_tokens=3))) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_can_load_a_model_of_its_own_unless_one_was_open():
    script = """
import llmrt, os, sys
llm = llmrt.LLM()
if sys.argv[1] == "closed":
    llm.close()
pid = os.fork()
if pid == 0:
    code = 1
    try:
        with llmrt.LLM() as llm:
            code = len(llm.generate("Once"))
    except llmrt.ForkedError as e:
        code = 7
    finally:
        os._exit(code)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    for state, code in [("closed", 1), ("open", 7)]:
        assert subprocess.run([sys.executable, "-c", script, state], timeout=60).returncode == code, state


def ended_with(pid):
    """The exit code of a child, which has 60 seconds."""
    for _ in range(600):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("the child hangs")


@pytest.mark.parametrize(
    "script",
    [
        "llm = llmrt.LLM()",
        "llm = llmrt.LLM(); llm.generate('Once')",
        "engine = llmrt.AsyncEngine(); stream = engine.generate('Once', llmrt.SamplingParams(max_tokens=None));"
        "import asyncio; loop = asyncio.new_event_loop(); loop.run_until_complete(anext(stream))",
        "import threading; llm = llmrt.LLM();"
        "threading.Thread(target=llm.generate, args=(['Once'] * 2000,), daemon=True).start();"
        "import time; time.sleep(0.2)",
    ],
)
def test_a_program_ends_with_models_that_are_open(script):
    ended = subprocess.run(
        [sys.executable, "-c", f"import llmrt; {script}"], timeout=60, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert "panicked" not in ended.stderr


def test_an_exception_of_a_bar_ends_the_call(llm):
    class Bar:
        def __init__(self, **_):
            pass

        def update(self, _):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        llm.generate(MANY[:8], LONG, use_tqdm=Bar)


def test_exceptions_have_a_code_a_cause_and_a_remedy():
    error = llmrt.Error("x is 5", "code", "lower x")
    assert str(error) == "x is 5 [code; lower x]"
    assert (error.code, error.cause, error.remedy) == ("code", "x is 5", "lower x")
    import pickle

    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.cause, again.remedy) == ("code", "x is 5", "lower x")
