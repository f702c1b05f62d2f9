"""Suspicious but readable lines: mixed line ends, invisible characters, unclosed quotes."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator

import numpy as np

from seqloom.data.files.lines import Line, LineError
from seqloom.data.formats.pairs import Problem
from seqloom.data.tokenizers.graphemes import EMOJI

_NAMES = {
    "\u200b": "zero width space",
    "\u200c": "zero width non-joiner",
    "\u200d": "zero width joiner",
    "\u2060": "word joiner",
    "\ufeff": "byte order mark",
}
# Scripts that use the joiners: Arabic to Tibetan with all of India, Myanmar, Khmer, Mongolian, Arabic forms, Brahmi.
_SCRIPTS = "\u0600-\u0fff\u1000-\u109f\u1780-\u18af\ua840-\ua8ff\ufb50-\ufdff\ufe70-\ufefc\U00011000-\U00011fff"
# Zero-width characters, and marks of writing direction. A joiner is legitimate after a letter of those scripts; U+200D
# also between two emoji, of which the first may have a skin tone or a variation selector.
_SUSPICIOUS = re.compile(
    "[\u200b\u2060\ufeff\u202a-\u202e\u2066-\u2069]"
    f"|(?<![{_SCRIPTS}])(?:\u200c|\u200d(?:(?<![{EMOJI}\ufe0f\U0001f3fb-\U0001f3ff]\u200d)|(?![{EMOJI}])))"
)
_INVISIBLE = re.compile("[\u200b-\u200d\u2060\ufeff\u202a-\u202e\u2066-\u2069]")  # fast check: most texts have none
_MAX_BYTES = 1 << 16  # longer lines are reported as long, and not searched
_LF, _CRLF, _NONE = range(3)


class SuspiciousText:
    """Inspects the lines of a group as they are read, and collects `problems`."""

    def __init__(self, form: str):
        self.form = form
        self.problems: list[Problem] = []
        self._ends: dict[str, bytearray] = {}  # line end of every line, by file
        self._begins = array("q")  # first lines of the records of a .csv; other lines are within quotes

    def record_start(self, line: int) -> None:
        """Note the first line of a .csv record."""
        if self.form == "csv":
            self._begins.append(line)

    @property
    def lines(self) -> int:
        return max(map(len, self._ends.values()), default=0)

    def observe(self, file: str, lines: Iterator[Line]) -> Iterator[Line]:
        ends = self._ends.setdefault(file, bytearray())
        for line, raw in lines:
            if not isinstance(raw, LineError):
                ends.append(_CRLF if raw.endswith(b"\r\n") else _LF if raw.endswith(b"\n") else _NONE)
                if len(raw) <= _MAX_BYTES and (not raw.isascii() or b"\r" in raw or b'"' in raw):
                    self.problems += (Problem(file, line, reason, "warning", code) for code, reason in self._look(raw))
            else:
                ends.append(_NONE)
            yield line, raw

    def _look(self, raw: bytes) -> Iterator[tuple[str, str]]:
        try:
            text = raw.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError:
            return  # reported as an error elsewhere
        if "\r" in text:
            yield "line-end", f"CR inside the line at character {text.index(chr(13)) + 1}: an old line end?"
        if self.form == "tsv" and any(field[:1] == '"' and '"' not in field[1:] for field in text.split("\t")):
            yield "quote", "a column begins with a quote that is not closed; in TSV quotes are text"
        hidden = _SUSPICIOUS.search(text) if _INVISIBLE.search(text) else None
        if hidden is not None and not text.startswith("\ufeff"):
            name = _NAMES.get(hidden[0], "mark of writing direction")
            yield "invisible", f"U+{ord(hidden[0]):04X} ({name}) at character {hidden.start() + 1}, which is invisible"

    def _record_ends(self, kinds: np.ndarray) -> np.ndarray:
        """Ignore line ends within quotes: spreadsheets end rows in CRLF, and lines of a cell in LF."""
        if not self._begins:
            return kinds
        last = np.zeros(len(kinds) + 1, bool)
        last[np.minimum(np.asarray(self._begins) - 1, len(kinds))] = True  # the line before a record ends another
        last[len(kinds)] = True
        return np.where(last[1:], kinds, _NONE)

    def line_ends(self) -> Iterator[Problem]:
        """Lines whose ends differ from most lines of their file."""
        for file, ends in self._ends.items():
            kinds = self._record_ends(np.frombuffer(ends, np.uint8))
            crlf, lf = int((kinds == _CRLF).sum()), int((kinds == _LF).sum())
            rare, names = (_LF, "LF, most lines in CRLF") if crlf > lf else (_CRLF, "CRLF, most lines in LF")
            for line in np.flatnonzero(kinds == rare).tolist() if min(crlf, lf) else ():
                yield Problem(file, line + 1, f"the line ends in {names}", "warning", "line-end")
