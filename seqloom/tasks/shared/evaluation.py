"""Evaluation results and the details that are common to all tasks."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from seqloom.data.files.columns import USER_FILE_OPTIONS, ReadOptions, read_options_of_run
from seqloom.data.formats.python_data import write_examples
from seqloom.errors import SeqloomError
from seqloom.metrics.bootstrap import ratio_interval
from seqloom.tasks.registry import about, dataset_files
from seqloom.tasks.shared.unseen_characters import Note, UnseenTokens

SCHEMA = 1  # of a record: a report made by an older Seqloom refuses a newer one


@dataclass(frozen=True)
class Evaluation:
    """Scores in percent (perplexity is a number of choices) with their 95 % intervals and signatures."""

    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    signature: dict[str, str]
    count: int
    predictions: list[str]
    notes: tuple[str, ...] = ()  # what the user should know, in sentences
    members: Sequence[Mapping[str, Any]] = ()  # of an ensemble: run, model, size and parameters of each
    unit: str = "examples"  # what was counted
    pronunciations: bool = False  # of single words, as symbols: papers call the share with any error WER

    def to_json(self) -> dict[str, Any]:
        unknown = next((note.facts for note in self.notes if isinstance(note, Note)), None)
        parameters = sum(one["parameters"] for one in self.members)
        return {
            "metrics": {name: finite(value) for name, value in self.metrics.items()},
            "intervals": {name: [finite(low), finite(high)] for name, (low, high) in self.intervals.items()},
            "signature": self.signature,
            "count": self.count,
            **({"unknown": unknown} if unknown else {}),
            **({"members": list(self.members), "parameters": parameters} if self.members else {}),
        }

    def rows(self, all_of_them: bool = False) -> Iterator[tuple[str, float, tuple[float, float] | None, str]]:
        """What a terminal shows: name, value, interval and signature of each score. Of single tokens that are words the
        `wer` is the `per` again; of pronunciations the word error rate is the share of words with any error."""
        same = self.metrics.get("wer") == self.metrics.get("per")
        for name, value in self.metrics.items():
            if name != "wer" or all_of_them or not same:
                yield name, value, self.intervals.get(name), self.signature.get(name, "")
            if name == "exact_match" and self.pronunciations:
                low, high = self.intervals.get(name, (math.nan, math.nan))
                spread = None if math.isnan(low) else (100 - high, 100 - low)
                yield "word error rate", 100 - value, spread, "words with any error: 100 − exact_match"


def reading_of(config: Mapping[str, Any], columns: str | None = None, skip_bad: bool | None = None) -> ReadOptions:
    """How files are read: as those of the training, but for what is given."""
    data = config["data"]
    bad = data.get("skip_bad", False) if skip_bad is None else skip_bad
    return read_options_of_run(data, columns, bad)


def examples_of(
    runner: Any, files: Any, reading: ReadOptions | None, what: str = "examples"
) -> tuple[list[Any], list[str]]:
    """The examples to score, from files, the test split of a dataset by name, or examples as `seqloom.train` takes
    them; and notes on them."""
    task, trained = runner.config["task"], runner.reading()
    asked = reading or trained
    settings = {**runner.config["data"], "columns": asked.columns, "skip_bad": asked.skip_bad, "limit": None}
    names, written = write_examples(files, about(task).examples, settings)
    found = dataset_files(names, "test", task)
    if found != names or written:
        # A dataset, and examples written to a file, have columns of their own: the settings of the training files are
        # not for them, nor for written examples those given now.
        fields = ("columns", *USER_FILE_OPTIONS)
        unset = [name for name in fields if written or getattr(asked, name) == getattr(trained, name)]
        asked = replace(asked, **dict.fromkeys(unset))
    examples, notes = runner.read(found, asked)
    if not examples:
        raise SeqloomError(f"{', '.join(names)}: no {what}")
    return examples, [*notes, *_unseen_notes(runner, examples)]


def _unseen_notes(runner: Any, examples: Sequence[Any]) -> Iterator[str]:
    """Notes on characters or words that are not in the vocabulary."""
    if hasattr(examples[0], "source") or hasattr(examples[0], "words"):
        asked = (one.words if hasattr(one, "words") else one.source for one in examples)
        yield from UnseenTokens.of(map(runner.unknown, asked), runner.unseen_unit).notes()


def common_details(runner: Any, scores: Evaluation, asked: Any, seconds: float, available: int) -> dict[str, Any]:
    """The details that every evaluation has, as values for JSON.

    `asked`: the evaluated examples as values for JSON or as bytes, whose hash shows which evaluations can be compared;
    `seconds`: of prediction; `available`: the number of examples from which they were chosen.
    """
    content, device = asked if isinstance(asked, bytes) else json.dumps(asked).encode(), runner.device
    return {
        "schema": SCHEMA,
        **scores.to_json(),
        **({"pronunciations": True} if scores.pronunciations else {}),
        "available": available,
        "fingerprint": hashlib.sha256(content).hexdigest(),
        "device": f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device),
        "parameters": sum(parameter.numel() for parameter in runner.model.parameters()),
        "seconds": round(seconds, 3),
        "per_second": round(scores.count / max(seconds, 1e-9), 1),
    }


def error_by_length(scored: Sequence[tuple[int, int, int]], buckets: int) -> list[dict[str, Any]]:
    """Of (length, errors, tokens wanted): the error rate in about `buckets` groups as even as whole lengths allow."""
    groups: list[list[tuple[int, int, int]]] = [[]]
    for one in sorted(scored, key=lambda one: one[0]):
        full = len(groups[-1]) >= len(scored) / buckets
        if full and groups[-1][-1][0] != one[0]:
            groups.append([])
        groups[-1].append(one)
    return [_bucket(group) for group in groups if group]


def _bucket(group: list[tuple[int, int, int]]) -> dict[str, Any]:
    _, errors, wanted = zip(*group, strict=True)
    low, high = ratio_interval(errors, wanted)
    return {
        "shortest": group[0][0],
        "longest": group[-1][0],
        "count": len(group),
        "error_rate": round(100 * sum(errors) / max(sum(wanted), 1), 3),
        "interval": [round(100 * low, 3), round(100 * high, 3)],
        "exact_match": round(100 * sum(count == 0 for count in errors) / len(group), 3),
    }


def finite(value: float) -> float | None:
    """None for NaN and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None
