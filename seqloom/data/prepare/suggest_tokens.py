"""Suggesting tokens from the first examples: words for targets of symbols separated by blanks, such as HH AH L OW;
characters for texts without blanks, such as surnames or Chinese."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from seqloom.data.files.columns import ReadOptions
from seqloom.data.files.file_groups import group_files
from seqloom.data.formats.pairs_fast import Pairs, read_bulk
from seqloom.errors import SeqloomError

SAMPLE_SIZE = 1000  # examples at the beginning
SHORT = 4  # characters of a symbol: AH0, tʃʰ
INVENTORY = 500  # symbols at most; words of a language are more
NUMBER = re.compile(r"\d\d+")


def symbol_example(files: Iterable[str], reading: ReadOptions) -> str:
    """An example of such targets, or empty. Errors of reading are raised later, in training."""
    targets = _first(files, reading, "targets")
    counts = Counter(token for target in targets for token in target.split(" "))
    several = [target for target in targets if " " in target]
    if not several or len(several) < len(targets) / 2 or "" in counts:
        return ""
    total = counts.total()
    short = sum(count for token, count in counts.items() if len(token) <= SHORT and not NUMBER.fullmatch(token))
    few = len(counts) <= min(INVENTORY, max(total / 2, 1))
    return max(several[:20], key=lambda target: target.count(" ")) if short >= 0.98 * total and few else ""


def unspaced_example(files: Iterable[str], reading: ReadOptions) -> str:
    """An example of texts that have no blanks and mostly differ (as words nearly all would be unknown), or empty."""
    texts = _first(files, reading, "sources")
    single = [text for text in texts if len(text.split()) == 1]
    shortest = min(single[:20], key=len, default="")
    return shortest if shortest and len(single) >= 0.95 * len(texts) and 2 * len(set(texts)) >= len(texts) else ""


def _first(files: Iterable[str], reading: ReadOptions, side: str) -> list[str]:
    try:
        return list(islice(_texts([name for name in files if Path(name).is_file()], reading, side), SAMPLE_SIZE))
    except (SeqloomError, OSError):
        return []


def _texts(files: list[str], reading: ReadOptions, side: str) -> Iterable[str]:
    for one in group_files(files, reading):
        for found in read_bulk(one):
            if isinstance(found, Pairs):
                yield from (text.strip() for text in getattr(found, side))
