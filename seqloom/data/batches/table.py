"""Encoded rows of a table, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqloom.data.batches.bucketing import Plan, plan
from seqloom.data.batches.collate import Padded, pad_flat
from seqloom.data.batches.labels import LabelBatch, Target, count_known
from seqloom.data.encoding.encode import Rows, index_ranges
from seqloom.data.formats.column_types import NO_CATEGORY, Column, is_missing
from seqloom.data.formats.pairs import Problem
from seqloom.data.formats.table import Layout, Row
from seqloom.data.tokenizers.tokenizers import EOS
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.errors import SeqloomError


@dataclass(frozen=True, eq=False)
class Fields:
    """The input of a model for some rows."""

    values: Tensor  # [B, V] float32: numbers, yes/no and categories side by side
    texts: tuple[Padded, ...]  # one for each column of text: x1 … xn <eos>

    def to(self, device: torch.device | str) -> Fields:
        there = torch.device(device).type != "cpu"  # never asynchronous towards the host
        return Fields(self.values.to(device, non_blocking=there), tuple(text.to(device) for text in self.texts))

    def part(self, first: int, last: int) -> Fields:
        """Rows `first` to `last` (not included)."""
        return Fields(self.values[first:last], tuple(text.part(first, last) for text in self.texts))


@dataclass(frozen=True)
class Schema:
    """Everything that predictions need of the data: columns, target, and the codec of texts."""

    columns: tuple[Column, ...]
    target: Column
    codec: Codec
    numbered: bool = False
    max_length: int | None = None
    cut: str = "tail"

    @property
    def layout(self) -> Layout:
        return Layout(tuple(column.name for column in self.columns), self.target.name, self.numbered)

    @property
    def classes(self) -> tuple[str, ...]:
        """Empty if the target is a number."""
        return self.target.values

    @property
    def prediction(self) -> Target:
        """The target of the model."""
        if self.classes:
            return Target("label", self.classes)
        return Target("number", mean=self.target.mean, deviation=self.target.deviation)

    @property
    def labels(self) -> list[str]:
        """The name of each value of a row."""
        return [label for column in self.columns for label in column.labels]

    @property
    def texts(self) -> list[int]:
        """Indices of text columns."""
        return [place for place, column in enumerate(self.columns) if column.kind == "text"]

    def problem(self, row: Row, need_target: bool = True) -> Problem | None:
        """The first problem of a row, or None."""
        checked = zip((*self.columns, *([self.target] if need_target else ())), (*row.fields, row.target), strict=False)
        for column, text in checked:
            if reason := column.problem(text):
                header = row.line == 1 and self.numbered
                hint = "; is the first line a line of names? Then name the columns" if header else ""
                return Problem(row.file, row.line, f"{reason}{hint}", code="value")
        if need_target and self.target.kind in ("number", "yes") and is_missing(row.target):
            return Problem(row.file, row.line, f"the target ({self.target.name}) is missing", code="empty")
        return None

    def encode(self, rows: Sequence[Row], fingerprint: str = "") -> TableSource:
        """Encode valid rows."""
        fields = list(zip(*(row.fields for row in rows), strict=True)) or [()] * len(self.columns)
        places = [c.encode(f) for c, f in zip(self.columns, fields, strict=True) if c.kind != "text"]
        texts = tuple(self._encode(fields[place]) for place in self.texts)
        target = self.target.encode([row.target for row in rows])
        # Unseen and missing classes have no likelihood.
        target = (
            np.nan_to_num(target, nan=NO_CATEGORY).clip(NO_CATEGORY).astype(np.int64)
            if self.classes
            else target.astype(np.float32)
        )
        matrix = np.stack(places, 1) if places else np.zeros((len(rows), 0))
        return TableSource(self, matrix.astype(np.float32), texts, target, fingerprint)

    def _encode(self, texts: Sequence[str]) -> Rows:
        rows = [self.codec.encode(text) for text in texts]
        flat = np.array([number for row in rows for number in row], np.int32)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return Rows(flat, lengths).cut(self.max_length, self.cut).with_specials((), (EOS,))

    def to_json(self) -> dict[str, Any]:
        """As a run's vocabularies: columns.json and source.json."""
        ways = {"numbered": self.numbered, "max_length": self.max_length, "cut": self.cut}
        columns = [column.to_json() for column in self.columns]
        return {
            "columns": {**ways, "columns": columns, "target": self.target.to_json()},
            "source": self.codec.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Schema:
        try:
            settings = dict(value["columns"])
            columns, target = settings.pop("columns"), settings.pop("target")
            found = tuple(map(Column.from_json, columns))
            return cls(found, Column.from_json(target), Codec.from_json(value["source"]), **settings)
        except (KeyError, TypeError, ValueError) as error:
            raise SeqloomError(f"the stored columns are damaged: {type(error).__name__}: {error}") from error


@dataclass(frozen=True, eq=False)
class TableSource:
    """Encoded rows in memory. Categories are indices, one-hot in a batch."""

    schema: Schema
    encoded: np.ndarray  # [rows, columns without text] float32
    texts: tuple[Rows, ...]  # one for each column of text
    values: np.ndarray  # [rows] of the target: int64 classes (−1: unseen), or float32 scaled numbers
    fingerprint: str
    weights: np.ndarray | None = None  # of each class
    folder: Path | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def target(self) -> Target:
        return self.schema.prediction

    @cached_property
    def lengths(self) -> np.ndarray:
        """[rows] tokens of all columns of text together; 1 where there is none."""
        return np.sum([np.ones(len(self), np.int64), *(text.lengths for text in self.texts)], axis=0)

    @cached_property
    def _starts(self) -> list[np.ndarray]:
        return [np.cumsum(text.lengths) - text.lengths for text in self.texts]

    def plan(self, *, seed: int, epoch: int, batch_tokens: int | None, batch_rows: int | None) -> Plan:
        """Rows with texts of like length together; `batch_tokens` counts the tokens of all their texts."""
        sizes = {"batch_tokens": batch_tokens, "batch_rows": batch_rows}
        return plan(self.lengths, np.zeros(len(self), np.int64), seed=seed, epoch=epoch, **sizes)

    def batch(self, rows: np.ndarray) -> LabelBatch:
        rows = np.asarray(rows, dtype=np.int64)
        texts = []
        for text, starts in zip(self.texts, self._starts, strict=True):
            lengths = text.lengths[rows]
            texts.append(pad_flat(text.ids[index_ranges(starts[rows], lengths)], lengths))
        target = self.values[rows]
        source = Fields(torch.from_numpy(self.dense(rows)), tuple(texts))
        weight = None if self.weights is None else torch.from_numpy(self.weights[target])
        return LabelBatch(source, torch.from_numpy(target), weight, count_known(target), tuple(rows.tolist()))

    def dense(self, rows: np.ndarray) -> np.ndarray:
        """[rows, V] float32"""
        plain = [column for column in self.schema.columns if column.kind != "text"]
        parts = [column.dense(self.encoded[rows, place]) for place, column in enumerate(plain)]
        return np.concatenate([np.zeros((len(rows), 0), np.float32), *parts], axis=1)

    def prior(self) -> np.ndarray:
        """Logits of the class frequencies; of a number the scaled mean."""
        if not self.schema.classes:
            return self.values.mean(keepdims=True)
        counts = np.bincount(self.values[self.values >= 0], minlength=len(self.schema.classes))
        return np.log(np.maximum(counts, 0.5) / len(self))

    def count(self, rows: np.ndarray) -> int:
        return count_known(self.values[rows])

    def costs(self, plan: Plan) -> np.ndarray:
        return np.array([len(rows) * int(self.lengths[rows].max(initial=0)) for rows in plan], np.float64)

    def permute_column(self, column: int, order: np.ndarray) -> TableSource:
        """The same rows with one column permuted: row i has the field of row order[i]."""
        schema = self.schema
        if schema.columns[column].kind == "text":
            texts = list(self.texts)
            place = schema.texts.index(column)
            texts[place] = texts[place].take(order)
            return replace(self, texts=tuple(texts))
        encoded = self.encoded.copy()
        place = column - sum(text < column for text in schema.texts)
        encoded[:, place] = encoded[order, place]
        return replace(self, encoded=encoded)
