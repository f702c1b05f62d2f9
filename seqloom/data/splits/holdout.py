"""Holding out and sampling examples by stable hashes of their sources.

The same source is never on both sides, whatever the order of the lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from zlib import crc32

import numpy as np

TOLERANCE = 0.2  # relative deviation from the requested share that is noted


def source_codes(texts: Sequence[str]) -> np.ndarray:
    """[texts] uint32: CRC-32 of normalized texts, white space collapsed."""
    whole = map(str.encode, map(" ".join, map(str.split, texts)))
    return np.fromiter(map(crc32, whole), np.uint32, len(texts))


def keyed_hashes(found: np.ndarray, key: str) -> np.ndarray:
    """[codes] uint64: uniform hashes, different for each key."""
    return _splitmix64(found.astype(np.uint64) ^ np.frombuffer(blake2b(key.encode(), digest_size=8).digest(), "<u8")[0])


def _splitmix64(value: np.ndarray) -> np.ndarray:
    """splitmix64 (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        value = value + np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return value ^ (value >> np.uint64(31))


def sample_mask(found: np.ndarray, count: int) -> np.ndarray:
    """[examples] bool: a sample of `count` by hashes. Duplicates are drawn independently."""
    order = np.argsort(found, kind="stable")
    new = np.flatnonzero(np.diff(found[order], prepend=~found[order[:1]]))
    again = np.arange(len(found)) - np.repeat(new, np.diff(new, append=len(found)))
    own = np.empty(len(found), np.uint64)
    own[order] = _splitmix64(found[order] + again.astype(np.uint64))
    chosen = np.zeros(len(found), bool)
    chosen[np.argsort(own, kind="stable")[:count]] = True
    return chosen


def held_out_mask(
    found: np.ndarray,
    share: float,
    fold: tuple[int, int] | None = None,
    labels: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """[examples] bool. `found`: their hashes; `labels`: numbered; `weights`: how much each counts, 1 unless given.

    Of every label the sources with the lowest hashes, up to the `share`; in a cross-validation the part of `fold`
    (number, count).
    """
    sources, place = np.unique(found, return_inverse=True)
    place = place.reshape(-1)
    if not len(sources) or (
        fold is not None and len(sources) < fold[1]
    ):  # some would be empty: reported at the first, not after training others
        return np.zeros(len(found), bool)
    amounts = np.bincount(place, weights, len(sources)).astype(np.int64)
    out = np.zeros(len(sources), bool)
    least = share if fold is None else 1 / fold[1]
    strata = list(_strata(amounts, None if labels is None else _commonest(place, labels), least))
    if fold is not None:
        for members, number in zip(strata, _deal_folds([amounts[one] for one in strata], fold[1]), strict=True):
            out[members[number == fold[0] - 1]] = True
        return out[place]
    more = 0.0  # what the previous labels lack, or have too much if below 0
    for members in strata:
        more += share * int(amounts[members].sum())
        chosen = members[_fill(amounts[members], more)]
        out[chosen] = True
        more -= int(amounts[chosen].sum())
    _correct_size(out, amounts, share * int(amounts.sum()))
    return out[place]


def _correct_size(out: np.ndarray, amounts: np.ndarray, wanted: float) -> None:
    """Where labels of few large sources miss the wanted size by far, and no source is larger than it, correct the size
    at the expense of the label mix: drop one source, and fill up from all labels."""
    if amounts.max(initial=0) > wanted:
        return
    over = int(amounts[out].sum()) - wanted
    if over > TOLERANCE * wanted:
        enough = np.flatnonzero(out & (amounts >= over - TOLERANCE * wanted))
        out[enough[np.argmin(amounts[enough])] if len(enough) else np.argmax(out * amounts)] = False
        over = int(amounts[out].sum()) - wanted
    if over < -TOLERANCE * wanted:
        free = np.flatnonzero(~out)
        out[free[_fill(amounts[free], -over - TOLERANCE * wanted / 2)]] = True  # no more than necessary


def missed_share(held: int, total: int, share: float, largest: int) -> str:
    """The reason for a note where the held-out share is far from the requested one; else empty."""
    wanted = share * total
    if not held or abs(held - wanted) <= max(TOLERANCE * wanted, 1):
        return ""
    why = f"examples with the same source stay together, and one source has {largest:,} of them"
    return f"instead of the {share:.1%} asked for: {why}"


def _commonest(place: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[sources]: the most frequent label of each; of ties the first."""
    width = int(labels.max(initial=0)) + 1
    pairs, counts = np.unique(place.astype(np.int64) * width + labels, return_counts=True)
    order = np.lexsort((pairs, -counts, pairs // width))
    first = np.unique(pairs[order] // width, return_index=True)[1]
    return pairs[order][first] % width


def _strata(amounts: np.ndarray, labels: np.ndarray | None, share: float) -> Iterator[np.ndarray]:
    """Sources by label, in the order of their hashes; rare labels first. Labels of which less than one example would be
    held out form one stratum."""
    if labels is None:
        yield np.arange(len(amounts))
        return
    sums = np.bincount(labels, amounts)
    labels = np.where(sums[labels] * share < 1, -1, labels)
    order = np.argsort(labels, kind="stable")
    ends = np.flatnonzero(np.diff(labels[order])) + 1
    yield from sorted(np.split(order, ends), key=lambda one: (int(amounts[one].sum()), int(labels[one[0]])))


def _fill(amounts: np.ndarray, wanted: float) -> np.ndarray:
    """Positions, in order, whose amounts sum to about `wanted`; too large ones are skipped."""
    chosen: list[np.ndarray] = []
    left, free = np.flatnonzero(amounts <= wanted), np.ones(len(amounts), bool)
    while len(left):
        ends = np.cumsum(amounts[left])
        full = int(np.searchsorted(ends, wanted, side="right"))
        chosen.append(left[:full])
        free[left[:full]] = False
        wanted -= int(ends[full - 1]) if full else 0
        left = left[full:]
        left = left[amounts[left] <= wanted]
    rest = np.flatnonzero(free & (amounts < 2 * wanted))  # one of these brings the sum nearer
    if len(rest):
        chosen.append(rest[[np.argmin(amounts[rest])]])
    return np.concatenate([np.zeros(0, np.int64), *chosen])


def _deal_folds(strata: Iterable[np.ndarray], count: int) -> Iterator[np.ndarray]:
    """Fold of each source, by stratum: the largest first, each into the smallest fold so far."""
    total = [0] * count
    for amounts in strata:
        piles = [(0, total[number], number) for number in range(count)]
        heapify(piles)
        found = np.empty(len(amounts), np.int64)
        order = np.argsort(-amounts, kind="stable")
        for place, amount in zip(order.tolist(), amounts[order].tolist(), strict=True):
            here, everywhere, number = heappop(piles)
            found[place] = number
            heappush(piles, (here + amount, everywhere + amount, number))
        for here, _, number in piles:
            total[number] += here
        yield found
