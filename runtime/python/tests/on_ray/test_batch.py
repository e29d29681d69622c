"""Batches on Ray Data."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import ray.data

import llmrt
from llmrt import LLM, SamplingParams
from llmrt.ray import batch, batch_file

GREEDY = SamplingParams(temperature=0, max_tokens=6)


@pytest.fixture(scope="module")
def texts():
    with LLM() as llm:
        outputs = llm.generate([f"The {name}" for name in "cat dog fox bear".split()] * 3, GREEDY)
    return [output.outputs[0].text for output in outputs]


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    lines = [{"prompt": f"The {name}", "id": i} for i, name in enumerate("cat dog fox bear".split() * 3)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_data_set_gets_a_column_of_texts(cluster, texts, prompts):
    rows = ray.data.from_items([{"q": f"The {name}", "n": i} for i, name in enumerate("cat dog fox bear".split())])
    found = batch(rows, None, GREEDY, prompt="q", output="a", engine_args={"max_model_len": 256}).take_all()
    assert [row["a"] for row in sorted(found, key=lambda row: row["n"])] == texts[:4]
    assert {row["finish_reason"] for row in found} == {"length"}


def test_a_file_is_answered_in_its_order(cluster, texts, prompts, tmp_path):
    path = tmp_path / "answers.jsonl"
    lines = prompts.read_text() + json.dumps({"prompt": "far too long " * 300}) + '\n{"prompt": "\\ud800"}\n'
    prompts.write_text(lines)
    args = dict(engine_args={"max_model_len": 256}, batch_size=5)
    assert batch_file(prompts, path, None, GREEDY, **args) == 14
    answers = [json.loads(line) for line in path.read_text().splitlines()]
    assert [answer["text"] for answer in answers[:12]] == texts
    assert [answer["id"] for answer in answers[:12]] == list(range(12))
    assert answers[12]["finish_reason"] == "error" and "prompt_too_long" in answers[12]["error"]
    assert answers[13]["finish_reason"] == "error" and "surrogates" in answers[13]["error"]
    assert batch_file(prompts, path, None, GREEDY, **args) == 0
    assert sorted(os.listdir(tmp_path)) == ["answers.jsonl", "prompts.jsonl"]


def test_a_batch_that_was_killed_computes_the_rest(cluster, texts, prompts, tmp_path):
    path = tmp_path / "answers.jsonl"
    folder = tmp_path / "answers.jsonl.parts"
    command = [sys.executable, "-m", "llmrt.ray", "batch", prompts, path, "--batch-size", "1"]
    command += ["--params", '{"temperature": 0, "max_tokens": 6}', "--engine-args", '{"max_model_len": 256}']
    environment = {**os.environ, "RAY_ADDRESS": cluster.address}
    running = subprocess.Popen(list(map(str, command)), env=environment, start_new_session=True)
    deadline = time.monotonic() + 90
    while not list(folder.glob("*.jsonl")) and running.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    time.sleep(2)
    n_before = len(list(folder.glob("*.jsonl"))) if folder.exists() else 12
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert f"{12 - n_before} lines were computed" in done.stdout
    assert [json.loads(line)["text"] for line in path.read_text().splitlines()] == texts


def test_other_work_and_wrong_lines_are_refused(cluster, prompts, tmp_path):
    path = tmp_path / "answers.jsonl"
    folder = tmp_path / "answers.jsonl.parts"
    folder.mkdir()
    (folder / "of").write_text("other")
    (folder / "a.jsonl").write_text("{}\n")
    with pytest.raises(llmrt.RequestError, match="other prompts"):
        batch_file(prompts, path, None, GREEDY)
    folder = tmp_path / "held.jsonl.parts"
    folder.mkdir()
    with open(folder / "of", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(llmrt.RequestError, match="in use"):
            batch_file(prompts, tmp_path / "held.jsonl", None, GREEDY)
    for answers in tmp_path, prompts:
        with pytest.raises(llmrt.RequestError, match="no answers to these"):
            batch_file(prompts, answers, None, GREEDY)
    for wrong in dict(concurrency=0), dict(batch_size=0), dict(engine_args={"max_model_len": 0}):
        with pytest.raises(llmrt.RequestError):
            batch_file(prompts, tmp_path / "other.jsonl", None, GREEDY, **wrong)
    with pytest.raises(llmrt.ModelError):
        batch_file(prompts, tmp_path / "other.jsonl", "no-such.gguf", GREEDY)
    with pytest.raises(llmrt.RequestError, match="output"):
        batch(ray.data.from_items([{"prompt": "a"}]), output="error")
    assert not (tmp_path / "other.jsonl.parts").exists()
    for line in b'{"prompt": "\xff"}', b"[" * 100_000:
        prompts.write_bytes(b'{"prompt": "a"}\n' + line + b"\n")
        with pytest.raises(llmrt.RequestError, match="line 2"):
            batch_file(prompts, tmp_path / "other.jsonl", None, GREEDY)
    prompts.write_text('{"prompt": "a"}\n{"text": "b"}\n')
    with pytest.raises(llmrt.RequestError, match="line 2"):
        batch_file(prompts, tmp_path / "other.jsonl", None, GREEDY)
