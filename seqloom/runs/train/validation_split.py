"""The validation data as users write them: files, a share such as 5%, or a fold, with or without a seed."""

from __future__ import annotations

import re
from typing import Any

from seqloom.data.splits.split import Fold
from seqloom.errors import SeqloomError
from seqloom.runs.train.job import Files, file_names

FOLD = r"fold \d+/\d+"
SEEDED = re.compile(rf"({FOLD}|[\d.]+%?) with seed (\d{{1,19}})")  # independent of the seed of the training
MOST_FOLDS = 10_000  # each is a training that reads all of the data


def parse_valid(valid: Files | float) -> list[str] | float | Fold:
    """From `0.05`, `"5%"`, `"fold 2/5"`, the last two also with a seed, or file names."""
    valid, _ = split_seed(valid)
    if isinstance(valid, str) and re.fullmatch(FOLD, valid):
        return _fold(valid)
    if isinstance(valid, int | float):
        share = float(valid)
    elif isinstance(valid, str) and valid.endswith("%"):
        try:
            share = float(valid[:-1]) / 100
        except ValueError:
            raise SeqloomError(f"cannot read the share {valid!r}; write it as 5%") from None
    elif isinstance(valid, str) and re.fullmatch(r"0?\.\d+|0", valid):
        share = float(valid)
    elif isinstance(valid, str) and re.match(rf"({FOLD}|[\d.]+%) ", valid):
        raise SeqloomError(f"cannot read the share {valid!r}; write it as 5%, or as '5% with seed 7'")
    else:
        return file_names(valid)
    if not 0 <= share < 1:
        raise SeqloomError(f"a validation share lies between 0% and 100%, here {share:.0%}")
    return share


def split_seed(valid: Any, default: int = 0) -> tuple[Any, int]:
    """The validation data without their seed, and the seed."""
    seeded = SEEDED.fullmatch(valid) if isinstance(valid, str) else None
    return (seeded[1], int(seeded[2])) if seeded else (valid, default)


def with_fixed_seed(valid: Files | float, seed: int) -> Files | float:
    """A share or a fold with a seed of its own, `"5% with seed 7"`; files stay as they are."""
    held_out = parse_valid(valid)
    fixed = isinstance(held_out, list) or held_out == 0 or SEEDED.fullmatch(str(valid))
    return valid if fixed else f"{valid} with seed {seed}"


def _fold(text: str) -> Fold:
    number, count = (int(digits[:10]) for digits in text.removeprefix("fold ").split("/"))  # not thousands of digits
    if count > MOST_FOLDS:
        raise SeqloomError(f"{text[:100]}: there are at most {MOST_FOLDS:,} folds")
    if not 1 <= number <= count or count < 2:
        raise SeqloomError(f"{text[:100]}: there are folds 1 to {max(count, 2)} of at least 2")
    return Fold(number, count)
