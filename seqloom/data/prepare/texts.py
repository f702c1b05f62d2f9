"""Texts of one side: read line by line, numbered, cut into pieces, kept in the cache.

What masked prediction and word vectors learn from: plain text, or the text column of files with labels.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import metadata
from itertools import compress, islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from seqloom.data.batches.chunks import Pieces
from seqloom.data.encoding.encode import Rows, normal_all, number_texts
from seqloom.data.encoding.statistics import spread, vocabulary
from seqloom.data.files.columns import Reading, since
from seqloom.data.files.file_groups import Group, alone, first_only, settled
from seqloom.data.formats.bad_lines import Skipped
from seqloom.data.formats.bad_lines import note as skip_note
from seqloom.data.formats.pairs import Example, Problem, sources
from seqloom.data.prepare.count_tokens import Vocabulary
from seqloom.data.splits.split import Fold, Part, Split
from seqloom.data.tokenizers.tokenizers import SPECIALS, UNK, folding, make
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.errors import SeqloomError
from seqloom.files import clear_damaged, damage, default_cache, new_folder, sha256, write_atomic, write_json

LAYOUT = 1  # of the cache folder and of what its numbers mean; a change makes every cache new
BLOCK = 1 << 14  # texts that are numbered at a time
HELD = "held.jsonl"


Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True)
class TextOptions(Reading):
    """What is read, and how text becomes numbers: the `data` section of a run that reads texts of one side.

    `tokens`: chars, words, jieba, bytes or bpe:N. `fold`, `half_width`, `max_vocab`, `min_count` and what is read are
    those of `DataOptions`. `max_length`: longer texts are cut into pieces of at most so many tokens.
    """

    tokens: str = "words"
    fold: bool | str = False
    half_width: bool = False
    max_vocab: int | None = None
    min_count: int = 1
    max_length: int | None = None

    def __post_init__(self) -> None:
        make(self.tokens)
        folding(self.fold)
        super().__post_init__()

    @property
    def ways(self) -> dict[str, Any]:
        """As `normal` takes them."""
        return {"fold": self.fold, "half_width": self.half_width}

    @property
    def limits(self) -> dict[str, Any]:
        """As `Codec.build` takes them."""
        return {**self.ways, "max_vocab": self.max_vocab, "min_count": self.min_count}


@dataclass(frozen=True, eq=False)
class Collected:
    """Texts ready for training."""

    codec: Codec
    train: Pieces
    valid: Pieces | None  # None: nothing is held out
    notes: list[str]
    facts: dict[str, Any] = field(repr=False)
    files: list[str] = field(repr=False, default_factory=list)

    def vocabularies(self) -> dict[str, Any]:
        return {"source": self.codec.to_json()}

    def held(self) -> list[Example]:
        """The held-out texts, whole."""
        folder = self.train.folder
        if self.valid is None or folder is None:
            return []
        with (folder / HELD).open(encoding="utf-8") as lines:  # which end at "\n" only, whatever a text holds
            found = (json.loads(line) for line in lines)
            return [Example(text, (), self.files[file], line) for file, line, text in found]


@dataclass(frozen=True, eq=False)
class TextReady(Generic[Made]):
    """Collected texts, and what a task makes of them to train on."""

    texts: Collected
    train: Made
    valid: Made | None  # None: there is nothing in the held-out texts to be scored by

    @property
    def notes(self) -> list[str]:
        return self.texts.notes

    @property
    def facts(self) -> dict[str, Any]:
        return self.texts.facts

    def vocabularies(self) -> dict[str, Any]:
        return self.texts.vocabularies()

    def held(self) -> list[Example]:
        return [] if self.valid is None else self.texts.held()


def collect(
    train: list[str],
    valid: list[str] | float | Fold,
    options: TextOptions,
    *,
    seed: int,
    cache: Path | None = None,
    kept: Mapping[str, Any] | None = None,
) -> Collected:
    """Read, number and cache texts. The vocabulary comes from the training texts alone, unless one is `kept`."""
    source = _Source.of(train, valid, options, seed)
    fingerprint = source.fingerprint(kept)
    folder = (cache or default_cache()) / f"{fingerprint}-texts"
    if not folder.is_dir() or damage(folder):
        clear_damaged(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(folder, keep_existing=True) as fresh:
            _build(fresh, source, None if kept is None else Codec.from_json(kept["source"]))
    meta, codec = (json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in ("meta", "source"))
    parts = {
        name: Pieces(*_load(folder, name), f"{fingerprint}-{name}", folder)
        for name in ("train", "valid")
        if meta["facts"][name]
    }
    notes = [*(note for one in source.groups for note in one.notes), *meta["notes"]]
    return Collected(Codec.from_json(codec), parts["train"], parts.get("valid"), notes, meta["facts"], source.names)


def read_texts(files: Iterable[str], reading: Reading) -> tuple[list[Example], list[str]]:
    """All texts of some files but empty ones, and what there is to say about them."""
    skipped = Skipped()
    names = list(files)
    groups = [settled(alone(name, reading), first_only(reading)) for name in names]
    found = [one for name in names for one in _sound(name, reading, skipped)]
    return found, [*(note for one in groups for note in one.notes), *skip_note(skipped.to_json())]


@dataclass(frozen=True)
class _Source:
    """Where texts come from, and which of them are held out."""

    names: list[str]  # training files, then validation files
    trained: int  # how many are training files
    options: TextOptions
    split: Split  # says by their hashes which texts of the training files are held out

    @classmethod
    def of(cls, train: list[str], valid: list[str] | float | Fold, options: TextOptions, seed: int) -> _Source:
        if not train:
            raise SeqloomError("no training files were given")
        given = valid if isinstance(valid, list) else []
        split = Split.of([], 0.0 if isinstance(valid, list) else valid, seed=seed, reading=options, **options.ways)
        return cls([*train, *given], len(train), options, split)

    @cached_property
    def groups(self) -> list[Group]:
        """The files, and what there is to say about them."""
        return [settled(alone(name, self.options), first_only(self.options)) for name in self.names]

    def fingerprint(self, kept: Mapping[str, Any] | None) -> str:
        """SHA-256 over all that decides the numbers: contents, not names or dates of files."""
        groups = self.groups
        forms = ["parallel" if one.form == "text" else one.form for one in groups]
        contents = [[form, sha256(one.paths[0]), *one.unusual] for form, one in zip(forms, groups, strict=True)]
        key: dict[str, Any] = {"layout": LAYOUT, "unicode": unicodedata.unidata_version, "files": contents}
        key |= {"trained": self.trained, "options": since(self.options), "kept": dict(kept) if kept else None}
        if self.split.share:
            key |= {"share": self.split.share, "start": self.split.start, "seed": self.split.seed}
        for kind, package in (("bpe", "tokenizers"), ("jieba", "rjieba")):
            if self.options.tokens.startswith(kind):
                make(self.options.tokens).split("")  # says which package is missing before its version is asked for
                key[package] = metadata.version(package)
        return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()

    def blocks(self, skipped: Skipped) -> Iterator[tuple[int, list[Example], list[str], np.ndarray]]:
        """File, texts, the same made normal, and which of them are held out."""
        left, seen, read = self.options.limit, 0, 0
        chosen = None if self.split.decision is None else self.split.decision.drawn
        for number, name in enumerate(self.names):
            found, held = _sound(name, self.options, skipped), number >= self.trained
            texts = found if held else islice(found, left)
            while block := list(islice(texts, BLOCK)):
                left = left if held or left is None else left - len(block)
                if chosen is not None and not held:
                    read, block = read + len(block), list(compress(block, chosen[read : read + len(block)]))
                normal = normal_all([one.source for one in block], self.options.ways)
                out = np.full(len(block), True) if held else self.split.out(normal, seen)
                seen += 0 if held else len(block)
                yield number, block, normal, out

    def parts(self) -> Iterator[Part]:
        """What decides which of the training texts are drawn and held out."""
        for number, _, normal, _ in self.blocks(Skipped()):
            if number >= self.trained:
                return
            yield Part(normal)


def _sound(name: str, reading: Reading, skipped: Skipped) -> Iterator[Example]:
    """The texts of a file. Broken lines are counted if they may be skipped; else the first raises."""
    group = alone(name, reading)
    [label] = group.files
    good = bad = 0
    for entry in sources(group, reading):
        if not isinstance(entry, Problem):
            good += 1
            if entry.source.strip():
                yield entry
        elif not reading.skip_bad:
            raise SeqloomError(str(entry))
        else:
            bad += 1
            skipped.add(entry)
    if bad > good:
        raise SeqloomError(f"{label}: {bad:,} of {good + bad:,} lines are broken, more than half, too many to skip")


def _build(folder: Path, source: _Source, kept: Codec | None) -> None:
    options, skipped = source.options, Skipped()
    source = replace(source, split=source.split.decided(source.parts))
    codec = kept
    if kept is None and options.tokens.startswith("bpe"):
        codec = Codec.build(options.tokens, _training_texts(source), **options.limits)
    splitter, met = codec.splitter if codec else make(options.tokens), Vocabulary()
    rows: dict[bool, list[Rows]] = {False: [], True: []}
    held: list[str] = []
    for file, texts, normal, out in source.blocks(skipped):
        side = number_texts(splitter, normal)
        table = np.arange(codec.size)[len(SPECIALS) :] if side.tokens is None and codec else met.meet(side)
        for where, mask in ((False, ~out), (True, out)):
            part = side.rows.keep(mask)
            if side.tokens is not None and not where:
                met.count(part, table)
            rows[where].append(Rows(table[part.ids], part.lengths))
        held += [json.dumps([file, texts[i].line, texts[i].source], ensure_ascii=False) for i in np.flatnonzero(out)]
    final = np.arange(codec.size) if codec and codec.kind.startswith("bpe") else None
    codec = codec or Codec.of_counts(options.tokens, met.counts(), **options.limits)
    final = met.final(codec) if final is None else final
    facts: dict[str, Any] = {"skipped": skipped.to_json()}
    for where, name in ((False, "train"), (True, "valid")):
        facts |= _write(folder, name, codec, _joined(rows[where], final), options.max_length)
    if not facts["train"]:
        raise SeqloomError(f"{', '.join(source.names[: source.trained])}: holds no text to train on")
    write_json(folder / "source.json", codec.to_json())
    write_atomic(folder / HELD, "".join(f"{line}\n" for line in held))
    notes = [*_notes(source, facts), *skip_note(facts["skipped"])]
    write_json(folder / "meta.json", {"facts": facts | {"notes": notes}, "notes": notes})


def _training_texts(source: _Source) -> Iterator[str]:
    for _, _, normal, out in source.blocks(Skipped()):
        yield from (text for text, held in zip(normal, out.tolist(), strict=True) if not held)


def _joined(parts: list[Rows], final: np.ndarray) -> Rows:
    ids = np.concatenate([np.zeros(0, np.int64), *(part.ids for part in parts)])
    return Rows(final[ids], np.concatenate([np.zeros(0, np.int64), *(part.lengths for part in parts)]))


def _write(folder: Path, name: str, codec: Codec, rows: Rows, limit: int | None) -> dict[str, Any]:
    """The rows as files, and what they are like."""
    pieces = Pieces.of(rows, limit)
    np.save(folder / f"{name}_ids.npy", pieces.ids.astype(np.uint16 if codec.size <= 1 << 16 else np.int32))
    np.save(folder / f"{name}_offsets.npy", pieces.offsets.astype(np.int64))
    if not len(pieces):
        return {name: None}
    counts = np.bincount(rows.ids, minlength=codec.size)
    tokens, unknown = len(rows.ids), int(counts[UNK])
    side = {"tokens": tokens, "lengths": spread(np.bincount(rows.lengths)), "unknown_tokens": unknown}
    side["unknown"] = round(unknown / tokens, 6)
    facts: dict[str, Any] = {name: {"texts": int((rows.lengths > 0).sum()), "pieces": len(pieces), "source": side}}
    return facts | ({"vocabulary": {"source": vocabulary(codec, counts)}} if name == "train" else {})


def _notes(source: _Source, facts: dict[str, Any]) -> Iterator[str]:
    train, valid = facts["train"], facts["valid"]
    counts = Counter({name: part["texts"] for name, part in (("train", train), ("valid", valid)) if part})
    yield from source.options.part_told("texts")
    if source.split.share and valid:
        share = counts["valid"] / counts.total()
        yield f"held out {counts['valid']:,} of {counts.total():,} texts ({share:.1%}) for validation"
    elif source.split.share:
        yield f"no text was held out: {source.split.share:.1%} of {counts['train']:,} is too little"
    if train["pieces"] > train["texts"]:
        most = f"{source.options.max_length:,} tokens"
        yield f"{train['texts']:,} texts are cut into {train['pieces']:,} pieces of at most {most}"
    if valid and valid["source"]["unknown_tokens"]:
        yield f"{valid['source']['unknown']:.2%} of the tokens for validation are unknown"


def _load(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    ids, offsets = (np.load(folder / f"{name}_{part}.npy", mmap_mode="r") for part in ("ids", "offsets"))
    return np.asarray(ids).view(np.ndarray), np.asarray(offsets).view(np.ndarray)
