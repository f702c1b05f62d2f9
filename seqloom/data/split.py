"""Which examples train and which are held out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b

from seqloom.data.read import Example, Group, group, read
from seqloom.data.tokens import normal
from seqloom.errors import SeqloomError


@dataclass(frozen=True)
class Split:
    """Training files and validation files, or a share of the training files held out.

    The share goes by a hash of the source and the seed: whatever the order of the lines, the same source never stands
    on both sides, and adding data moves no example from one side to the other.
    """

    train: list[Group]
    valid: list[Group]
    share: float = 0.0
    seed: int = 0
    fold: bool = False
    half_width: bool = False

    @classmethod
    def of(cls, train: Iterable[str], valid: Iterable[str] | float, *, seed: int, **ways: bool) -> Split:
        """`ways`: fold and half_width, as texts are made normal."""
        if isinstance(valid, str):
            valid = [valid]
        if not isinstance(valid, (int, float)):
            return cls(group(train), group(valid), **ways)
        if not 0 <= valid < 1:
            raise SeqloomError(f"the share of the data held out for validation goes from 0 to below 1, not {valid}")
        return cls(group(train), [], float(valid), seed, **ways)

    def entries(self) -> Iterator[tuple[Example, bool]]:
        """Every example once, and whether it is held out."""
        limit, key = int(self.share * 2**64), str(self.seed).encode()[:64]
        for files in self.train:
            for example in read(files):
                yield example, limit > 0 and self._number(example.source, key) < limit
        for files in self.valid:
            for example in read(files):
                yield example, True

    def training(self) -> Iterator[Example]:
        return (example for example, held in replace(self, valid=[]).entries() if not held)

    def held_out(self) -> Iterator[Example]:
        if self.valid:
            return (example for files in self.valid for example in read(files))
        return (example for example, held in self.entries() if held)

    def _number(self, source: str, key: bytes) -> int:
        # As the model will see it: texts that differ only in case (if folded), width or white space are one source.
        text = " ".join(normal(source, self.fold, self.half_width).split())
        return int.from_bytes(blake2b(text.encode(), digest_size=8, key=key).digest(), "big")
