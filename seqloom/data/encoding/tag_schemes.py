"""Tags that mark spans: the schemes, what may follow what in them, and the spans that a row of tags marks.

A tag is O, or a letter, a hyphen and the type of its span. BIO (Ramshaw and Marcus 1995, as of CoNLL 2002): B begins a
span, I goes on. IOB1: B only where two spans of one type touch. BIOES: E ends a span and S is a span of one word. The
others are BIOES with other letters: L and U in BILOU (Ratinov and Roth 2009), M for I in BMES, as Chinese names are
published (Zhang and Yang 2018), and M and W in BMEWO (Borthwick 1999).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

# What goes on, ends, and stands alone in those schemes in which the last word of a span has a letter of its own.
ENDED = {"bioes": "IES", "bilou": "ILU", "bmes": "MES", "bmewo": "MEW"}
SCHEMES = ("bio", "iob1", *ENDED)
OUTSIDE = "O"
_TAG = re.compile("([BIESLUMW])-(.+)", re.S)
_ALMOST = re.compile(r"([BIESLUMW])\s*[-_‐-―−－:./ ]\s*(.+)", re.S | re.I)
_ALIKE = str.maketrans("ВЕІМЅОΒΕΙΜΟ", "BEIMSOBEIMO")  # Cyrillic and Greek letters that look as the Latin ones do
_SAME = {"L": "E", "U": "S", "M": "I", "W": "S"}  # as BIOES has it


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


def scheme_of(rows: Iterable[Sequence[str]], most: bool = True) -> str | None:
    """The scheme that most tags of some rows keep to, one of `SCHEMES`; None if most mark no spans.

    BIO and IOB1 have the same tags: it is IOB1 if spans begin with I, and B stands only where two of one type touch.
    `most=False`: one tag of another form or scheme is enough for None, as runs of earlier versions have it.
    """
    letters, begun, other = Counter[str](), Counter[str](), 0
    for row in rows:
        before = NONE
        for tag in row:
            here = mark(tag)
            other += here is None
            here = here or NONE
            if here.letter != OUTSIDE:
                letters[tag[0]] += 1
            if here.letter in ("B", "I") and here.kind != before.kind:
                begun[here.letter] += 1
            before = here
    if letters.total() <= other or (not most and (other or letters.keys() & {"M", "W"})):
        return None
    if not most and letters.keys() - {"B", "I"}:
        return "bilou" if letters.keys() & {"L", "U"} else "bioes"
    # Where every span is ended there are as many ends as beginnings; by mistake there are few.
    if letters.keys() - {"B", "I"} and 2 * sum(letters[letter] for letter in "ESLUMW") >= _spans(letters):
        return max(ENDED, key=lambda scheme: sum(letters[letter] for letter in ENDED[scheme]))
    return "iob1" if begun["I"] and not begun["B"] else "bio"


def _spans(letters: Counter[str]) -> int:
    """How many spans are begun, where each begins with a letter of its own."""
    return sum(letters[letter] for letter in "BSUW")


def odd(tag: str, scheme: str) -> bool:
    """Whether a tag is none of its scheme: of another form, or with a letter of another scheme."""
    return tag != OUTSIDE and (mark(tag) is None or tag[0] not in f"B{ENDED.get(scheme, 'I')}")


def meant(tag: str, tags: Iterable[str]) -> str | None:
    """The tag among `tags`, all of which are sound, that an odd one was probably meant to be: B_LOC, b-loc and BLOC are
    B-LOC."""
    tag = tag.strip().translate(_ALIKE)
    found = _ALMOST.fullmatch(tag)
    wanted = f"{found[1]}-{found[2]}".casefold() if found else "o" if tag == "0" else tag.casefold()
    same = (one for one in tags if wanted in (one.casefold(), one.casefold().replace("-", "", 1)))
    return next(same, None)


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
    inside, end, alone = ENDED.get(scheme, "I  ")
    for kind, first, last in found:
        for place in range(first, last + 1):
            tags[place] = f"{'B' if place == first else inside}-{kind}"
        if scheme in ENDED:
            tags[last] = f"{alone if first == last else end}-{kind}"
    return tags


def repaired(tags: Sequence[str], scheme: str) -> list[str]:
    """The spans that broken tags seem to mark, written as the scheme says; IOB1 becomes BIO. Tags of no span stay."""
    whole = write(spans(tags), len(tags), scheme)
    return [tag if mark(tag) is None else new for tag, new in zip(tags, whole, strict=True)]
