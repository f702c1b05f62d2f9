"""Columns: which are the source and the targets, and splitting lines into fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from seqloom.data.files.encodings import lookup_encoding
from seqloom.data.files.lines import Line, LineError, decode
from seqloom.data.tokenizers.base_tokenizer import SPECIALS
from seqloom.errors import SeqloomError, known, shown
from seqloom.plural import counted
from seqloom.setting_names import by_first_names, fold_of

# First rows of a .csv that earlier versions took as a header; since then `is_header` decides by the content.
KNOWN_HEADERS = {
    ("source", "target"),
    ("src", "tgt"),
    ("text", "label"),
    ("input", "output"),
    ("question", "answer"),
    ("word", "pronunciation"),
    ("prompt", "completion"),
}
SEPARATORS = {"tsv": "\t", "csv": ","}
DELIMITERS = {
    "tab": "\t",
    "comma": ",",
    "semicolon": ";",
    "bar": "|",
    "pipe": "|",
    "blank": " ",
    "space": " ",
    "\\t": "\t",
}
DELIMITER_NAMES = {"\t": "TAB", ",": "comma", ";": "semicolon", "|": "bar", " ": "blank"}
SPLIT_VERSIONS = (1, 2)  # 1: of older runs; 2: of new ones
# Smallest values of integer settings.
MINIMA = {
    "limit": 1,
    "sample": 1,
    "max_vocab": len(SPECIALS) + 1,
    "min_count": 1,
    "max_length": 1,
    "length": 1,
    "stride": 1,
}

LATER_DEFAULTS = {"sample": None, "rules": 1}  # with the names that they have in fingerprints of caches

USER_FILE_OPTIONS = ("header", "delimiter", "encoding")  # settings of the user on how files are written
FILE_OPTIONS = (*USER_FILE_OPTIONS, "detect")

Columns = tuple[int, ...]
Record = tuple[int, "list[str] | LineError"]


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Which part of the files is read, and how.

    `columns`: "text,label" by the names in the first line (of JSON lines: the keys), or "2,5" by number, from 1; the
    first is the source, the others are targets. `skip_bad`: leave out broken lines. `limit`: only the first so many
    examples of the training files; `sample`: so many from all over them, drawn by a hash. `header`: whether the first
    line names the columns; `delimiter`: what stands between them, by name (tab, comma, semicolon, bar) or itself;
    `encoding`: of the files, as Python calls it. Each is detected from the content unless given.
    `detect`: false for runs of earlier versions, which knew only a few header names in a .csv, UTF-8, and tags of one
    scheme. `split_version`: 1 (older runs) or 2, by which examples are held out (see `Split`) and letters repaired
    (see `CleanedTokenizer`).
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
    def target_kind(self) -> str:
        """What targets are: "text", "label", "number", or "labels:" and their separator."""
        return "text"

    @property
    def fold(self) -> bool | str:
        """The setting `lowercase`, if any, as vocabularies and caches store it."""
        return fold_of(getattr(self, "lowercase", False))

    def __post_init__(self):
        if getattr(self, "lowercase", False) is True:
            object.__setattr__(self, "lowercase", "lower")
        for name, least in MINIMA.items():
            value = getattr(self, name, None)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise SeqloomError(f"{name} must be a whole number of {least} or more, not {value!r}")
        if self.split_version not in SPLIT_VERSIONS or isinstance(self.split_version, bool):
            raise SeqloomError(
                f"data.split_version is {' or '.join(map(str, SPLIT_VERSIONS))}, not {self.split_version!r}"
            )
        if self.limit is not None and self.sample is not None:
            raise SeqloomError("--limit takes the first examples and --sample draws from all of them: choose one")
        if self.delimiter is not None:
            delimiter_of(self.delimiter)
        if self.encoding is not None:
            lookup_encoding(self.encoding)
        names = self.column_names
        if names is None:
            return
        if not all(names):
            raise SeqloomError(f"--columns {self.columns!r}: expected names or numbers with commas between: text,label")
        if len(set(names)) < len(names):
            raise SeqloomError(f"--columns {self.columns!r} names a column twice")
        if self.header is False and self.column_numbers is None:
            raise SeqloomError(f"--columns {self.columns!r}: without a header columns have numbers, not names")
        if self.column_numbers and min(self.column_numbers) < 0:
            raise SeqloomError(f"--columns {self.columns!r}: columns are counted from 1")

    def subset_notes(self, unit: str) -> Iterator[str]:
        """A note where only a part of the training data is read."""
        if self.limit is not None:
            yield f"only the first {self.limit:,} {unit} of the training files are read"
        if self.sample is not None:
            yield f"a fixed random sample of {self.sample:,} of the training {unit} is used"

    @property
    def column_names(self) -> tuple[str, ...] | None:
        return None if self.columns is None else tuple(name.strip() for name in self.columns.split(","))

    @property
    def column_numbers(self) -> Columns | None:
        """Counted from 0; None if the columns have names."""
        names = self.column_names
        if names is None or not all(name.isascii() and name.isdigit() for name in names):
            return None
        return tuple(int(name[:6]) - 1 for name in names)

    @property
    def file_options(self) -> dict[str, Any]:
        """The settings on how files are written."""
        return {name: getattr(self, name) for name in FILE_OPTIONS}


def cache_settings(reading: ReadOptions) -> dict[str, Any]:
    """The settings that enter the fingerprint of a cache, under their first names: without those on how files are
    written, and later ones only where set, so that runs of earlier versions can resume."""
    settings = by_first_names({name: value for name, value in asdict(reading).items() if name not in FILE_OPTIONS})
    return {name: value for name, value in settings.items() if (name, value) not in LATER_DEFAULTS.items()}


class InheritedDelimiter(str):
    """The delimiter of the training files; files of a format without delimiters ignore it."""


def read_options_of_run(data: Mapping[str, Any], columns: str | None, skip_bad: bool) -> ReadOptions:
    """How to read further files for a run with this `data` section. What was not set is detected in each file, unless
    the run is of a version that detected nothing."""
    written: dict[str, Any] = {name: data.get(name) for name in USER_FILE_OPTIONS}
    if columns is not None:
        written["header"] = None  # other columns, other files
    if written["delimiter"] is not None:
        written["delimiter"] = InheritedDelimiter(written["delimiter"])
    written["detect"] = data.get("detect", False)  # runs of earlier versions did not
    return ReadOptions(columns=columns or data.get("columns"), skip_bad=skip_bad, **written)


def delimiter_of(name: str) -> str:
    """The character that `--delimiter` names."""
    sign = DELIMITERS.get(name.strip().lower(), name)
    if len(sign) != 1 or sign.isalnum() or sign in '"\r\n':
        raise SeqloomError(
            f"--delimiter {shown(name)}: expected {', '.join(list(DELIMITERS)[:4])}, blank, or one sign such as ;"
        )
    return sign


def delimiter_name(sign: str) -> str:
    """A delimiter by its name."""
    return DELIMITER_NAMES.get(sign, repr(sign))


def header_columns(names: Sequence[str], fields: Sequence[str], where: str) -> Columns:
    """The numbers of the columns called `names` in the first line."""
    fields = [field.strip() for field in fields]
    try:
        return tuple(fields.index(known(name, fields, "column")) for name in names)
    except SeqloomError as error:
        raise SeqloomError(f"{where}:1: {error}") from None


def is_known_header(fields: Sequence[str]) -> bool:
    return tuple(field.strip().lower() for field in fields) in KNOWN_HEADERS


def select_columns(fields: list[str], columns: Columns | None) -> tuple[str, tuple[str, ...]]:
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


def missing_delimiter(text: str, separator: str) -> LineError:
    """The error for a line with one column, with a hint if it has another delimiter."""
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
    """One record per line, split at the separator; whole without one."""
    for line, raw in lines:
        try:
            if isinstance(raw, LineError):
                raise raw
            text = decode(raw)
            yield line, [text] if separator is None else text.split(separator)
        except LineError as broken:
            yield line, broken
