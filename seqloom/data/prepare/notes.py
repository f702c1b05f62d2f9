"""Notes on prepared data that all tasks share."""

from __future__ import annotations

from collections.abc import Iterator

from seqloom.data.splits.holdout import missed_share
from seqloom.data.splits.split import Split


def held_out_notes(split: Split, unit: str, train: int, valid: int, *, by: str = "", largest: int = 0) -> Iterator[str]:
    """How much was held out of the training files, if a share was requested.

    `train`, `valid`: the number of `unit` (such as "pairs") on each side; `largest`: the count of the most frequent
    example, because of which a share may be missed.
    """
    if split.share and valid:
        whole = train + valid
        message = f"held out {valid:,} of {whole:,} {unit} ({valid / whole:.1%}) {by}for validation"
        why = missed_share(valid, whole, split.share, largest) if largest and split.reading.split_version > 1 else ""
        yield f"{message}, {why}" if why else message
    elif split.share:
        small = f"{split.share:.1%} of {train:,} is too little"
        if split.share * train >= 1 and split.reading.split_version > 1:
            small = f"for {split.share:.1%} of {train:,} too few of them are different"
        yield f"no {unit.removesuffix('s')} was held out: {small}; give a larger share or a file"


def overlap_notes(shared: int, valid: int, unit: str) -> Iterator[str]:
    """How many validation examples are also in the training data."""
    if shared:
        of = f"{shared:,} of {valid:,} validation {unit}"
        yield f"{of} stand in the training data too: scores on them say little about new ones"
