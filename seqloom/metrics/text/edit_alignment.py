"""Aligning the tokens of a prediction with those of its reference."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from seqloom.metrics.text.error_rates import edit_distance

Pair = tuple[
    str | None, str | None
]  # (reference, prediction): None on the right is a deletion, on the left an insertion


def align(reference: Sequence[str], prediction: Sequence[str]) -> list[Pair]:
    """Pairs of tokens in order, with as many unequal pairs as there are edits (Wagner and Fischer 1974, section 3)."""
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError:
        return align_plain(reference, prediction)
    numbers: dict[str, int] = {}  # rapidfuzz takes "a" for 97
    left, right = ([numbers.setdefault(token, len(numbers)) for token in side] for side in (reference, prediction))
    pairs: list[Pair] = []
    for edit in Levenshtein.opcodes(left, right):
        old, new = reference[edit.src_start : edit.src_end], prediction[edit.dest_start : edit.dest_end]
        pairs.extend(zip_longest(old, new))
    return pairs


def align_plain(reference: Sequence[str], prediction: Sequence[str]) -> list[Pair]:
    """The plain twin: backtracking through the table of distances d[i][j] of the first i and j tokens."""
    table = [list(range(len(prediction) + 1))]
    for i, token in enumerate(reference, 1):
        above, row = table[-1], [i]
        for j, other in enumerate(prediction, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (token != other)))
        table.append(row)
    pairs: list[Pair] = []
    i, j = len(reference), len(prediction)
    while i or j:
        here = table[i][j]
        if i and j and here == table[i - 1][j - 1] + (reference[i - 1] != prediction[j - 1]):
            i, j = i - 1, j - 1
            pairs.append((reference[i], prediction[j]))
        elif i and here == table[i - 1][j] + 1:
            i -= 1
            pairs.append((reference[i], None))
        else:
            j -= 1
            pairs.append((None, prediction[j]))
    return pairs[::-1]


def closest(references: Sequence[Sequence[str]], prediction: Sequence[str]) -> Sequence[str]:
    """The reference with the fewest edits; among equals the shorter, as in `error_rate`."""
    return min(references, key=lambda wanted: (edit_distance(prediction, wanted), len(wanted)))
