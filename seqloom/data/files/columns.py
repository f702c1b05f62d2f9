"""Columns of a line: which of them are the source and the targets, and how a line is cut into them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from seqloom.data.files.encodings import named
from seqloom.data.files.lines import Line, LineError, decode
from seqloom.data.tokenizers.base_tokenizer import SPECIALS
from seqloom.errors import SeqloomError, known, shown
from seqloom.plural import counted
from seqloom.setting_names import by_first_names, fold_of

FARTHEST = 10_000  # lines a quoted field may span before its quote counts as forgotten
# What a first row of a .csv had to be to be taken as names before its content was looked at; see `header`.
HEADERS = {
    ("source", "target"),
    ("src", "tgt"),
    ("text", "label"),
    ("input", "output"),
    ("question", "answer"),
    ("word", "pronunciation"),
    ("prompt", "completion"),
}
SEPARATORS = {"tsv": "\t", "csv": ","}
SIGNS = {"tab": "\t", "comma": ",", "semicolon": ";", "bar": "|", "pipe": "|", "blank": " ", "space": " ", "\\t": "\t"}
NAMES = {"\t": "TAB", ",": "comma", ";": "semicolon", "|": "bar", " ": "blank"}
RULES = (1, 2)  # of the data: what older runs were made by, and what new ones are
# The least of settings that are whole numbers and mean the same in every kind of data that has them.
LEAST = {
    "limit": 1,
    "sample": 1,
    "max_vocab": len(SPECIALS) + 1,
    "min_count": 1,
    "max_length": 1,
    "length": 1,
    "stride": 1,
}

LATEST = {"sample": None, "rules": 1}  # by their first names, as caches know them

TOLD = ("header", "delimiter", "encoding")  # what may be said of how files are written
WRITTEN = (*TOLD, "detect")

Columns = tuple[int, ...]
Record = tuple[int, "list[str] | LineError"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Which part of the files is read.

    `columns`: "text,label" by the names in the first line (of JSON lines: the keys), or "2,5" by number, from 1; the
    first is the source, the others are targets. `skip_bad`: leave out broken lines. `limit`: only the first so many
    examples of the training files; `sample`: so many from all over them, drawn by a hash. `header`: whether the first
    line names the columns; `delimiter`: what stands between them, by name (tab, comma, semicolon, bar) or itself;
    `encoding`: of the files, as Python calls it. Each is told by the content of a file where it is not given.
    `detect`: false for runs of earlier versions, for which only a few names in a .csv were a header, and files were
    UTF-8 and tags of one scheme throughout. `split_version`: 1 or 2, by which examples are held out (see `Split`) and
    letters mended (see `Cleaned`); new runs have 2, those from before 1.
    """

    columns: str | None = None
    skip_bad: bool = False
    limit: int | None = None
    sample: int | None = None
    split_version: int = 1
    header: bool | None = None
    delimiter: str | None = None
    encoding: str | None = None
    detect: bool = True

    @property
    def values(self) -> str:
        """What targets are: "text", "label", "number", or "labels:" and the sign between them."""
        return "text"

    @property
    def fold(self) -> bool | str:
        """The setting `lowercase`, where there is one, as vocabularies and caches have it."""
        return fold_of(getattr(self, "lowercase", False))

    def __post_init__(self):
        if getattr(self, "lowercase", False) is True:
            object.__setattr__(self, "lowercase", "lower")
        for name, least in LEAST.items():
            value = getattr(self, name, None)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise SeqloomError(f"{name} must be a whole number of {least} or more, not {value!r}")
        if self.split_version not in RULES or isinstance(self.split_version, bool):
            raise SeqloomError(f"data.split_version is {' or '.join(map(str, RULES))}, not {self.split_version!r}")
        if self.limit is not None and self.sample is not None:
            raise SeqloomError("--limit takes the first examples and --sample draws from all of them: choose one")
        if self.delimiter is not None:
            sign_of(self.delimiter)
        if self.encoding is not None:
            named(self.encoding)
        names = self.names
        if names is None:
            return
        if not all(names):
            raise SeqloomError(f"--columns {self.columns!r}: expected names or numbers with commas between: text,label")
        if len(set(names)) < len(names):
            raise SeqloomError(f"--columns {self.columns!r} names a column twice")
        if self.header is False and self.numbers is None:
            raise SeqloomError(f"--columns {self.columns!r}: without a header columns have numbers, not names")
        if self.numbers and min(self.numbers) < 0:
            raise SeqloomError(f"--columns {self.columns!r}: columns are counted from 1")

    def subset_notes(self, unit: str) -> Iterator[str]:
        """A sentence, where not all of the training files is read."""
        if self.limit is not None:
            yield f"only the first {self.limit:,} {unit} of the training files are read"
        if self.sample is not None:
            yield f"a fixed random sample of {self.sample:,} of the training {unit} is used"

    @property
    def names(self) -> tuple[str, ...] | None:
        return None if self.columns is None else tuple(name.strip() for name in self.columns.split(","))

    @property
    def numbers(self) -> Columns | None:
        """Counted from 0; None if the columns have names."""
        names = self.names
        if names is None or not all(name.isascii() and name.isdigit() for name in names):
            return None
        return tuple(int(name[:6]) - 1 for name in names)

    @property
    def written(self) -> dict[str, Any]:
        """How files are written, as far as it was given."""
        return {name: getattr(self, name) for name in WRITTEN}


