"""User-perceived characters: extended grapheme clusters (Unicode Standard Annex #29)."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache

# Latin, Cyrillic, kana, CJK and whole Hangul syllables never combine: most texts need no regular expression.
_SIMPLE = re.compile(
    "[\x00-\x0c\x0e-\u02ff\u0400-\u0482\u048a-\u052f\u2010-\u2027\u3041-\u3096\u30a1-\u30ff\u4e00-\u9fff\uac00-\ud7a3]*"
)
_PREPEND = (  # Grapheme_Cluster_Break=Prepend: signs before their base
    "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e\U000110bd\U000110cd\U000111c2\U000111c3\U0001193f\U00011941"
    "\U00011a3a\U00011a84-\U00011a89\U00011d46\U00011f02"
)
_ALONE = (  # spacing marks (Mc) of Myanmar, Tai Tham and Ahom that UAX #29 lets stand alone
    "\u102b\u102c\u1038\u1062-\u1064\u1067-\u106d\u1083\u1087-\u108c\u108f\u109a-\u109c\u1a61\u1a63\u1a64\uaa7b\uaa7d"
    "\U00011720\U00011721"
)
_EXTRA = "\u200c\u0e33\u0eb3\uff9e\uff9f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f"  # extend, but are no marks
EMOJI = (  # approximates Extended_Pictographic, which `unicodedata` lacks; matters only next to a joiner
    "\xa9\xae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a-\u23ff\u24c2\u25aa-\u25fe\u2600-\u27bf\u2934\u2935"
    "\u2b05-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001f1e5\U0001f201-\U0001f3fa\U0001f400-\U0001faff"
)


def graphemes(text: str) -> list[str]:
    """Extended grapheme clusters; joined they are `text` again. Marks, skin tones and joined emoji stay whole."""
    return list(text) if one_per_character(text) else _clusters().findall(text)


def one_per_character(text: str) -> bool:
    """Every character is a cluster of its own."""
    return "\r" not in text if text.isascii() else _SIMPLE.fullmatch(text) is not None


@cache
def _clusters() -> re.Pattern[str]:
    return re.compile(cluster_pattern(), re.DOTALL)


def cluster_pattern() -> str:
    """UAX #29, table 1c, as a regular expression; the classes come from the interpreter's Unicode tables."""
    spans = (range(0x20000), range(0xE0000, 0xE0200))  # beyond these there are no marks and no controls
    kinds = [(chr(code), unicodedata.category(chr(code))) for span in spans for code in span]
    alone, extra = re.compile(f"[{_ALONE}]"), re.compile(f"[{_EXTRA}{_PREPEND}\u200d]")
    marks = _ranges(char for char, kind in kinds if kind[0] == "M" and not alone.match(char)) + _EXTRA
    control = _ranges(char for char, kind in kinds if kind in ("Cc", "Cf", "Zl", "Zp") and not extra.match(char))
    syllables = "".join(map(chr, range(0xAC00, 0xD7A4, 28)))  # LV: no final consonant yet
    lead, vowel, tail = "[\u1100-\u115f\ua960-\ua97c]", "[\u1160-\u11a7\ud7b0-\ud7c6]", "[\u11a8-\u11ff\ud7cb-\ud7fb]"
    hangul = f"{lead}*(?:{vowel}+|[{syllables}]{vowel}*|[\uac00-\ud7a3]){tail}*|{lead}+|{tail}+"
    flag = "[\U0001f1e6-\U0001f1ff]{2}"
    picture = f"[{EMOJI}](?:[{marks}]*\u200d[{EMOJI}])*"
    core = f"{hangul}|{flag}|{picture}|[^{control}]"
    return f"\r\n|[{control}]|[{_PREPEND}]*(?:{core})[{marks}\u200d]*"


def _ranges(chars: Iterable[str]) -> str:
    """Sorted characters as the inside of a regular-expression class."""

    def runs() -> Iterator[tuple[int, int]]:
        first = last = -2
        for code in map(ord, chars):
            if code != last + 1:
                yield first, last
                first = code
            last = code
        yield first, last

    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in runs() if 0 <= first <= sys.maxunicode)
