"""Splitting examples into training and validation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from seqloom.data.encoding.encode import normalize_all, source_hash
from seqloom.data.files.columns import ReadOptions
from seqloom.data.files.file_groups import Group, group_files
from seqloom.data.formats.bad_lines import Skipped, valid_pairs
from seqloom.data.formats.pairs_fast import Pairs
from seqloom.data.splits.holdout import held_out_mask, keyed_hashes, sample_mask, source_codes
from seqloom.data.tokenizers.tokenizers import normalize
from seqloom.errors import SeqloomError


class Origin(NamedTuple):
    """The origin of a block of examples."""

    file: int  # index in `Split.files`, of the first file of its group
    held_out: bool  # from a validation file


class Fold(NamedTuple):
    """One part of a cross-validation: number 1 to `count`."""

    number: int
    count: int


class Part(NamedTuple):
    """Consecutive training examples: what sampling and holding out depend on."""

    texts: list[str]  # normalized sources
    labels: Sequence[str] | None = None  # whose shares are preserved
    weights: Sequence[int] | None = None  # number of rows of each


class Decision(NamedTuple):
    """Masks over all training examples."""

    sampled: np.ndarray | None  # [examples] bool; None: all
    held_out: np.ndarray | None  # [sampled examples] bool; None: decided one by one, by hash


@dataclass(frozen=True, eq=False)
class Split:
    """Training files and validation files, or a share of the training files held out.

    By a hash of the source and the seed, so the same source is never on both sides, whatever the order of the lines.
    Version 2 decides for all examples at once (`decide`), per label: exact size, same label mix. Version 1, of older
    runs, holds out every source whose hash lies in an interval that begins at `start`; folds are adjacent intervals.
    """

    train: list[Group]
    valid: list[Group]
    share: float = 0.0
    seed: int = 0
    start: float = 0.0
    normalization: dict[str, Any] = field(default_factory=dict)  # keywords of `normalize`
    reading: ReadOptions = field(default_factory=ReadOptions)
    fold: Fold | None = None
    decision: Decision | None = None

    @classmethod
    def of(
        cls,
        train: Iterable[str],
        valid: Iterable[str] | float | Fold,
        *,
        seed: int,
        reading: ReadOptions | None = None,
        **normalization: Any,
    ) -> Split:
        """`normalization`: the keywords of `normalize`."""
        reading, train = reading or ReadOptions(), list(train)
        groups = group_files(train, reading) if train else []
        if isinstance(valid, Fold):
            share, start = 1 / valid.count, (valid.number - 1) / valid.count
            return cls(groups, [], share, seed, start, normalization, reading, valid)
        if isinstance(valid, str):
            valid = [valid]
        if not isinstance(valid, (int, float)):
            return cls(groups, group_files(valid, reading, like=groups), normalization=normalization, reading=reading)
        if not 0 <= valid < 1:
            raise SeqloomError(f"the share of the data held out for validation goes from 0 to below 1, not {valid}")
        return cls(groups, [], float(valid), seed, 0.0, normalization, reading)

    @property
    def files(self) -> list[str]:
        return [file for one in (*self.train, *self.valid) for file in one.files]

    @property
    def key(self) -> str:
        """The key of the hash."""
        return str(self.seed)[:64]

    @property
    def needs_decision(self) -> bool:
        """Whether all examples must be read before any is assigned."""
        return self.reading.sample is not None or (self.reading.split_version > 1 and self.share > 0)

    def decide(self, parts: Callable[[], Iterable[Part]]) -> Split:
        """The split with the assignment of all training examples, given by `parts`."""
        if not self.needs_decision:
            return self
        found = list(zip(*((source_codes(p.texts), p.labels, p.weights) for p in parts()), strict=True))
        if not found:
            return self
        sources, labels, weights = np.concatenate(found[0]), _number_labels(found[1]), None
        if any(part is not None for part in found[2]):
            each = zip(found[0], found[2], strict=True)
            weights = np.concatenate([np.ones(len(a)) if b is None else np.asarray(b) for a, b in each])
        chosen = None
        if self.reading.sample is not None:
            chosen = sample_mask(keyed_hashes(sources, "sample"), self.reading.sample)
            sources = sources[chosen]
            labels, weights = (None if one is None else one[chosen] for one in (labels, weights))
        held = None
        if self.reading.split_version > 1:
            held = held_out_mask(keyed_hashes(sources, self.key), self.share, self.fold, labels, weights)
        return replace(self, decision=Decision(chosen, held))

    def split_texts(self, texts: Sequence[str], labels: Sequence[str] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Positions of training and of held-out examples in memory, by their normalized texts."""
        made = self.decide(lambda: [Part(list(texts), labels)])
        decision = made.decision or Decision(None, None)
        places = np.arange(len(texts)) if decision.sampled is None else np.flatnonzero(decision.sampled)
        out = made.held_out_texts([texts[place] for place in places.tolist()])
        return places[~out], places[out]

    def blocks(self, skipped: Skipped | None, longest: int | None) -> Iterator[tuple[Origin, Pairs]]:
        """Every example once: the training files up to the limit, or their sample, then the validation files."""
        file, left, seen = 0, self.reading.limit, 0
        for one, held in (*((one, False) for one in self.train), *((one, True) for one in self.valid)):
            origin, count = Origin(file, held), 0
            for pairs in valid_pairs(one, skipped, longest):
                if not held and left is not None:
                    pairs, left = pairs.first(left), left - min(left, len(pairs))
                if not held and self.decision is not None and self.decision.sampled is not None:
                    seen, pairs = seen + len(pairs), pairs.select(self.decision.sampled[seen : seen + len(pairs)])
                if len(pairs):
                    yield origin, pairs
                count += len(pairs)
                if not held and left == 0:
                    break
            if held and not count:
                raise SeqloomError(f"{one}: holds no pairs; a validation file needs at least one")
            file += len(one.files)

    def held_out_texts(self, texts: Sequence[str], at: int = 0) -> np.ndarray:
        """As `held_out`, by the normalized sources themselves."""
        known = not self.share or (self.decision is not None and self.decision.held_out is not None)
        digests = b"" if known else b"".join([source_hash(text, self.key.encode()) for text in texts])
        return self.held_out(np.zeros(len(texts)) if known else np.frombuffer(digests, ">u8").astype(np.uint64), at)

    def held_out(self, found: np.ndarray, at: int = 0) -> np.ndarray:
        """[examples] bool: held out of the training files, by the hashes of the sources; `at`: index of the first."""
        if not self.share:
            return np.zeros(len(found), bool)
        if self.decision is not None and self.decision.held_out is not None:
            return self.decision.held_out[at : at + len(found)]
        first, behind = (min(int(end * 2**64), 2**64) for end in (self.start, self.start + self.share))
        return (found >= np.uint64(first)) & (found <= np.uint64(behind - 1))

    def training_parts(self, skipped: Skipped | None, longest: int | None) -> Iterator[Part]:
        """The input of `decide`, from the pairs of the training files."""
        by_label = self.reading.target_kind.startswith("label")
        for origin, pairs in self.blocks(skipped, longest):
            if origin.held_out:
                return
            labels = [" ".join(target.split()) for target in pairs.targets] if by_label else None
            if labels is not None and pairs.counts is not None:  # of several the first
                labels = [labels[end - count] for end, count in zip(np.cumsum(pairs.counts), pairs.counts, strict=True)]
            yield Part(normalize_all(pairs.sources, self.normalization), labels, pairs.counts)

    def _number(self, source: str, key: bytes) -> int:
        """The hash of one source as a number."""
        return int.from_bytes(source_hash(normalize(source, **self.normalization), key), "big")


def _number_labels(parts: Sequence[Sequence[str] | None]) -> np.ndarray | None:
    """Labels as numbers in sorted order, so independent of the order of lines."""
    if any(part is None for part in parts):
        return None
    numbers: dict[str, int] = {}
    found = [np.fromiter((numbers.setdefault(one, len(numbers)) for one in part or ()), np.int64) for part in parts]
    rank = np.empty(len(numbers), np.int64)
    rank[[numbers[label] for label in sorted(numbers)]] = np.arange(len(numbers))
    return rank[np.concatenate(found)]
