"""Targets that are symbols with single blanks between, as HH AH L OW: to be cut into words, not into characters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from seqloom.data.bulk import Pairs, bulk
from seqloom.data.columns import Reading
from seqloom.data.groups import group
from seqloom.errors import SeqloomError

LOOKED_AT = 1000  # examples at the beginning
SHORT = 4  # characters of a symbol: AH0, tʃʰ
INVENTORY = 500  # symbols at most; words of a language are more
NUMBER = re.compile(r"\d\d+")


def symbols(files: Iterable[str], reading: Reading) -> str:
    """An example of such targets; empty if the targets of these files are anything else. What cannot be read is said
    when it is read for training."""
    try:
        targets = list(islice(_targets([name for name in files if Path(name).is_file()], reading), LOOKED_AT))
    except (SeqloomError, OSError):
        return ""
    counts = Counter(token for target in targets for token in target.split(" "))
    several = [target for target in targets if " " in target]
    if not several or len(several) < len(targets) / 2 or "" in counts:
        return ""
    total = counts.total()
    short = sum(count for token, count in counts.items() if len(token) <= SHORT and not NUMBER.fullmatch(token))
    few = len(counts) <= min(INVENTORY, max(total / 2, 1))
    return max(several[:20], key=lambda target: target.count(" ")) if short >= 0.98 * total and few else ""


def _targets(files: list[str], reading: Reading) -> Iterable[str]:
    for one in group(files, reading):
        for found in bulk(one):
            if isinstance(found, Pairs):
                yield from (target.strip() for target in found.targets)
