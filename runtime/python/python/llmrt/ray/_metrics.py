"""The metrics of all replicas in one scrape."""

from __future__ import annotations

from collections.abc import Mapping


def merge(texts: Mapping[str, str]) -> str:
    """Prometheus texts as one: each family once, its samples with a label `replica`.

    Args:
        texts: By the replica's name. The format: https://prometheus.io/docs/instrumenting/exposition_formats/
    """
    families: dict[str, tuple[list[str], list[str]]] = {}
    for replica, text in texts.items():
        about, samples = families.setdefault("", ([], []))
        for line in text.splitlines():
            if line.startswith("#"):
                name = line.split(" ", 3)[2]
                if name not in families or families[name][1] is not samples:
                    about, samples = families.setdefault(name, ([], []))
                if line not in about:
                    about.append(line)
            elif line:
                samples.append(_labelled(line, replica))
    return "".join(f"{line}\n" for about, samples in families.values() for line in [*about, *samples])


def _labelled(sample: str, replica: str) -> str:
    """A sample with one label more."""
    escaped = replica.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    label = f'replica="{escaped}"'
    brace, space = sample.find("{"), sample.find(" ")
    if 0 <= brace < space:
        rest = sample[brace + 1 :]
        return sample[: brace + 1] + label + ("" if rest.startswith("}") else ",") + rest
    return sample[:space] + "{" + label + "}" + sample[space:]
