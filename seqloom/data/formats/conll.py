"""Reading tagged sentences: one word and its tag per line, an empty line after each sentence.

CoNLL: columns by blanks or by TABs, the first is the word and the last its tag unless `columns` says otherwise; lines
with -DOCSTART- and comments that begin with "#" are skipped. CoNLL-U (Nivre et al. 2020): ten columns, of
which FORM and UPOS are read; joined words (1-2) and empty ones (1.1) are skipped. Each may be a .gz.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from seqloom.data.files.binary_files import binary_format
from seqloom.data.files.columns import ReadOptions, delimiter_of
from seqloom.data.files.columns import delimiter_name as called
from seqloom.data.files.encodings import UTF8
from seqloom.data.files.file_format import encoding_of
from seqloom.data.files.header import LINES_COMPARED, is_header
from seqloom.data.files.header import is_column_name as known_word
from seqloom.data.files.lines import STDIN, Line, LineError, decode, local_path, read_head, read_lines
from seqloom.data.formats.bad_lines import SHOWN, Skipped
from seqloom.data.formats.pairs import OnNote, Problem, pass_notes
from seqloom.errors import SeqloomError, known
from seqloom.plural import counted

FIELDS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")  # of CoNLL-U
LONGEST = 5_000  # words of a sentence; longer ones mostly mean missing empty lines
DOCUMENT = "-DOCSTART-"


class Sentence(NamedTuple):
    words: tuple[str, ...]
    tags: tuple[str, ...]
    file: str = ""
    lines: tuple[int, ...] = ()  # of each word, counted from 1

    @property
    def text(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True)
class TaggedFile:
    """One file, with its format and columns."""

    file: str  # as named by the user
    path: Path
    form: str  # "conll" or "conllu"
    separator: str  # TAB, or a blank for runs of blanks
    width: int | None  # columns of its first line
    columns: tuple[int, int] | None  # counted from 0; None: the first and the last
    notes: tuple[str, ...] = ()
    encoding: str = UTF8
    header: int = 0  # the line that names the columns; 0: none does


@dataclass
class SentenceBlock:
    """The lines of one sentence."""

    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.words or self.problems)

    def sentence(self, file: str) -> Sentence:
        return Sentence(tuple(self.words), tuple(self.tags), file, tuple(self.lines))


def inspect_file(name: str | Path, reading: ReadOptions) -> TaggedFile:
    """Detect format, encoding, separator and columns of a file from its name and beginning."""
    name = str(name)
    path = local_path(name)
    file = "stdin" if name == STDIN else name
    raw = read_head(file, path)
    if other := binary_format(raw):
        raise SeqloomError(f"{file}: that is {other}")
    encoding, notes = encoding_of(file, raw, reading)
    lines, comments = _lines(file, path, encoding)
    first = lines[0][1] if lines else ""
    fields = first.split("\t")
    universal = len(fields) == len(FIELDS) and fields[0].partition("-")[0].partition(".")[0].isdigit()
    form = "conllu" if name.removesuffix(".gz").endswith(".conllu") or universal else "conll"
    separator = "\t" if form == "conllu" or len(fields) > 1 else " "
    if reading.delimiter is not None:
        separator = delimiter_of(reading.delimiter)
    rows = [(line, split_columns(text, separator)) for line, text in lines]
    width = len(rows[0][1]) if rows else None
    if form == "conll" and reading.detect and (titles := _header_comment(comments, separator, rows)):
        rows.insert(0, titles)
    cells = [row for _, row in rows]
    source = TaggedFile(file, path, form, separator, width, _columns(form, reading, file, cells[:1]), notes, encoding)
    by_name = form == "conll" and reading.column_names is not None and reading.column_numbers is None
    if not rows or form == "conllu" or not (by_name or _is_header(cells, source, reading)):
        return source
    message = f"{file}: the first line ({' '.join(cells[0])}) is taken as a header; --no-header reads it as data"
    return replace(source, header=rows[0][0], notes=(*notes, *([] if by_name else [message])))


def _is_header(rows: list[list[str]], source: TaggedFile, reading: ReadOptions) -> bool:
    if reading.header is not None or not reading.detect:
        return reading.header is True
    return is_header(rows[0], rows[1:], source.columns or (0, len(rows[0]) - 1))


def _lines(file: str, path: Path, encoding: str) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """The first non-empty lines from the first that is no comment, and the comments before it; if there are only
    comments, they are the lines."""
    found: list[tuple[int, str]] = []
    comments: list[tuple[int, str]] = []
    for line, raw in read_lines(file, path, encoding):
        with suppress(LineError):
            text = "" if isinstance(raw, LineError) else decode(raw)
            if text.strip() and not text.startswith(DOCUMENT):
                (found if found or not text.startswith("#") else comments).append((line, text))
        if line > LINES_COMPARED and found:
            break
    return (found[: LINES_COMPARED + 1], comments) if found else (comments[: LINES_COMPARED + 1], [])


def _header_comment(
    comments: list[tuple[int, str]], separator: str, rows: list[tuple[int, list[str]]]
) -> tuple[int, list[str]] | None:
    """The comment that is a header, as in "#word pos ner"."""
    for line, text in comments[::-1]:
        titles = split_columns(text.lstrip("# "), separator)
        if len(titles) == len(rows[0][1]) and all(map(known_word, titles)):
            return line, titles
    return None


def _columns(form: str, reading: ReadOptions, file: str, first: list[list[str]]) -> tuple[int, int] | None:
    names, numbers, given = reading.column_names, reading.column_numbers, f"{file}: --columns {reading.columns!r}"
    if names is None:
        return (1, 3) if form == "conllu" else None
    if numbers is None and form != "conllu":
        fields = first[0] if first else []
        if not set(names) <= set(fields):
            hint = "give the word's and the tag's numbers, as in 1,4"
            raise SeqloomError(f"{given}: columns of CoNLL have no names unless its first line gives them; {hint}")
        numbers = tuple(fields.index(name) for name in names)
    if numbers is None:
        names = names if len(names) > 1 else ("FORM", *names)  # the column of the tag is enough
        numbers = tuple(FIELDS.index(known(name.upper(), FIELDS, "column of CoNLL-U")) for name in names)
    if len(numbers) != 2:
        raise SeqloomError(f"{given}: name two columns: the word, then its tag")
    return numbers[0], numbers[1]


def sentence_blocks(
    source: TaggedFile, observe: Callable[[str, Iterator[Line]], Iterator[Line]] | None = None
) -> Iterator[SentenceBlock]:
    """The sentences of a file, with their problems. `observe` passes the lines through."""
    lines = read_lines(source.file, source.path, source.encoding)
    block = SentenceBlock()
    for line, raw in lines if observe is None else observe(source.file, lines):
        try:
            if isinstance(raw, LineError):
                raise raw
            if line == source.header:
                continue
            text = decode(raw)
            if not text.strip() or text.split(maxsplit=1)[0] == DOCUMENT:
                if block:
                    yield block
                block = SentenceBlock()
            elif found := _parse_word(text, source, not block):
                block.lines.append(line)
                block.words.append(found[0])
                block.tags.append(found[1])
        except LineError as broken:
            block.problems.append(Problem(source.file, line, str(broken), code=broken.code))
    if block:
        yield block


def split_columns(text: str, separator: str) -> list[str]:
    return [field for field in text.split(" ") if field] if separator == " " else text.split(separator)


def _parse_word(text: str, source: TaggedFile, begins: bool) -> tuple[str, str] | None:
    """Word and tag of a line; None for a comment. `begins`: it is the first of the sentence."""
    fields = split_columns(text, source.separator)
    if text.startswith("#") and (source.form == "conllu" or (begins and len(fields) != source.width)):
        return None  # elsewhere "#" may be a word
    if source.form == "conllu":
        _check_conllu(fields)
        if not fields[0].isdigit():
            return None
    word, tag = _word_and_tag(fields, source)
    if not word.strip() or not tag.strip():
        raise LineError(f"the {'tag' if word.strip() else 'word'} is empty", "empty")
    if source.form == "conllu" and tag == "_" and source.columns != (1, 1):
        raise LineError("the tag is _, which means none", "empty")
    if source.separator == " " and "\t" in text:
        raise LineError("a TAB, but the columns of this file stand between blanks", "delimiter")
    return word, tag


def _check_conllu(fields: list[str]) -> None:
    if len(fields) != len(FIELDS):
        raise LineError(f"CoNLL-U has {len(FIELDS)} columns with TABs between, here {len(fields)}", "columns")
    if not fields[0].replace("-", "").replace(".", "").isdigit():
        raise LineError(f"the first column is a number, a range (1-2) or an empty word (1.1), not {fields[0]!r}", "id")


def _word_and_tag(fields: list[str], source: TaggedFile) -> tuple[str, str]:
    name = called(source.separator)
    if source.columns is not None:
        if max(source.columns) >= len(fields):
            raise LineError(f"column {max(source.columns) + 1} is missing: the line has {len(fields)}", "columns")
        return fields[source.columns[0]], fields[source.columns[1]]
    if len(fields) < 2:
        raise LineError(f"no {name}: expected word {name} tag, and an empty line after a sentence", "columns")
    if len(fields) != source.width:
        raise LineError(f"{len(fields)} columns, but the file's first line has {source.width}", "columns")
    return fields[0], fields[-1]


def too_long(block: SentenceBlock, source: TaggedFile, longest: int | None) -> Problem | None:
    """The problem of a sentence of more than `longest` words."""
    if longest is None or len(block.words) <= longest:
        return None
    hint = "are the empty lines between sentences missing?"
    reason = f"a sentence of {len(block.words):,} words, more than {longest:,}: {hint}"
    return Problem(source.file, block.lines[0], reason, code="long")


def sentences(name: str | Path, reading: ReadOptions, on_note: OnNote | None = None) -> Iterator[tuple[str, ...]]:
    """The words of each sentence of a file, for prediction; tags are optional."""
    source = inspect_file(name, ReadOptions(columns=reading.columns, **reading.file_options))
    pass_notes(source.notes, on_note)
    word = source.columns[0] if source.columns else 0
    for block in sentence_blocks(replace(source, columns=(word, word))):
        if block.problems:
            raise SeqloomError(str(block.problems[0]))
        yield tuple(block.words)


class TaggedSentences(NamedTuple):
    """All that was read."""

    sentences: list[Sentence]
    notes: list[str]
    skipped: Skipped


def read(files: Iterable[str | Path], reading: ReadOptions, longest: int | None = LONGEST) -> TaggedSentences:
    """All sentences of some files. A broken line raises `file:line: reason`; with `skip_bad` its sentence is left out
    and counted."""
    found = TaggedSentences([], [], Skipped())
    for name in files:
        source = inspect_file(name, reading)
        found.notes.extend(source.notes)
        good, bad = len(found.sentences), found.skipped.count
        for block in sentence_blocks(source):
            problem = block.problems[0] if block.problems else too_long(block, source, longest)
            if problem is None:
                found.sentences.append(block.sentence(source.file))
            elif reading.skip_bad:
                found.skipped.add(problem)
            else:
                hint = "; max_length cuts long sentences, --skip-bad leaves them out" if problem.code == "long" else ""
                raise SeqloomError(f"{problem}{hint}")
        good, bad = len(found.sentences) - good, found.skipped.count - bad
        if bad > good:
            raise SeqloomError(
                f"{source.file}: {bad:,} of {good + bad:,} sentences are broken, more than half, too many to skip; "
                f"see them all with: seqloom data check tag {source.file}"
            )
    found.notes.extend(_left_out(found.skipped))
    return found


def _left_out(skipped: Skipped) -> Iterator[str]:
    if skipped.count:
        reasons = ", ".join(f"{n:,} {code}" for code, n in sorted(skipped.reasons.items()))
        first = "; ".join(map(str, skipped.first[:SHOWN])) + (" …" if skipped.count > SHOWN else "")
        yield f"left out {counted(skipped.count, 'broken sentences')} ({reasons}): {first}"
