"""Texts for data sets, on Ray Data."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import ray.data

from .. import LLM, EngineArgs, SamplingParams, Tokenizer
from .. import _check as check
from ..errors import RequestError

# The file of a folder of parts that has the digest of the work.
_OF = "of"
_Columns = dict[str, Any]


class _Generator:
    """Loads the model once in each worker."""

    def __init__(self, model: str | None, engine_args: Mapping[str, Any], params: SamplingParams) -> None:
        self._llm = LLM(model, **engine_args)
        self._params = params

    def answers(self, prompts: list[str]) -> list[dict[str, Any]]:
        """The text of each prompt and why it ended, or what is wrong with the prompt."""
        try:
            return [_answer(output) for output in self._llm.generate(prompts, self._params, use_tqdm=False)]
        except RequestError as e:
            if len(prompts) == 1:
                return [{"text": "", "finish_reason": "error", "error": f"{e.code}: {e.cause}"}]
            # The others are computed.
            return [answer for prompt in prompts for answer in self.answers([prompt])]


def _answer(output: Any) -> dict[str, Any]:
    first = output.outputs[0]
    return {"text": first.text, "finish_reason": first.finish_reason, "error": ""}


class _OfColumn(_Generator):
    def __init__(self, columns: tuple[str, str], *args: Any) -> None:
        super().__init__(*args)
        self._from, self._to = columns

    def __call__(self, rows: _Columns) -> _Columns:
        answers = self.answers([prompt if isinstance(prompt, str) else "" for prompt in rows[self._from]])
        more = {self._to: "text", "finish_reason": "finish_reason", "error": "error"}
        return {**rows, **{name: [answer[key] for answer in answers] for name, key in more.items()}}


class _OfFile(_Generator):
    def __init__(self, folder: str, *args: Any) -> None:
        super().__init__(*args)
        self._folder = Path(folder)

    def __call__(self, rows: _Columns) -> _Columns:
        lines = [json.loads(line) for line in rows["line"]]
        answers = self.answers([line["prompt"] for line in lines])
        numbers = [int(number) for number in rows["number"]]
        found = [{"number": n, "answer": {**line, **answer}} for n, line, answer in zip(numbers, lines, answers)]
        _write(self._folder / f"{uuid.uuid4().hex}.jsonl", found)
        return {"number": rows["number"]}


def batch(
    dataset: ray.data.Dataset,
    model: str | os.PathLike[str] | None = None,
    sampling_params: SamplingParams | None = None,
    *,
    prompt: str = "prompt",
    output: str = "text",
    engine_args: Mapping[str, Any] | None = None,
    concurrency: int = 1,
    batch_size: int = 64,
    **resources: Any,
) -> ray.data.Dataset:
    """A data set with the text that follows each row's prompt.

    Args:
        dataset: Rows with a column of prompts.
        model: Path of a GGUF file, the same on every node. None: the story model.
        sampling_params: How texts are generated.
        prompt: The column of prompts.
        output: The column to add; `finish_reason` and `error`, empty where there is none, are added too.
        engine_args: More of what `LLM` takes.
        concurrency: Workers, each with the model.
        batch_size: Rows that a worker takes at a time; they share steps.
        resources: What a worker takes of a node, as `Dataset.map_batches` has it: num_cpus, num_gpus.
    """
    columns = check.text("batch", "prompt", prompt), check.text("batch", "output", output)
    if output in (prompt, "finish_reason", "error"):
        raise RequestError(f"batch: output is {output!r}, another column", "bad_param", "give it a name of its own")
    _check_sizes(concurrency, batch_size)
    args = (columns, *_arguments(model, engine_args, sampling_params))
    return dataset.map_batches(
        _OfColumn, fn_constructor_args=args, concurrency=concurrency, batch_size=batch_size, **resources
    )


def batch_file(
    prompts: str | os.PathLike[str],
    answers: str | os.PathLike[str],
    model: str | os.PathLike[str] | None = None,
    sampling_params: SamplingParams | None = None,
    *,
    engine_args: Mapping[str, Any] | None = None,
    concurrency: int = 1,
    batch_size: int = 64,
    **resources: Any,
) -> int:
    """Answers a file of prompts; returns how many lines were computed now.

    What workers have computed is in the folder `ANSWERS.parts`, which all nodes must share, until the file is complete: started
    again after it was stopped, it computes the rest.

    Args:
        prompts: Lines of JSON with a field `prompt`.
        answers: File to write: the same lines in the same order, with `text`, `finish_reason` and `error`.
        model: Path of a GGUF file, the same on every node. None: the story model.
        sampling_params: How texts are generated.
        engine_args: More of what `LLM` takes.
        concurrency: Workers, each with the model.
        batch_size: Lines that a worker takes at a time; they share steps.
        resources: What a worker takes of a node.
    """
    lines, path = list(_lines(Path(prompts))), Path(answers).absolute()
    args = _arguments(model, engine_args, sampling_params)
    _check_sizes(concurrency, batch_size)
    folder = path.with_name(f"{path.name}.parts")
    if not folder.exists() and _is_answered(path, lines):
        return 0
    with _begun(folder, lines, args):
        return _answer_rest(folder, path, lines, args, concurrency, batch_size, resources)


def _answer_rest(
    folder: Path,
    path: Path,
    lines: list[str],
    args: tuple[Any, ...],
    concurrency: int,
    batch_size: int,
    resources: dict[str, Any],
) -> int:
    done = {part["number"] for part in _parts(folder)}
    rest = [{"number": n, "line": line} for n, line in enumerate(lines) if n not in done]
    if rest:
        work = ray.data.from_items(rest).map_batches(
            _OfFile,
            fn_constructor_args=(str(folder), *args),
            concurrency=concurrency,
            batch_size=batch_size,
            **resources,
        )
        for _ in work.iter_batches():
            pass
    # A worker that was started again may have written a line twice.
    found = {part["number"]: part["answer"] for part in _parts(folder)}
    _write(path, [found[n] for n in range(len(lines))])
    for part in folder.glob("*.jsonl*"):
        part.unlink()
    # Last: parts without it would be taken for those of any prompts.
    (folder / _OF).unlink()
    folder.rmdir()
    return len(rest)


def _arguments(model: Any, engine_args: Mapping[str, Any] | None, params: SamplingParams | None) -> tuple[Any, ...]:
    """What workers are constructed with, checked before there are some."""
    args = dict(engine_args or {})
    path = EngineArgs(model, **args).path
    Tokenizer.from_file(path)
    params = SamplingParams() if params is None else params
    if not isinstance(params, SamplingParams):
        raise check.wrong("batch", "sampling_params", params, "SamplingParams")
    if params.n != 1:
        raise RequestError(f"batch: n is {params.n}: expected 1, as a row has one text", "bad_param", "repeat the row")
    return path, args, params


def _check_sizes(concurrency: Any, batch_size: Any) -> None:
    check.whole("batch", "batch_size", batch_size, 1)
    if not isinstance(concurrency, tuple):
        check.whole("batch", "concurrency", concurrency, 1)


def _is_answered(path: Path, lines: list[str]) -> bool:
    """Whether the file has the answers to these lines. Another file is refused, as is a place that cannot be written."""
    if not path.exists():
        if not os.access(path.parent, os.W_OK):
            raise RequestError(f"{path}: cannot be written", "bad_param", "give a file in a folder that can be written")
        return False
    try:
        with open(path, encoding="utf-8") as file:
            given = [json.loads(line) for line in file]
        prompts = [json.loads(line) for line in lines]
        is_it = len(given) == len(prompts) and all(_is_of(*pair) for pair in zip(given, prompts))
    except (OSError, ValueError, RecursionError, AttributeError):
        is_it = False
    if not is_it:
        remedy = "remove it, or give the answers another name"
        raise RequestError(f"{path} is there, and has no answers to these prompts", "bad_param", remedy)
    return True


def _is_of(answer: dict[str, Any], line: dict[str, Any]) -> bool:
    """Whether an answer is one to this line."""
    own = {"text", "finish_reason", "error"}
    return own <= answer.keys() and all(answer.get(name) == line[name] for name in line.keys() - own)


def _lines(path: Path) -> Iterator[str]:
    """The lines of a file of prompts, checked."""
    with open(path, "rb") as file:
        for number, bytes in enumerate(file, 1):
            try:
                line = bytes.decode()
                prompt = json.loads(line)["prompt"]
            except (ValueError, TypeError, KeyError, RecursionError):
                prompt = None
            if not isinstance(prompt, str):
                cause = f"{path}: line {number} is no JSON object with a text `prompt`"
                raise RequestError(cause, "bad_prompt", 'write each as {"prompt": "…"}')
            yield line


@contextmanager
def _begun(folder: Path, lines: list[str], args: tuple[Any, ...]) -> Iterator[None]:
    """Makes the folder, or checks that it is of the same work, which no other process does at the same time."""
    settings = [asdict(arg) if is_dataclass(arg) else repr(arg) for arg in args]
    digest = hashlib.sha256(json.dumps([lines, settings], default=repr).encode()).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / _OF, "a+") as of:
        try:
            fcntl.flock(of, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            raise RequestError(f"{folder} is in use by another process: {e}", "bad_param", "wait until it has ended") from None
        of.seek(0)
        if of.read() != digest:
            if any(folder.glob("*.jsonl")):
                cause = f"{folder} has parts of answers to other prompts, or by other parameters"
                remedy = "remove the folder, or give the prompts and parameters that it was begun with"
                raise RequestError(cause, "bad_param", remedy)
            of.truncate(0)
            of.write(digest)
            of.flush()
        yield


def _parts(folder: Path) -> Iterator[dict[str, Any]]:
    """What workers have computed."""
    for path in folder.glob("*.jsonl"):
        with open(path, encoding="utf-8") as file:
            yield from map(json.loads, file)


def _write(path: Path, objects: list[dict[str, Any]]) -> None:
    """Writes lines of JSON: all or none."""
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    with open(unfinished, "w", encoding="utf-8") as file:
        file.writelines(_json(one) + "\n" for one in objects)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def _json(value: Any) -> str:
    """A line that any reader of UTF-8 takes."""
    line = json.dumps(value, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair, which JSON has as an escape.
        line = json.dumps(value)
    return line
