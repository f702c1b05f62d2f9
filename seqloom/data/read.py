"""Reading examples from the user's files: TSV, JSON lines or two parallel texts, each possibly as .gz.

A file is read as a stream and may be of any size; what a line is, `lines` says.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.data.lines import STDIN, Line, LineError, decode, form_of, number, place, read_lines
from seqloom.errors import SeqloomError

_KINDS = {str: "text", int: "a number", float: "a number", bool: "true or false", list: "a list", dict: "an object"}


class Example(NamedTuple):
    source: str
    targets: tuple[str, ...]  # the first is the target; others are further right answers (references)
    file: str
    line: int  # counted from 1


class Problem(NamedTuple):
    """One broken or doubtful line."""

    file: str
    line: int
    reason: str
    kind: str = "error"  # or "warning"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


@dataclass(frozen=True)
class Group:
    """Files that are read together: one, or two parallel ones."""

    form: str  # "tsv", "jsonl" or "parallel"
    files: tuple[str, ...]  # as the user calls them
    paths: tuple[Path, ...]  # where they are; standard input has been copied to a file

    def __str__(self) -> str:
        return " + ".join(self.files)


def group(files: Iterable[str | Path]) -> list[Group]:
    """Sort out file names: .jsonl is JSON lines; .tsv or a first line with a TAB is TSV; others come in pairs."""
    groups: list[Group] = []
    waiting: tuple[str, Path] | None = None
    for name in map(str, files):
        path = place(name)
        form = form_of(name, path)
        name = "stdin" if name == STDIN else name
        if form == "parallel" and waiting is None:
            waiting = name, path
        elif form == "parallel" and waiting is not None:
            groups.append(Group(form, (waiting[0], name), (waiting[1], path)))
            waiting = None
        elif waiting is not None:
            break
        else:
            groups.append(Group(form, (name,), (path,)))
    if waiting is not None:
        raise SeqloomError(
            f"{waiting[0]}: no second file to pair it with. Expected: lines of source TAB target in one file, "
            f"JSON lines (.jsonl), or two parallel files one after the other, as in train.en train.de"
        )
    return groups


def read(group: Group, need_target: bool = True) -> Iterator[Example]:
    """The examples of a group. The first broken line raises `file:line: reason`."""
    for entry in entries(group, need_target):
        if isinstance(entry, Problem):
            raise SeqloomError(str(entry))
        yield entry


def entries(group: Group, need_target: bool = True) -> Iterator[Example | Problem]:
    """As `read`, but a broken line gives a `Problem` and reading goes on."""
    if group.form == "parallel":
        yield from _parallel(group)
        return
    parse = _parse_json if group.form == "jsonl" else _parse_tsv
    missing = 'key "target" is missing' if group.form == "jsonl" else "no TAB: expected source TAB target"
    file = group.files[0]
    for line, raw in read_lines(file, group.paths[0]):
        if isinstance(raw, LineError):
            yield Problem(file, line, str(raw))
            continue
        try:
            source, targets = parse(decode(raw))
            _require(source, targets, missing if need_target else None)
            if not need_target:
                targets = tuple(target for target in targets if not _empty(target))
            yield Example(source, targets, file, line)
        except LineError as broken:
            yield Problem(file, line, str(broken))


def read_sources(file: str | Path) -> Iterator[str]:
    """One source a line, for prediction; of a TSV the first column, of JSON lines the source.

    Empty lines stay as empty texts, so that the answers keep step with the lines. Standard input ("-") is read as
    it comes.
    """
    name = str(file)
    if name == STDIN:
        name, form, lines = "stdin", "tsv", number("stdin", sys.stdin.buffer)
    else:
        path = place(name)
        form = form_of(name, path)
        lines = read_lines(name, path)
    for line, raw in lines:
        try:
            if isinstance(raw, LineError):
                raise raw
            text = decode(raw)
            if form == "jsonl":
                text = _parse_json(text)[0] if text.strip() else ""
            yield text.partition("\t")[0] if form == "tsv" else text
        except LineError as broken:
            raise SeqloomError(f"{name}:{line}: {broken}") from broken


def _require(source: str, targets: Sequence[str], missing: str | None) -> None:
    """`missing`: what to say if there is no target; None if none is needed."""
    if _empty(source):
        raise LineError("the source is empty")
    if missing is None:
        return
    if not targets:
        raise LineError(missing)
    for target in targets:
        if _empty(target):
            raise LineError("the target is empty")


def _empty(text: str) -> bool:
    # White space alone counts as empty: split into words nothing would be left of it.
    return not text or text.isspace()


def _parse_tsv(text: str) -> tuple[str, tuple[str, ...]]:
    if not text:
        raise LineError("empty line; expected source TAB target")
    source, *targets = text.split("\t")
    if len(targets) > 1:
        targets[1:] = [target for target in targets[1:] if not _empty(target)]
    return source, tuple(targets)


def _parse_json(text: str) -> tuple[str, tuple[str, ...]]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        column = f" at column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "too deep, or a number too long"
        raise LineError(f"broken JSON: {reason}{column}" if text else "empty line; expected a JSON object") from None
    if not isinstance(value, dict):
        raise LineError(f'expected an object like {{"source": …, "target": …}}, not {_KINDS.get(type(value), "null")}')
    if "source" not in value:
        raise LineError('key "source" is missing')
    targets = value.get("target")
    targets = targets if isinstance(targets, list) else [] if targets is None else [targets]
    return _text(value["source"], "source"), tuple(_text(target, "target") for target in targets)


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise LineError(f'"{key}" must be text, not {_KINDS.get(type(value), "null")}')
    if "\0" in value:
        raise LineError(f'NUL character in "{key}"')
    try:
        value.encode()
    except UnicodeEncodeError:
        raise LineError(f'"{key}" holds half a surrogate pair, which is no character') from None
    return value


def _parallel(group: Group) -> Iterator[Example | Problem]:
    left, right = (read_lines(file, path) for file, path in zip(group.files, group.paths, strict=True))
    for line, pair in _side_by_side(left, right):
        if None in pair:
            short = pair.index(None)
            reason = f"is missing, but {group.files[1 - short]} goes on; parallel files need equally many lines"
            yield Problem(group.files[short], line, f"the line {reason}")
            return
        texts: list[str] = []
        for file, raw, side in zip(group.files, pair, ("source", "target"), strict=True):
            try:
                if isinstance(raw, LineError):
                    raise raw
                text = decode(raw or b"")
                if _empty(text):
                    raise LineError(f"the {side} is empty")
                texts.append(text)
            except LineError as broken:
                yield Problem(file, line, str(broken))
        if len(texts) == 2:
            yield Example(texts[0], (texts[1],), group.files[0], line)


def _side_by_side(left: Iterator[Line], right: Iterator[Line]) -> Iterator[tuple[int, tuple[Any, Any]]]:
    """Lines of the same number, with None where one side has ended."""
    line = 0
    while True:
        one, other = next(left, None), next(right, None)
        line += 1
        if one is None and other is None:
            return
        yield line, (one and one[1], other and other[1])
        if one is None or other is None:
            return
