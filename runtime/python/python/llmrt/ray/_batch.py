"""Texts for data sets, on Ray Data."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import ray.data

from .. import LLM, SamplingParams
from .. import _check as check
from ..errors import RequestError

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
        answers = self.answers([str(prompt) for prompt in rows[self._from]])
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
    lines = list(_lines(Path(prompts)))
    folder = Path(f"{os.fspath(answers)}.parts").absolute()
    args = _arguments(model, engine_args, sampling_params)
    _begin(folder, lines, args)
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
    _write(Path(answers), [found[n] for n in range(len(lines))])
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return len(rest)


def _arguments(model: Any, engine_args: Mapping[str, Any] | None, params: SamplingParams | None) -> tuple[Any, ...]:
    path = None if model is None else check.path("batch", "model", model)
    return path, dict(engine_args or {}), SamplingParams() if params is None else params


def _lines(path: Path) -> Iterator[str]:
    """The lines of a file of prompts, checked."""
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                prompt = json.loads(line)["prompt"]
            except (ValueError, TypeError, KeyError):
                prompt = None
            if not isinstance(prompt, str):
                cause = f"{path}: line {number} is no JSON object with a text `prompt`"
                raise RequestError(cause, "bad_prompt", 'write each as {"prompt": "…"}')
            yield line


def _begin(folder: Path, lines: list[str], args: tuple[Any, ...]) -> None:
    """Makes the folder, or checks that it is of the same work."""
    settings = [asdict(arg) if is_dataclass(arg) else repr(arg) for arg in args]
    digest = hashlib.sha256(json.dumps([lines, settings], default=repr).encode()).hexdigest()
    path = folder / "of"
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_text() != digest:
        cause = f"{folder} has parts of answers to other prompts, or by other parameters"
        raise RequestError(cause, "bad_param", "remove the folder, or give the prompts and parameters that it was begun with")
    path.write_text(digest)


def _parts(folder: Path) -> Iterator[dict[str, Any]]:
    """What workers have computed."""
    for path in folder.glob("*.jsonl"):
        with open(path, encoding="utf-8") as file:
            yield from map(json.loads, file)


def _write(path: Path, objects: list[dict[str, Any]]) -> None:
    """Writes lines of JSON: all or none."""
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    with open(unfinished, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in objects)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
