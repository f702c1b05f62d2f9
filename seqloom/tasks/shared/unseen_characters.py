"""Counts the characters or words of inputs that are not in a model's vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from seqloom.data.tokenizers.tokenizers import UNK
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.plural import counted

SHOWN = 10  # of them, the commonest first
MOST_DISTINCT = 10_000  # different ones that are counted apart


class Note(str):
    """A sentence for the user, and the same as values for JSON."""

    facts: dict[str, Any]

    @classmethod
    def of(cls, text: str, facts: dict[str, Any]) -> Note:
        note = cls(text)
        note.facts = facts
        return note


class UnseenTokens:
    """Counts what is unknown, source by source. `what`: characters or words."""

    def __init__(self, what: str = "characters") -> None:
        self.what, self.lines, self.lines_with = what, 0, 0
        self.found: Counter[str] = Counter()
        self.total = 0

    def add(self, unknown: Sequence[str]) -> None:
        self.lines += 1
        self.lines_with += bool(unknown)
        self.total += len(unknown)
        self.found.update(one for one in unknown if one in self.found or len(self.found) < MOST_DISTINCT)

    @classmethod
    def of(cls, each: Iterable[Sequence[str]], what: str = "characters") -> UnseenTokens:
        made = cls(what)
        for unknown in each:
            made.add(unknown)
        return made

    def to_json(self) -> dict[str, Any]:
        return {
            "count": self.total,
            "lines": self.lines_with,
            "of": self.lines,
            "different": len(self.found),
            "what": self.what,
            "which": dict(self.found.most_common(SHOWN)),
        }

    def notes(self) -> Iterator[Note]:
        """One sentence, if there is anything to tell."""
        if not self.total:
            return
        some = ", ".join(f"{visible_character(one)} ×{count:,}" for one, count in self.found.most_common(SHOWN))
        more = " …" if len(self.found) > SHOWN else ""
        where = f"on {self.lines_with:,} of {counted(self.lines, 'lines')}"
        text = f"{counted(self.total, f'unknown {self.what}')} {where}, which the model never saw: {some}{more}"
        yield Note.of(text, self.to_json())


def visible_character(character: str) -> str:
    """A character for display; with its number where it is hard to see."""
    if character.isprintable() and not character.isspace():
        return repr(character)
    return " ".join(f"U+{ord(one):04X}" for one in character)


def unknown_tokens(codec: Codec, text: str) -> list[str]:
    """The tokens of a text that the codec has no number for."""
    ids = codec.encode(text)
    if UNK not in ids:
        return []
    return [piece for piece, id in zip(codec.display_tokens(text), ids, strict=True) if id == UNK]