def since(reading: Reading) -> dict[str, Any]:
    """What the name of a cache is made of: all settings under the names that they had first, but for those of how files
    are written, and the latest only where they are set, so that runs of earlier versions can go on."""
    settings = by_first_names({name: value for name, value in asdict(reading).items() if name not in WRITTEN})
    return {name: value for name, value in settings.items() if (name, value) not in LATEST.items()}


class Inherited(str):
    """The delimiter given for the training files: files of a form without one are read all the same."""


def as_trained(data: Mapping[str, Any], columns: str | None, skip_bad: bool) -> Reading:
    """How further files are read: as those of a training whose `data` section is given. What was not given then is
    detected in them by itself, where that training recognised anything."""
    written: dict[str, Any] = {name: data.get(name) for name in TOLD}
    if columns is not None:
        written["header"] = None  # other columns, other files
    if written["delimiter"] is not None:
        written["delimiter"] = Inherited(written["delimiter"])
    written["detect"] = data.get("detect", False)  # runs of earlier versions did not
    return Reading(columns=columns or data.get("columns"), skip_bad=skip_bad, **written)


def sign_of(name: str) -> str:
    """The sign that `--delimiter` names."""
    sign = SIGNS.get(name.strip().lower(), name)
    if len(sign) != 1 or sign.isalnum() or sign in '"\r\n':
        raise SeqloomError(
            f"--delimiter {shown(name)}: expected {', '.join(list(SIGNS)[:4])}, blank, or one sign such as ;"
        )
    return sign


def delimiter_name(sign: str) -> str:
    """A delimiter by its name."""
    return NAMES.get(sign, repr(sign))


def header(names: Sequence[str], fields: Sequence[str], where: str) -> Columns:
    """Where the columns called `names` stand in the first line."""
    fields = [field.strip() for field in fields]
    try:
        return tuple(fields.index(known(name, fields, "column")) for name in names)
    except SeqloomError as error:
        raise SeqloomError(f"{where}:1: {error}") from None


def looks_like_header(fields: Sequence[str]) -> bool:
    return tuple(field.strip().lower() for field in fields) in HEADERS


def pick(fields: list[str], columns: Columns | None) -> tuple[str, tuple[str, ...]]:
    """Source and targets. Further targets may be empty, and then are none."""
    if columns is not None:
        if max(columns) >= len(fields):
            has = counted(len(fields), "columns")
            raise LineError(f"column {max(columns) + 1} is missing: the line has {has}", "columns")
        fields = [fields[column] for column in columns]
    source, *targets = fields
    if len(targets) > 1:
        targets[1:] = [target for target in targets[1:] if target and not target.isspace()]
    return source, tuple(targets)


