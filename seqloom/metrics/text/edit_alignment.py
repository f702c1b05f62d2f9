"""Which token of a prediction stands for which token of its reference."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from seqloom.metrics.text.error_rates import edit_distance

Pair = tuple[str | None, str | None]  # (wanted, written): None on the right was left out, on the left was put in


def align(wanted: Sequence[str], written: Sequence[str]) -> list[Pair]:
    """Pairs of tokens in order, with as many unlike ones as there are edits (Wagner and Fischer 1974, section 3)."""
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError:
        return align_plain(wanted, written)
    numbers: dict[str, int] = {}  # rapidfuzz takes "a" for 97
    left, right = ([numbers.setdefault(token, len(numbers)) for token in side] for side in (wanted, written))
    pairs: list[Pair] = []
    for edit in Levenshtein.opcodes(left, right):
        old, new = wanted[edit.src_start : edit.src_end], written[edit.dest_start : edit.dest_end]
        pairs.extend(zip_longest(old, new))
    return pairs


def align_plain(wanted: Sequence[str], written: Sequence[str]) -> list[Pair]:
    """The plain twin: back through the table of distances d[i][j] of the first i and j tokens."""
    table = [list(range(len(written) + 1))]
    for i, token in enumerate(wanted, 1):
        above, row = table[-1], [i]
        for j, other in enumerate(written, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (token != other)))
        table.append(row)
    pairs: list[Pair] = []
    i, j = len(wanted), len(written)
    while i or j:
        here = table[i][j]
        if i and j and here == table[i - 1][j - 1] + (wanted[i - 1] != written[j - 1]):
            i, j = i - 1, j - 1
            pairs.append((wanted[i], written[j]))
        elif i and here == table[i - 1][j] + 1:
            i -= 1
            pairs.append((wanted[i], None))
        else:
            j -= 1
            pairs.append((None, written[j]))
    return pairs[::-1]


def closest(references: Sequence[Sequence[str]], written: Sequence[str]) -> Sequence[str]:
    """The reference with the fewest edits; among equals the shorter, as in `error_rate`."""
    return min(references, key=lambda wanted: (edit_distance(written, wanted), len(wanted)))
