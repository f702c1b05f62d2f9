"""Reading the texts of a language model, and holding out."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, NamedTuple

from seqloom.data.batches.language import StreamOptions
from seqloom.data.encoding.encode import normalize_all
from seqloom.data.files.columns import cache_settings
from seqloom.data.files.file_groups import Group, group_files
from seqloom.data.files.lines import local_path, open_bytes
from seqloom.data.formats.bad_lines import Skipped, valid_pairs
from seqloom.data.formats.plain_text import text_chunks, text_file_group
from seqloom.data.prepare.cache import tokenizer_versions
from seqloom.data.splits.split import Fold, Part, Split
from seqloom.errors import SeqloomError
from seqloom.files import sha256

LAYOUT = 2  # version of cache folder and ids


class Block(NamedTuple):
    """Consecutive text: a chunk of running text, or lines, with labels or without."""

    held: bool
    texts: list[str]
    labels: list[str] | None = None
    file: str = ""  # of the labels


@dataclass(frozen=True)
class LanguageFiles:
    """The files, and the split."""

    train: list[str]
    valid: list[str] | float | Fold
    options: StreamOptions
    seed: int
    split: Split = field(init=False)  # of lines

    def __post_init__(self) -> None:
        valid = 0.0 if isinstance(self.valid, list) else self.valid
        object.__setattr__(self, "split", Split.of([], valid, seed=self.seed, reading=self.options))
        if self.options.sample is not None and not self.options.lines:
            raise SeqloomError("--sample draws lines, and running text has none: take --limit, or data.batches=lines")

    def decide(self) -> LanguageFiles:
        """With the assignment of all lines, see `Split.decide`."""
        found = LanguageFiles(self.train, self.valid, self.options, self.seed)
        if self.options.lines:
            object.__setattr__(found, "split", self.split.decide(self._parts))
        return found

    def _parts(self) -> Iterator[Part]:
        for block in self._lines(self.train, Skipped(), self.options.limit):
            yield Part(normalize_all(block.texts, self.options.normalization), block.labels)

    @property
    def held_out_range(self) -> tuple[float, float]:
        """The held-out part of the training text as (start, end) shares: of its characters, or of line hashes."""
        if isinstance(self.valid, Fold):
            return (self.valid.number - 1) / self.valid.count, self.valid.number / self.valid.count
        if isinstance(self.valid, list):
            return 0.0, 0.0
        if not 0 <= self.valid < 1:
            raise SeqloomError(
                f"the share of the text held out for validation goes from 0 to below 1, not {self.valid}"
            )
        return (0.0, self.valid) if self.options.lines else (1 - self.valid, 1.0)

    def key(self, stored: Mapping[str, Any] | None) -> dict[str, Any]:
        """Everything that determines the ids. `stored`: vocabularies of another run."""
        others = {"batches", "stride", "vary"} | (set() if self.options.lines else {"length"})
        held = self.valid if isinstance(self.valid, list) else []
        key = {
            "layout": [LAYOUT, unicodedata.unidata_version],
            "options": {name: value for name, value in cache_settings(self.options).items() if name not in others},
            "lines": self.options.lines,
            "files": [self._contents(files) for files in (self.train, held)],
            "held": [*self.held_out_range, self.seed if self.options.lines else 0],
            "kept": None if stored is None else dict(stored),
        }
        # The version of jieba is not part of it, as in earlier versions.
        return key | (tokenizer_versions([self.options.tokens]) if self.options.tokens.startswith("bpe") else {})

    def _contents(self, files: list[str]) -> list[str]:
        return [*map(_content, files), *(sign for one in self._forms(files) for sign in one.non_default)]

    def _forms(self, files: list[str]) -> list[Group]:
        """The files, with formats and notes."""
        return (
            group_files(files, self.options)
            if self.options.condition
            else [text_file_group(one, self.options) for one in files]
        )

    @property
    def notes(self) -> list[str]:
        """Notes on the files."""
        files = self.valid if isinstance(self.valid, list) else []
        return [note for one in (*self._forms(self.train), *self._forms(files)) for note in one.notes]

    def blocks(self, skipped: Skipped | None) -> Iterator[Block]:
        """Every text once: of the training files up to the limit, then of the validation files."""
        share = self.held_out_range
        if not self.options.lines:
            yield from _hold_out_stretch(
                lambda: self._text(self.train, skipped, self.options.limit), share, self.options.tokens
            )
        else:
            seen = read = 0
            for block in self._lines(self.train, skipped, self.options.limit):
                if self.split.decision is not None and (chosen := self.split.decision.sampled) is not None:
                    read, block = (
                        read + len(block.texts),
                        _select(block, chosen[read : read + len(block.texts)].tolist()),
                    )
                yield from _hold_out_lines(block, self.split, self.options.normalization, seen)
                seen += len(block.texts)
        if isinstance(self.valid, list) and self.options.lines:
            yield from (block._replace(held=True) for block in self._lines(self.valid, skipped, None))
        elif isinstance(self.valid, list):
            yield from (Block(True, [text]) for text in self._text(self.valid, skipped, None))

    def _text(self, files: list[str], skipped: Skipped | None, limit: int | None) -> Iterator[str]:
        """All files in chunks, joined by line ends; with words one at the end too."""
        left = limit
        for number, file in enumerate(files):
            last = "\n"
            for text in text_chunks(file, self.options, skipped):
                if left is not None:
                    lines = text.split("\n", left)
                    if len(lines) > left:
                        yield "".join(f"{line}\n" for line in lines[:left])
                        return
                    left -= len(lines) - 1
                yield (last := text)
            if not last.endswith("\n") and (number + 1 < len(files) or self.options.tokens == "words"):
                yield "\n"

    def _lines(self, files: list[str], skipped: Skipped | None, limit: int | None) -> Iterator[Block]:
        found, taken = self._labelled(files, skipped) if self.options.condition else self._plain(files, skipped), 0
        for block in found:
            more = len(block.texts) if limit is None else limit - taken
            if more <= 0:
                return
            yield block._replace(texts=block.texts[:more], labels=block.labels and block.labels[:more])
            taken += len(block.texts)

    def _plain(self, files: list[str], skipped: Skipped | None) -> Iterator[Block]:
        for file in files:
            rest = ""
            for text in text_chunks(file, self.options, skipped):
                *lines, rest = (rest + text).split("\n")
                if texts := [line for line in lines if line.strip()]:
                    yield Block(False, texts)
            if rest.strip():
                yield Block(False, [rest])

    def _labelled(self, files: list[str], skipped: Skipped | None) -> Iterator[Block]:
        for one in group_files(files, self.options):
            for pairs in valid_pairs(one, skipped):
                each = pairs.counts or [1] * len(pairs)
                labels = [label for label, count in zip(pairs.sources, each, strict=True) for _ in range(count)]
                yield Block(False, pairs.targets, labels, one.files[0])


def _content(file: str) -> str:
    path = local_path(file)
    open_bytes(file, path).close()  # reports a folder with its contents
    try:
        return f"{sha256(path)}{path.suffix}"
    except OSError as error:
        raise SeqloomError(f"{file}: cannot be read: {error.strerror or error}") from error


def _hold_out_stretch(read: Callable[[], Iterator[str]], share: tuple[float, float], tokens: str) -> Iterator[Block]:
    """Running text with a range held out, by characters; words stay whole."""
    if share[0] == share[1]:
        yield from (Block(False, [text]) for text in read())
        return
    total, done = sum(map(len, read())), 0
    ends = [int(end * total) for end in share]
    for text in read():
        inside = [min(max(end - done, 0), len(text)) for end in ends]
        if tokens in ("words", "jieba"):
            inside = [_after_word(text, end) for end in inside]
        parts = ((False, text[: inside[0]]), (True, text[slice(*inside)]), (False, text[inside[1] :]))
        yield from (Block(held, [part]) for held, part in parts if part)
        done += len(text)


def _after_word(text: str, end: int) -> int:
    while 0 < end < len(text) and not text[end - 1].isspace():
        end += 1
    return end


def _hold_out_lines(block: Block, split: Split, ways: dict[str, bool], at: int) -> Iterator[Block]:
    out = split.held_out_texts(normalize_all(block.texts, ways), at)
    for held in (False, True):
        part = _select(block, (out == held).tolist())
        if part.texts:
            yield part._replace(held=held)


def _select(block: Block, mask: list[bool]) -> Block:
    labels = None if block.labels is None else list(compress(block.labels, mask))
    return block._replace(texts=list(compress(block.texts, mask)), labels=labels)
