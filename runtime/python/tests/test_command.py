"""`python -m llmrt` is the command, and its texts are those of the package."""

import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import STORIES

from llmrt import LLM, SamplingParams, __version__

COMMAND = [sys.executable, "-m", "llmrt"]


def run(*words, **options):
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=120, **options)


def test_help_version_and_exit_codes_are_those_of_the_command():
    assert run("--version").stdout.split() == ["llmrt", __version__]
    helped = run("--help")
    assert helped.returncode == 0 and "serve" in helped.stdout
    assert run("no-such-command").returncode == 2
    assert run("run", "no-such-model.gguf", "hello").returncode == 3
    script = os.path.join(os.path.dirname(sys.executable), "llmrt")
    if os.path.exists(script):
        ended = subprocess.run([script, "devices"], capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0 and "cpu" in ended.stdout


@pytest.mark.parametrize("prompt", ["Once upon a time", "The cat", "A boy named Tim had a ball."])
def test_greedy_text_is_that_of_the_command(llm, prompt):
    program = os.environ.get("LLMRT_PROGRAM")
    command = [program] if program else COMMAND
    words = ["run", str(STORIES), prompt, "-n", "48", "--temp", "0", "--raw"]
    ended = subprocess.run([*command, *words], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert ended.returncode == 0, ended.stderr
    text = llm.generate(prompt, SamplingParams(temperature=0, max_tokens=48))[0].outputs[0].text
    assert ended.stdout.strip() == text.strip()


def test_a_model_of_the_store_goes_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setenv("LLMRT_MODELS", str(tmp_path))
    (tmp_path / "Modelfile").write_text(f"FROM {STORIES}\n")
    assert run("create", "tales", "-f", str(tmp_path / "Modelfile")).returncode == 0
    with LLM("tales") as llm:
        assert len(llm.generate("Once", SamplingParams(max_tokens=3))[0].outputs[0].token_ids) == 3


def test_ctrl_c_ends_the_command_as_it_ends_the_program():
    words = ["run", str(STORIES), "Once upon a time", "-n", "-1", "--ignore-eos"]
    child = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdout.read(1)
    began = time.monotonic()
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert time.monotonic() - began < 5
    assert b"Traceback" not in errors
    assert child.returncode in (0, 130), errors
