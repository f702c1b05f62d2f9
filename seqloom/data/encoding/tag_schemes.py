"""Tag schemes for spans: which tag may follow which, and from tags to spans and back.

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

# Letters for inside, end and single-word spans, of the schemes that mark the end of a span.
END_LETTERS = {"bioes": "IES", "bilou": "ILU", "bmes": "MES", "bmewo": "MEW"}
SCHEMES = ("bio", "iob1", *END_LETTERS)
OUTSIDE = "O"
_TAG = re.compile("([BIESLUMW])-(.+)", re.S)
_MISSPELT = re.compile(r"([BIESLUMW])\s*[-_‐-―−－:./ ]\s*(.+)", re.S | re.I)
_LOOKALIKES = str.maketrans("ВЕІМЅОΒΕΙΜΟ", "BEIMSOBEIMO")  # Cyrillic and Greek letters that look like Latin ones
_TO_BIOES = {"L": "E", "U": "S", "M": "I", "W": "S"}  # other letters to those of BIOES


class Span(NamedTuple):
    kind: str
    first: int
    last: int  # position of its last word


class ParsedTag(NamedTuple):
    """A tag in two parts; the prefix is one of B I E S O."""

    prefix: str
    kind: str = ""


NO_SPAN = ParsedTag(OUTSIDE)  # also before the first word and after the last


def parse_tag(tag: str) -> ParsedTag | None:
    """The parts of a tag; None if it is not one of a scheme."""
    if tag == OUTSIDE:
        return NO_SPAN
    found = _TAG.fullmatch(tag)
    return None if found is None else ParsedTag(_TO_BIOES.get(found[1], found[1]), found[2])


def detect_scheme(rows: Iterable[Sequence[str]], majority: bool = True) -> str | None:
    """The scheme that most tags follow, one of `SCHEMES`; None if most mark no spans.

    BIO and IOB1 have the same tags: it is IOB1 if spans begin with I, and B stands only where two of one type touch.
    `most=False`: one tag of another form or scheme is enough for None, as in earlier versions.
    """
    letters, begun, other = Counter[str](), Counter[str](), 0
    for row in rows:
        before = NO_SPAN
        for tag in row:
            here = parse_tag(tag)
            other += here is None
            here = here or NO_SPAN
            if here.prefix != OUTSIDE:
                letters[tag[0]] += 1
            if here.prefix in ("B", "I") and here.kind != before.kind:
                begun[here.prefix] += 1
            before = here
    if letters.total() <= other or (not majority and (other or letters.keys() & {"M", "W"})):
        return None
    if not majority and letters.keys() - {"B", "I"}:
        return "bilou" if letters.keys() & {"L", "U"} else "bioes"
    # A scheme with ends has as many ends as beginnings; few are mistakes.
    ends, begins = (sum(letters[letter] for letter in several) for several in ("ESLUMW", "BSUW"))
    if letters.keys() - {"B", "I"} and 2 * ends >= begins:
        return max(END_LETTERS, key=lambda scheme: sum(letters[letter] for letter in END_LETTERS[scheme]))
    return "iob1" if begun["I"] and not begun["B"] else "bio"


def not_in_scheme(tag: str, scheme: str) -> bool:
    """Whether a tag is malformed, or has a letter of another scheme."""
    return tag != OUTSIDE and (parse_tag(tag) is None or tag[0] not in f"B{END_LETTERS.get(scheme, 'I')}")


def suggest_tag(tag: str, tags: Iterable[str]) -> str | None:
    """The tag among the valid `tags` that an invalid one probably stands for: B_LOC, b-loc and BLOC are B-LOC."""
    tag = tag.strip().translate(_LOOKALIKES)
    found = _MISSPELT.fullmatch(tag)
    wanted = f"{found[1]}-{found[2]}".casefold() if found else "o" if tag == "0" else tag.casefold()
    same = (one for one in tags if wanted in (one.casefold(), one.casefold().replace("-", "", 1)))
    return next(same, None)


def is_allowed(before: str | None, after: str | None, scheme: str) -> bool:
    """Whether one tag may follow another; None: before the first word, or after the last. Tags that mark no spans
    always may."""
    left, right = (NO_SPAN if tag is None else parse_tag(tag) for tag in (before, after))
    if left is None or right is None or scheme == "iob1":
        return True
    goes_on = right.prefix in ("I", "E")
    inside = left.prefix in ("B", "I")
    if scheme in END_LETTERS:
        return goes_on == inside and (not inside or left.kind == right.kind)
    return not goes_on or (inside and left.kind == right.kind)


def violations(tags: Sequence[str], scheme: str) -> Iterator[tuple[int, str]]:
    """Positions of a row where the scheme is violated, and how."""
    for place, (before, after) in enumerate(zip((None, *tags), (*tags, None), strict=True)):
        if is_allowed(before, after, scheme):
            continue
        if after is None:
            yield place - 1, f"{before} ends the sentence: its span has no end"
        else:
            yield place, f"{after} {'begins the sentence' if before is None else f'after {before}'}"


def spans(tags: Iterable[str]) -> Iterator[Span]:
    """The spans that tags mark, valid or not, in any scheme: as conlleval reads them (Tjong Kim Sang and De Meulder
    2003), and seqeval by default (Nakayama 2018). An I or E without a beginning begins a span."""
    before, first, place = NO_SPAN, 0, 0
    for place, tag in enumerate(tags):
        here = parse_tag(tag) or NO_SPAN
        goes_on = here.prefix in ("I", "E") and before.prefix in ("B", "I") and here.kind == before.kind
        if before.prefix != OUTSIDE and not goes_on:
            yield Span(before.kind, first, place - 1)
        if not goes_on:
            first = place
        before = here
    if before.prefix != OUTSIDE:
        yield Span(before.kind, first, place)


def strict_spans(tags: Iterable[str], scheme: str) -> Iterator[Span]:
    """Only the well-formed spans: begun by B (or S) and, in BIOES, ended by E."""
    before, first, place = NO_SPAN, 0, 0
    for place, tag in enumerate((*tags, OUTSIDE)):
        here = parse_tag(tag) or NO_SPAN
        if here.prefix in ("I", "E") and before.prefix in ("B", "I") and here.kind == before.kind:
            before = here
            continue
        if before.prefix in (("E", "S") if scheme in END_LETTERS else ("B", "I")):
            yield Span(before.kind, first, place - 1)
        first, before = place, here if here.prefix in ("B", "S") else NO_SPAN


def write_spans(found: Iterable[Span], length: int, scheme: str) -> list[str]:
    """Tags of `length` words that mark the given spans; for IOB1 in BIO."""
    tags = [OUTSIDE] * length
    inside, end, alone = END_LETTERS.get(scheme, "I  ")
    for kind, first, last in found:
        for place in range(first, last + 1):
            tags[place] = f"{'B' if place == first else inside}-{kind}"
        if scheme in END_LETTERS:
            tags[last] = f"{alone if first == last else end}-{kind}"
    return tags


def repair_tags(tags: Sequence[str], scheme: str) -> list[str]:
    """The spans that tags seem to mark, written in the scheme; IOB1 becomes BIO. Tags that mark no spans stay."""
    whole = write_spans(spans(tags), len(tags), scheme)
    return [tag if parse_tag(tag) is None else new for tag, new in zip(tags, whole, strict=True)]
