"""Reading examples in blocks: the same examples and problems as `read_entries`, several times as fast."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np

from seqloom.data.files.file_groups import FOLDER
from seqloom.data.files.lines import Line, LineError, line_blocks
from seqloom.data.formats.pairs import Example, Group, Problem, is_number, parse_lines, read_entries, too_long

_TAB, _END = b"\t\n"
_MANY = 1 << 14  # examples per block where lines are read one by one


class Pairs(NamedTuple):
    """Consecutive examples."""

    sources: list[str]
    targets: list[str]  # of all examples, flat
    counts: list[int] | None  # targets of each example; None: each has one
    lines: Sequence[int]  # of each example

    def __len__(self) -> int:
        return len(self.sources)

    def examples(self, file: str) -> Iterator[Example]:
        last = 0
        for source, line, count in zip(self.sources, self.lines, self.counts or [1] * len(self.sources), strict=True):
            yield Example(source, tuple(self.targets[last : last + count]), file, line)
            last += count

    def first(self, n: int) -> Pairs:
        targets = n if self.counts is None else sum(self.counts[:n])
        counts = None if self.counts is None else self.counts[:n]
        return Pairs(self.sources[:n], self.targets[:targets], counts, self.lines[:n])

    def select(self, mask: np.ndarray) -> Pairs:
        """The examples where `mask` is true."""
        each = mask if self.counts is None else np.repeat(mask, self.counts)
        counts = None if self.counts is None else list(compress(self.counts, mask))
        sources, lines = list(compress(self.sources, mask)), list(compress(self.lines, mask))
        return Pairs(sources, list(compress(self.targets, each)), counts, lines)


def read_bulk(group: Group, longest: int | None = None) -> Iterator[Pairs | Problem]:
    """All examples of a group, and broken lines in place. `longest`: most characters of a side."""
    if group.form == "tsv":
        return _read_tsv(group, longest)
    if group.form == "parallel":
        return _read_parallel(group, longest)
    if group.form == FOLDER:
        return collect_pairs(read_entries(group), longest)
    return collect_pairs(parse_lines(group, group.lines()), longest)


def collect_pairs(entries: Iterable[Example | Problem], longest: int | None = None) -> Iterator[Pairs | Problem]:
    """Collect single entries into blocks."""
    waiting: list[Example] = []
    for entry in entries:
        problem = entry if isinstance(entry, Problem) else too_long(entry, longest)
        if waiting and (problem is not None or len(waiting) >= _MANY):
            yield _pairs(waiting)
            waiting = []
        if problem is not None:
            yield problem
        elif isinstance(entry, Example):
            waiting.append(entry)
    if waiting:
        yield _pairs(waiting)


def _pairs(examples: list[Example]) -> Pairs:
    counts = [len(example.targets) for example in examples]
    return Pairs(
        [example.source for example in examples],
        [target for example in examples for target in example.targets],
        None if len(counts) == sum(counts) else counts,
        [example.line for example in examples],
    )


def _read_tsv(group: Group, longest: int | None) -> Iterator[Pairs | Problem]:
    for line, raw in line_blocks(group.files[0], group.paths[0], group.encodings[0]):
        found = None if isinstance(raw, LineError) else _parse_tsv(group, line, raw)
        valid = found is not None and (group.target_kind != "number" or all(map(is_number, found.targets)))
        if found is not None and valid and _all_valid(found, longest):
            yield found
        else:
            yield from collect_pairs(parse_lines(group, [_lines(line, raw)]), longest)


def _parse_tsv(group: Group, line: int, raw: bytes) -> Pairs | None:
    """The pairs of a block of which all lines have the same number of columns; None in any other case."""
    if group.header and line == 1:
        line, raw = 2, raw[raw.find(b"\n") + 1 :]
    raw, text = _decode_block(raw)
    if not text:
        return None
    width = raw.count(b"\t", 0, raw.find(b"\n")) + 1
    columns = (0, 1) if group.columns is None and width == 2 else group.columns
    if columns is None or len(columns) != 2 or max(columns) >= width:
        return None
    marks = np.frombuffer(raw, np.uint8)
    marks = marks[(marks == _TAB) | (marks == _END)]
    if len(marks) % width or not (marks.reshape(-1, width) == [_TAB] * (width - 1) + [_END]).all():
        return None
    fields = text.replace("\n", "\t").split("\t")
    fields.pop()  # after the last line end
    source, target = columns
    sources = fields[source::width]
    return Pairs(sources, fields[target::width], None, range(line, line + len(sources)))


def _decode_block(raw: bytes) -> tuple[bytes, str]:
    """A block with LF line ends, and its text; no text if a line may be broken."""
    if b"\r" in raw:
        raw = raw.replace(b"\r\n", b"\n")
    if not raw.endswith(b"\n"):
        raw = raw.removesuffix(b"\r") + b"\n"
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return raw, ""
    doubtful = "\0" in text or text.startswith("\ufeff") or "\n\ufeff" in text
    return raw, "" if doubtful else text


def _all_valid(pairs: Pairs, longest: int | None) -> bool:
    """No side is empty and none too long."""
    sides = pairs.sources, pairs.targets
    return all(
        all(map(str.strip, side)) and (longest is None or max(map(len, side), default=0) <= longest) for side in sides
    )


def _read_parallel(group: Group, longest: int | None) -> Iterator[Pairs | Problem]:
    left, right = (line_blocks(*one) for one in zip(group.files, group.paths, group.encodings, strict=True))
    one, other = next(left, None), next(right, None)
    while one is not None and other is not None:
        (line, raw), (_, beside) = one, other
        if isinstance(raw, LineError) or isinstance(beside, LineError):
            break
        raw, rest, beside, more = _equal_lines(raw, beside)
        found = _zip_blocks(line, raw, beside)
        if found is not None and _all_valid(found, longest):
            yield found
        else:
            yield from collect_pairs(parse_lines(group, [_lines(line, raw), _lines(line, beside)]), longest)
        line += _count(raw)
        one, other = (line, rest) if rest else next(left, None), (line, more) if more else next(right, None)
    if one is not None or other is not None:
        yield from collect_pairs(parse_lines(group, [_all_lines(one, left), _all_lines(other, right)]), longest)


def _equal_lines(one: bytes, other: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Two blocks cut to the same number of lines: the first and its rest, the second and its rest."""
    least = min(_count(one), _count(other))
    here, there = (len(raw) if _count(raw) == least else _end_of_lines(raw, least) for raw in (one, other))
    return one[:here], one[here:], other[:there], other[there:]


def _count(raw: bytes) -> int:
    return raw.count(b"\n") + (not raw.endswith(b"\n"))


def _end_of_lines(raw: bytes, n: int) -> int:
    """The end of the first `n` lines."""
    return int(np.flatnonzero(np.frombuffer(raw, np.uint8) == _END)[n - 1]) + 1


def _zip_blocks(line: int, one: bytes, other: bytes) -> Pairs | None:
    texts = [_decode_block(raw)[1] for raw in (one, other)]
    if not all(texts):
        return None
    sources, targets = (text.split("\n")[:-1] for text in texts)
    return Pairs(sources, targets, None, range(line, line + len(sources)))


def _lines(line: int, raw: bytes | LineError) -> Iterator[Line]:
    return iter([(line, raw)]) if isinstance(raw, LineError) else enumerate(io.BytesIO(raw), line)


def _all_lines(block: Line | None, following: Iterator[Line]) -> Iterator[Line]:
    while block is not None:
        yield from _lines(*block)
        block = next(following, None)
