"""Detecting sorted files, of which the first examples are not representative."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice

MIN_EXAMPLES = 20  # fewer examples prove nothing
MAX_EXAMPLES = 100_000  # examples that are compared
MIN_DIFFERENCE = 0.25  # difference of shares that is reported


def sorted_note(labels: Iterable[str], limit: int) -> str:
    """A note if one label is far more frequent among the first `limit` than after them, or if much of the rest has
    labels that these lack; else empty."""
    found = iter(labels)
    head = Counter(islice(found, limit))
    rest = Counter(islice(found, MAX_EXAMPLES))
    first, after = head.total(), rest.total()
    if first < MIN_EXAMPLES or not after:
        return ""
    label, count = max(head.items(), key=lambda pair: (pair[1] / first - rest[pair[0]] / after, pair[0]))
    cure = f"the file is sorted: --sample {limit} draws from all of it"
    if count / first - rest[label] / after >= MIN_DIFFERENCE:
        later = f"{rest[label] / after:.0%}" if rest[label] else "none"
        return (
            f"{count / first:.0%} of the first {first:,} have the label {label!r}, {later} of those after them; {cure}"
        )
    lacking = sum(count for name, count in rest.items() if name not in head)
    expected = sum(count * (1 - count / after) ** first for count in rest.values())
    if lacking - expected >= MIN_DIFFERENCE * after:
        return f"{lacking / after:.0%} of those after the first {first:,} have labels that these lack; {cure}"
    return ""
