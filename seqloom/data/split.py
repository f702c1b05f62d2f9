"""Which examples train and which are held out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from seqloom.data.bulk import Pairs
from seqloom.data.columns import Reading
from seqloom.data.groups import Group, group
from seqloom.data.numbers import source_hash
from seqloom.data.skip import Skipped, sound
from seqloom.data.tokens import normal
from seqloom.errors import SeqloomError


class Origin(NamedTuple):
    """Where a block of examples comes from."""

    file: int  # of the first of a group's files, among `Split.files`
    held: bool  # from a validation file


class Fold(NamedTuple):
    """One part of a cross-validation: number 1 to `count`."""

    number: int
    count: int


@dataclass(frozen=True)
class Split:
    """Training files and validation files, or a share of the training files held out.

    The share goes by a hash of the source and the seed: whatever the order of the lines, the same source never stands
    on both sides, and adding data moves no example from one side to the other. It begins at `start`: the folds of a
    cross-validation are shares that stand side by side.
    """

    train: list[Group]
    valid: list[Group]
    share: float = 0.0
    seed: int = 0
    start: float = 0.0
    ways: dict[str, bool] = field(default_factory=dict)  # fold and half_width, as texts are made normal
    reading: Reading = field(default_factory=Reading)

    @classmethod
    def of(
        cls,
        train: Iterable[str],
        valid: Iterable[str] | float | Fold,
        *,
        seed: int,
        reading: Reading | None = None,
        **ways: bool,
    ) -> Split:
        """`ways`: fold and half_width, as texts are made normal."""
        reading = reading or Reading()
        if isinstance(valid, Fold):
            share, start = 1 / valid.count, (valid.number - 1) / valid.count
            return cls(group(train, reading), [], share, seed, start, ways, reading)
        if isinstance(valid, str):
            valid = [valid]
        if not isinstance(valid, (int, float)):
            known = group(train, reading)
            return cls(known, group(valid, reading, like=known), ways=ways, reading=reading)
        if not 0 <= valid < 1:
            raise SeqloomError(f"the share of the data held out for validation goes from 0 to below 1, not {valid}")
        return cls(group(train, reading), [], float(valid), seed, 0.0, ways, reading)

    @property
    def files(self) -> list[str]:
        return [file for one in (*self.train, *self.valid) for file in one.files]

    @property
    def key(self) -> str:
        """Of the hash that decides."""
        return str(self.seed)[:64]

    def blocks(self, skipped: Skipped | None, longest: int | None) -> Iterator[tuple[Origin, Pairs]]:
        """Every example once: the training files as far as the limit, then the validation files."""
        file, left = 0, self.reading.limit
        for one, held in (*((one, False) for one in self.train), *((one, True) for one in self.valid)):
            origin, count = Origin(file, held), 0
            for pairs in sound(one, skipped, longest):
                if not held and left is not None:
                    pairs, left = pairs.first(left), left - min(left, len(pairs))
                if len(pairs):
                    yield origin, pairs
                count += len(pairs)
                if not held and left == 0:
                    break
            if held and not count:
                raise SeqloomError(f"{one}: holds no pairs; a validation file needs at least one")
            file += len(one.files)

    def held(self, hashes: np.ndarray) -> np.ndarray:
        """Which of some examples of the training files are held out, by the hashes of their sources."""
        if not self.share:
            return np.zeros(len(hashes), bool)
        first, behind = (min(int(end * 2**64), 2**64) for end in (self.start, self.start + self.share))
        return (hashes >= np.uint64(first)) & (hashes <= np.uint64(behind - 1))

    def _number(self, source: str, key: bytes) -> int:
        """One source's hash as a number; `numbers` makes many at once."""
        return int.from_bytes(source_hash(normal(source, **self.ways), key), "big")
