"""Tags that mark spans: BIO, IOB1 and BIOES, what may follow what in them, and the spans that a row of tags marks.

A tag is O, or a letter, a hyphen and the type of its span. BIO (Ramshaw and Marcus 1995, as of CoNLL 2002): B begins a
span, I goes on. IOB1: B only where two spans of one type touch. BIOES: E ends a span and S is a span of one word;
BILOU is the same with L and U (Ratinov and Roth 2009).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

SCHEMES = ("bio", "iob1", "bioes", "bilou")
ENDED = ("bioes", "bilou")  # those in which the last word of a span has a letter of its own
OUTSIDE = "O"
_TAG = re.compile("([BIESLU])-(.+)", re.S)
_SAME = {"L": "E", "U": "S"}  # of BILOU


class Span(NamedTuple):
    kind: str
    first: int
    last: int  # the place of its last word


class Mark(NamedTuple):
    """A tag in two parts; a letter is one of B I E S O."""

    letter: str
    kind: str = ""


NONE = Mark(OUTSIDE)  # also what stands before the first word and after the last


def mark(tag: str) -> Mark | None:
    """The parts of a tag; None if it marks no spans."""
    if tag == OUTSIDE:
        return NONE
    found = _TAG.fullmatch(tag)
    return None if found is None else Mark(_SAME.get(found[1], found[1]), found[2])


def scheme_of(rows: Iterable[Sequence[str]]) -> str | None:
    """The scheme of rows of tags, one of `SCHEMES`; None if some tag is none of theirs.

    BIO and IOB1 have the same tags: it is IOB1 if spans begin with I, and B stands only where two of one type touch.
    """
    letters: set[str] = set()
    begun = {"B": 0, "I": 0}
    for row in rows:
        before = NONE
        for tag in row:
            here = mark(tag)
            if here is None:
                return None
            letters.add(tag[0])
            if here.letter in begun and here.kind != before.kind:
                begun[here.letter] += 1
            before = here
    if letters <= {OUTSIDE}:
        return None
    if letters & {"E", "S", "L", "U"}:
        return "bilou" if letters & {"L", "U"} else "bioes"
    return "iob1" if begun["I"] and not begun["B"] else "bio"


def legal(before: str | None, after: str | None, scheme: str) -> bool:
    """Whether one tag may follow another; None: before the first word, or after the last. Tags of no
    span always may."""
    left, right = (NONE if tag is None else mark(tag) for tag in (before, after))
    if left is None or right is None or scheme == "iob1":
        return True
    goes_on = right.letter in ("I", "E")
    inside = left.letter in ("B", "I")
    if scheme in ENDED:
        return goes_on == inside and (not inside or left.kind == right.kind)
    return not goes_on or (inside and left.kind == right.kind)


def breaks(tags: Sequence[str], scheme: str) -> Iterator[tuple[int, str]]:
    """Places of a row where the scheme is broken, and in which way."""
    for place, (before, after) in enumerate(zip((None, *tags), (*tags, None), strict=True)):
        if legal(before, after, scheme):
            continue
        if after is None:
            yield place - 1, f"{before} ends the sentence: its span has no end"
        else:
            yield place, f"{after} {'begins the sentence' if before is None else f'after {before}'}"


def spans(tags: Iterable[str]) -> Iterator[Span]:
    """The spans that tags mark, in any scheme and however broken: as conlleval reads them (Tjong Kim Sang and De
    Meulder 2003), and seqeval by default (Nakayama 2018). An I or E with nothing to go on from begins a span."""
    before, first, place = NONE, 0, 0
    for place, tag in enumerate(tags):
        here = mark(tag) or NONE
        goes_on = here.letter in ("I", "E") and before.letter in ("B", "I") and here.kind == before.kind
        if before.letter != OUTSIDE and not goes_on:
            yield Span(before.kind, first, place - 1)
        if not goes_on:
            first = place
        before = here
    if before.letter != OUTSIDE:
        yield Span(before.kind, first, place)


def strict_spans(tags: Iterable[str], scheme: str) -> Iterator[Span]:
    """Only the spans that are written as the scheme says: begun by B (or S) and, in BIOES, ended by E."""
    before, first, place = NONE, 0, 0
    for place, tag in enumerate((*tags, OUTSIDE)):
        here = mark(tag) or NONE
        if here.letter in ("I", "E") and before.letter in ("B", "I") and here.kind == before.kind:
            before = here
            continue
        if before.letter in (("E", "S") if scheme in ENDED else ("B", "I")):
            yield Span(before.kind, first, place - 1)
        first, before = place, here if here.letter in ("B", "S") else NONE


def write(found: Iterable[Span], length: int, scheme: str) -> list[str]:
    """Tags of a row of `length` words that mark some spans; for IOB1 in BIO."""
    tags = [OUTSIDE] * length
    alone, end = ("U", "L") if scheme == "bilou" else ("S", "E")
    for kind, first, last in found:
        for place in range(first, last + 1):
            tags[place] = f"{'B' if place == first else 'I'}-{kind}"
        if scheme in ENDED:
            tags[last] = f"{alone if first == last else end}-{kind}"
    return tags


def repaired(tags: Sequence[str], scheme: str) -> list[str]:
    """The spans that broken tags seem to mark, written as the scheme says; IOB1 becomes BIO."""
    return write(spans(tags), len(tags), scheme)