def no_separator(text: str, separator: str) -> LineError:
    """What to say of a line of one column: perhaps something else stands where the separator should."""
    name = delimiter_name(separator)
    expected = f"expected source {name} target"
    other, hint = next(
        (
            (shown, hint)
            for mark, shown, hint in (
                ("\t", "a TAB", "did you mean a .tsv file?"),
                (";", '";"', "--delimiter semicolon reads it"),
                ("|", '"|"', "--delimiter bar reads it"),
                (",", '","', "did you mean a .csv file?"),
            )
            if mark in text and mark != separator
        ),
        (None, ""),
    )
    if other is None and re.search(r"\S {2,}\S", text):
        other, hint = "several blanks", f"put a {name} there"
    if other is None:
        return LineError(f"no {name}: {expected}", "columns")
    return LineError(f"no {name} but {other}: {expected}; {hint}", "delimiter")


def line_records(lines: Iterator[Line], separator: str | None) -> Iterator[Record]:
    """A record a line, cut at the separator; whole without one."""
    for line, raw in lines:
        try:
            if isinstance(raw, LineError):
                raise raw
            text = decode(raw)
            yield line, [text] if separator is None else text.split(separator)
        except LineError as broken:
            yield line, broken


def csv_records(lines: Iterator[Line], separator: str = ",") -> Iterator[Record]:
    """Records with the line where each starts (RFC 4180: quotes may hold commas, doubled quotes and line ends).

    After a quote that is never closed reading goes on at the next line, so that one slip costs one line.
    """
    ahead: deque[Line] = deque()
    while first := ahead.popleft() if ahead else next(lines, None):
        line, raw = first
        try:
            if isinstance(raw, LineError):
                raise raw
            text = decode(raw)
            yield line, text.split(separator) if '"' not in text else _quoted(text, ahead, lines, separator)
        except LineError as broken:
            yield line, broken


def _quoted(text: str, ahead: deque[Line], lines: Iterator[Line], separator: str) -> list[str]:
    """The fields of a record that begins with the line `text`; takes the further lines it spans from `ahead`."""
    fields, parts, broken = split_csv(text, separator), [text], LineError("the quote is never closed", "quote")
    while fields is None:
        if len(parts) > len(ahead):
            following = next(lines, None) if len(parts) <= FARTHEST else None
            if following is None:
                raise broken
            ahead.append(following)
        raw = ahead[len(parts) - 1][1]
        if isinstance(raw, LineError):
            raise broken
        try:
            parts.append(decode(raw))
            fields = split_csv("\n".join(parts), separator) if '"' in parts[-1] else None
        except LineError:
            raise broken from None
    for _ in parts[1:]:
        ahead.popleft()
    return fields


def split_csv(text: str, separator: str = ",") -> list[str] | None:
    """The fields of one record; None if a quote is still open at its end."""
    fields: list[str] = []
    place = 0
    while True:
        if text.startswith('"', place):
            close = _closing(text, place + 1)
            if close < 0:
                return None
            fields.append(text[place + 1 : close].replace('""', '"'))
            place = close + 1
            if not text.startswith(separator, place) and place < len(text):
                raise LineError(f"text after the closing quote at character {place}; double quotes inside", "quote")
        else:
            end = text.find(separator, place)
            field = text[place:] if end < 0 else text[place:end]
            if field.count('"') % 2:
                at = place + field.index('"') + 1
                raise LineError(f"unbalanced quote at character {at} of the line", "quote")
            fields.append(field)
            place += len(field)
        if place >= len(text):
            return fields
        place += 1  # the separator; after the last one an empty field follows


def _closing(text: str, place: int) -> int:
    """Where the quote is that closes a field; a doubled one does not. -1: nowhere."""
    while (place := text.find('"', place)) >= 0 and text.startswith('""', place):
        place += 2
    return place
