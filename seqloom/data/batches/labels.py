"""Targets of one value per example (a label, several labels or a number), and batches of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqloom.data.batches.bucketing import Plan, plan
from seqloom.data.batches.collate import Padded, split_points
from seqloom.data.batches.pairs import PairSource
from seqloom.data.tokenizers.tokenizers import SPECIALS, make_tokenizer, normalize
from seqloom.errors import SeqloomError, known


@dataclass(frozen=True)
class Target:
    """The target. Numbers are standardized by mean and deviation of the training data."""

    kind: str  # one of TARGETS
    names: tuple[str, ...] = ()  # of the labels, most frequent first
    separator: str = "|"  # between several labels
    mean: float = 0.0
    deviation: float = 1.0

    @property
    def size(self) -> int:
        """The number of outputs of the model."""
        return 1 if self.kind == "number" else len(self.names)

    def to_json(self) -> dict[str, Any]:
        if self.kind == "number":
            return {"kind": "number", "mean": self.mean, "deviation": self.deviation}
        return {"kind": self.kind, "names": list(self.names), "separator": self.separator}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Target:
        try:
            kind = known(value["kind"], TARGETS, "kind of target")
            if kind == "number":
                return cls(kind, mean=float(value["mean"]), deviation=float(value["deviation"]))
            return cls(kind, tuple(value["names"]), value["separator"])
        except (KeyError, TypeError, ValueError) as error:
            raise SeqloomError(f"the stored labels are damaged: {type(error).__name__}: {error}") from error

    @property
    def tokens(self) -> str:
        """The argument of `make_tokenizer`. Numbers are stored as bytes, none of which is ever unknown."""
        return {"label": "label", "labels": f"labels:{self.separator}", "number": "bytes"}[self.kind]

    def standardize(self, numbers: np.ndarray) -> np.ndarray:
        """Standardize numbers."""
        return ((numbers - self.mean) / self.deviation).astype(np.float32)

    def encode(self, texts: list[str]) -> np.ndarray:
        """Targets as numbers: [N] int64 (−1: no label of the training data), [N, labels] bool, or [N] float32."""
        if self.kind == "number":
            return self.standardize(np.array([float(text) for text in texts]))
        parts = self._parts(texts)
        if self.kind == "label":
            return np.array([part[0] for part in parts], np.int64)
        rows = np.zeros((len(texts), len(self.names)), bool)
        for row, numbers in zip(rows, parts, strict=True):
            row[[number for number in numbers if number >= 0]] = True
        return rows

    def missing(self, texts: list[str]) -> np.ndarray | None:
        """[N]: number of labels of each that the training data lacks."""
        return None if self.kind == "number" else np.array([part.count(-1) for part in self._parts(texts)])

    def _parts(self, texts: list[str]) -> list[list[int]]:
        split, place = make_tokenizer(self.tokens).split, {name: number for number, name in enumerate(self.names)}
        return [[place.get(part, -1) for part in split(normalize(text))] for text in texts]


@dataclass(frozen=True, eq=False)
class LabelBatch:
    """What one training step reads."""

    source: Any  # what the model takes: has `to(device)` and `part(first, last)`, as `Padded` does
    target: Tensor  # [B] int64, a label; [B, labels] float32, 0 or 1; or [B] float32, a number
    weight: Tensor | None  # of the targets, in their shape; None: all weigh 1
    count: int  # rows that count for the loss
    rows: tuple[int, ...]  # which examples of the source

    def to(self, device: torch.device | str) -> LabelBatch:
        there = torch.device(device).type != "cpu"  # never asynchronous towards the host
        target = self.target.to(device, non_blocking=there)
        weight = None if self.weight is None else self.weight.to(device, non_blocking=there)
        return LabelBatch(self.source.to(device), target, weight, self.count, self.rows)

    def pad_to_bucket(self, most: int | None = None) -> LabelBatch | None:
        """The same in one of few shapes, if its source can be padded."""
        return replace(self, source=self.source.pad_to_bucket(most)) if isinstance(self.source, Padded) else None

    def micro_batches(self, n: int) -> list[LabelBatch]:
        """The rows cut into at most `n` nearly equal parts: micro-batches."""
        return [self._part(a, b) for a, b in split_points(len(self.rows), n)] or [self]

    def _part(self, a: int, b: int) -> LabelBatch:
        weight = None if self.weight is None else self.weight[a:b]
        return LabelBatch(
            self.source.part(a, b), self.target[a:b], weight, count_known(self.target[a:b]), self.rows[a:b]
        )

    def zero_weight_row(self) -> LabelBatch:
        """A row of weight zero: every parameter still gets a gradient, of zeros."""
        weight = torch.zeros_like(self.target[:1], dtype=torch.float32)
        return LabelBatch(self.source.part(0, 1), self.target[:1].clamp(min=0), weight, 0, ())


def count_known(target: Tensor | np.ndarray) -> int:
    """Number of rows with a known label: unknown labels have no likelihood. On the host."""
    return int((target >= 0).sum()) if target.dtype in (torch.int64, np.int64) else len(target)


class LabelSource:
    """Pairs whose targets are labels or numbers."""

    def __init__(
        self, corpus: PairSource, target: Target, values: np.ndarray, weights: np.ndarray | None = None
    ) -> None:
        """`values`: see `Target.encode`. `weights`: of each label, [labels]."""
        self.corpus, self.target, self.values, self.weights = corpus, target, values, weights
        self.fingerprint = corpus.fingerprint
        self.folder: Path | None = corpus.folder

    def __len__(self) -> int:
        return len(self.corpus)

    def plan(self, *, seed: int, epoch: int, batch_tokens: int | None, batch_rows: int | None) -> Plan:
        lengths = self.corpus.source_lengths
        same = np.zeros_like(lengths)
        return plan(lengths, same, seed=seed, epoch=epoch, batch_tokens=batch_tokens, batch_rows=batch_rows)

    def batch(self, rows: np.ndarray) -> LabelBatch:
        values = self.values[rows]
        values = values.astype(np.float32) if values.dtype == bool else values
        weight = None if self.weights is None else torch.from_numpy(_weigh(values, self.weights))
        source = self.corpus.sources(rows)
        return LabelBatch(source, torch.from_numpy(values), weight, count_known(values), tuple(rows.tolist()))

    def count(self, rows: np.ndarray) -> int:
        return count_known(self.values[rows])

    def missing(self) -> np.ndarray:
        """[rows]: number of labels of each that the training data lacks."""
        ids, lengths = self.corpus.targets()
        rows = np.repeat(np.arange(len(self)), lengths)
        return np.bincount(rows[ids < len(SPECIALS)], minlength=len(self))

    def costs(self, plan: Plan) -> np.ndarray:
        """[batches]: padded tokens."""
        starts = np.concatenate([[0], plan.ends[:-1]])
        widest = np.maximum.reduceat(self.corpus.source_lengths[plan.order], starts)
        return widest.astype(np.int64) * (plan.ends - starts)

    def counts(self) -> np.ndarray:
        """[labels]: number of rows with each; of numbers, their sum."""
        if self.target.kind == "label":
            return np.bincount(self.values[self.values >= 0], minlength=self.target.size)
        return self.values.reshape(len(self), -1).sum(0, dtype=np.float64)

    def prior(self) -> np.ndarray:
        """[outputs]: logits of the label frequencies; of numbers, their mean."""
        share = self.counts() / len(self)
        if self.target.kind == "number":
            return share
        share = np.clip(share, 0.5 / len(self), 1 - 0.5 / len(self))
        return np.log(share) if self.target.kind == "label" else np.log(share / (1 - share))


def _weigh(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    if values.ndim == 1:
        return weights[values]
    return np.where(values > 0, weights, np.float32(1))


def encode_targets(corpus: PairSource, target: Target) -> np.ndarray:
    """Every target of a corpus, as `Target.encode` gives them; several labels as bool, to save memory."""
    ids, lengths = corpus.targets()
    if target.kind == "number":
        raw, ends = (ids - len(SPECIALS)).astype(np.uint8).tobytes(), np.cumsum(lengths).tolist()
        return target.standardize(np.array([float(raw[a:b]) for a, b in pairwise([0, *ends])]))
    if target.kind == "label":
        return np.where(ids >= len(SPECIALS), ids.astype(np.int64) - len(SPECIALS), -1)
    values = np.zeros((len(lengths), target.size), bool)
    rows, known_ids = np.repeat(np.arange(len(lengths)), lengths), ids >= len(SPECIALS)
    values[rows[known_ids], ids[known_ids].astype(np.int64) - len(SPECIALS)] = True
    return values


TARGETS = ("label", "labels", "number")
