"""Texts without targets, for masked language models and word vectors: read, encoded, split into chunks, cached.

From plain text, or the text column of labelled files.
"""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress, islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from seqloom.data.batches.chunks import ChunkedTexts
from seqloom.data.encoding.encode import Rows, encode_texts, normalize_all
from seqloom.data.encoding.mmap_store import load_rows
from seqloom.data.encoding.statistics import length_statistics, vocabulary_facts
from seqloom.data.encoding.text_options import TextOptions, TokenOptions
from seqloom.data.files.columns import ReadOptions, cache_settings
from seqloom.data.files.file_groups import Group, first_column_only, resolve_columns, text_group
from seqloom.data.formats.bad_lines import Skipped
from seqloom.data.formats.bad_lines import skipped_notes as skip_note
from seqloom.data.formats.pairs import Example, Problem, source_entries
from seqloom.data.prepare.cache import cached, fingerprint, tokenizer_versions
from seqloom.data.prepare.count_tokens import TokenCounts
from seqloom.data.prepare.notes import held_out_notes
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.splits.split import Part, Split
from seqloom.data.tokenizers.tokenizers import SPECIALS, UNK, make_tokenizer
from seqloom.data.tokenizers.vocabulary import Codec, Vocabularies
from seqloom.errors import SeqloomError
from seqloom.files import sha256, write_atomic, write_json

LAYOUT = 1  # version of cache folder and ids; a change invalidates caches
BLOCK = 1 << 14  # texts encoded at a time
HELD = "held.jsonl"


Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True)
class PlainTextOptions(TextOptions, TokenOptions):
    """The `data` section of runs on texts without targets.

    `max_length`: longer texts are split into chunks of at most so many tokens.
    """

    max_length: int | None = None


@dataclass(frozen=True, eq=False)
class EncodedTexts:
    """Texts ready for training."""

    codec: Codec
    train: ChunkedTexts
    valid: ChunkedTexts | None  # None: nothing is held out
    notes: list[str]
    facts: dict[str, Any] = field(repr=False)
    files: list[str] = field(repr=False, default_factory=list)

    def vocabularies(self) -> Vocabularies:
        return Vocabularies(source=self.codec)

    def validation_examples(self) -> list[Example]:
        """The held-out texts, whole."""
        folder = self.train.folder
        if self.valid is None or folder is None:
            return []
        with (folder / HELD).open(encoding="utf-8") as lines:  # lines end at "\n" only
            found = (json.loads(line) for line in lines)
            return [Example(text, (), self.files[file], line) for file, line, text in found]


@dataclass(frozen=True, eq=False)
class PreparedTexts(Generic[Made]):
    """Encoded texts, and the training examples of a task made from them."""

    texts: EncodedTexts
    train: Made
    valid: Made | None  # None: no held-out text can be scored

    @property
    def notes(self) -> list[str]:
        return self.texts.notes

    @property
    def facts(self) -> dict[str, Any]:
        return self.texts.facts

    def vocabularies(self) -> Vocabularies:
        return self.texts.vocabularies()

    def validation_examples(self) -> list[Example]:
        return [] if self.valid is None else self.texts.validation_examples()


def prepare_texts(request: PrepareRequest[PlainTextOptions]) -> EncodedTexts:
    """The vocabulary comes from the training texts, unless that of another run is given."""
    source, stored = _TextFiles.of(request), request.vocabularies
    name = fingerprint(source.key(stored))
    folder, codec = cached(
        f"{name}-texts",
        request.cache,
        lambda fresh: _build(fresh, source, None if stored is None else Codec.from_json(stored["source"])),
    )
    codec = codec or Codec.from_json(json.loads((folder / "source.json").read_bytes()))
    meta = json.loads((folder / "meta.json").read_bytes())
    parts = {
        part: ChunkedTexts(*load_rows(folder, part), f"{name}-{part}", folder)
        for part in ("train", "valid")
        if meta["facts"][part]
    }
    notes = [*(note for one in source.groups for note in one.notes), *meta["notes"]]
    return EncodedTexts(codec, parts["train"], parts.get("valid"), notes, meta["facts"], source.names)


def read_texts(files: Iterable[str], reading: ReadOptions) -> tuple[list[Example], list[str]]:
    """All non-empty texts of some files, and notes."""
    skipped = Skipped()
    names = list(files)
    groups = [resolve_columns(text_group(name, reading), first_column_only(reading)) for name in names]
    found = [one for name in names for one in _valid_texts(name, reading, skipped)]
    return found, [*(note for one in groups for note in one.notes), *skip_note(skipped.to_json())]


@dataclass(frozen=True)
class _TextFiles:
    """The files of texts, and the split."""

    names: list[str]  # training files, then validation files
    trained: int  # number of training files
    options: PlainTextOptions
    split: Split  # of the training files

    @classmethod
    def of(cls, request: PrepareRequest[PlainTextOptions]) -> _TextFiles:
        options = request.options
        if not request.train:
            raise SeqloomError("no training files were given")
        split = Split.of([], request.share, seed=request.seed, reading=options, **options.normalization)
        return cls([*request.train, *request.valid_files], len(request.train), options, split)

    @cached_property
    def groups(self) -> list[Group]:
        """The files, with notes."""
        return [resolve_columns(text_group(name, self.options), first_column_only(self.options)) for name in self.names]

    def key(self, stored: Mapping[str, Any] | None) -> dict[str, Any]:
        """Everything that determines the ids. `stored`: vocabularies of another run."""
        groups = self.groups
        forms = ["parallel" if one.form == "text" else one.form for one in groups]
        contents = [[form, sha256(one.paths[0]), *one.non_default] for form, one in zip(forms, groups, strict=True)]
        key: dict[str, Any] = {"layout": LAYOUT, "unicode": unicodedata.unidata_version, "files": contents}
        key |= {
            "trained": self.trained,
            "options": cache_settings(self.options),
            "kept": dict(stored) if stored else None,
        }
        if self.split.share:
            key |= {"share": self.split.share, "start": self.split.start, "seed": self.split.seed}
        return key | tokenizer_versions([self.options.tokens])

    def blocks(self, skipped: Skipped) -> Iterator[tuple[int, list[Example], list[str], np.ndarray]]:
        """File number, texts, normalized texts, and a mask of held-out ones."""
        left, seen, read = self.options.limit, 0, 0
        chosen = None if self.split.decision is None else self.split.decision.sampled
        for number, name in enumerate(self.names):
            found, held = _valid_texts(name, self.options, skipped), number >= self.trained
            texts = found if held else islice(found, left)
            while block := list(islice(texts, BLOCK)):
                left = left if held or left is None else left - len(block)
                if chosen is not None and not held:
                    read, block = read + len(block), list(compress(block, chosen[read : read + len(block)]))
                normal = normalize_all([one.source for one in block], self.options.normalization)
                out = np.full(len(block), True) if held else self.split.held_out_texts(normal, seen)
                seen += 0 if held else len(block)
                yield number, block, normal, out

    def parts(self) -> Iterator[Part]:
        """The input of `Split.decide`."""
        for number, _, normal, _ in self.blocks(Skipped()):
            if number >= self.trained:
                return
            yield Part(normal)


def _valid_texts(name: str, reading: ReadOptions, skipped: Skipped) -> Iterator[Example]:
    """The non-empty texts of a file. Broken lines are counted if they may be skipped; else the first raises."""
    group = text_group(name, reading)
    [label] = group.files
    good = bad = 0
    for entry in source_entries(group, reading):
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


def _build(folder: Path, source: _TextFiles, stored: Codec | None) -> Codec:
    """Fill the folder; return the vocabulary. `given`: that of another run."""
    options, skipped = source.options, Skipped()
    source = replace(source, split=source.split.decide(source.parts))
    codec = stored
    if stored is None and options.tokens.startswith("bpe"):
        codec = Codec.build(options.tokens, _training_texts(source), **options.vocabulary)
    splitter, counts = codec.splitter if codec else make_tokenizer(options.tokens), TokenCounts()
    rows: dict[bool, list[Rows]] = {False: [], True: []}
    held: list[str] = []
    for file, texts, normal, out in source.blocks(skipped):
        side = encode_texts(splitter, normal)
        table = np.arange(codec.size)[len(SPECIALS) :] if side.tokens is None and codec else counts.add_tokens(side)
        for where, mask in ((False, ~out), (True, out)):
            part = side.rows.select(mask)
            if side.tokens is not None and not where:
                counts.count(part, table)
            rows[where].append(Rows(table[part.ids], part.lengths))
        held += [json.dumps([file, texts[i].line, texts[i].source], ensure_ascii=False) for i in np.flatnonzero(out)]
    final = np.arange(codec.size) if codec and codec.kind.startswith("bpe") else None
    codec = codec or Codec.from_counts(options.tokens, counts.counts(), **options.vocabulary)
    final = counts.final_ids(codec) if final is None else final
    facts: dict[str, Any] = {"skipped": skipped.to_json()}
    for where, name in ((False, "train"), (True, "valid")):
        facts |= _write(folder, name, codec, _joined(rows[where], final), options.max_length)
    if not facts["train"]:
        raise SeqloomError(f"{', '.join(source.names[: source.trained])}: holds no text to train on")
    write_json(folder / "source.json", codec.to_json())
    write_atomic(folder / HELD, "".join(f"{line}\n" for line in held))
    notes = [*_notes(source, facts), *skip_note(facts["skipped"])]
    write_json(folder / "meta.json", {"facts": facts | {"notes": notes}, "notes": notes})
    return codec


def _training_texts(source: _TextFiles) -> Iterator[str]:
    for _, _, normal, out in source.blocks(Skipped()):
        yield from (text for text, held in zip(normal, out.tolist(), strict=True) if not held)


def _joined(parts: list[Rows], final: np.ndarray) -> Rows:
    ids = np.concatenate([np.zeros(0, np.int64), *(part.ids for part in parts)])
    return Rows(final[ids], np.concatenate([np.zeros(0, np.int64), *(part.lengths for part in parts)]))


def _write(folder: Path, name: str, codec: Codec, rows: Rows, limit: int | None) -> dict[str, Any]:
    """Write the rows; return their statistics."""
    pieces = ChunkedTexts.of(rows, limit)
    np.save(folder / f"{name}_ids.npy", pieces.ids.astype(np.uint16 if codec.size <= 1 << 16 else np.int32))
    np.save(folder / f"{name}_offsets.npy", pieces.offsets.astype(np.int64))
    if not len(pieces):
        return {name: None}
    counts = np.bincount(rows.ids, minlength=codec.size)
    tokens, unknown = len(rows.ids), int(counts[UNK])
    side = {"tokens": tokens, "lengths": length_statistics(np.bincount(rows.lengths)), "unknown_tokens": unknown}
    side["unknown"] = round(unknown / tokens, 6)
    facts: dict[str, Any] = {name: {"texts": int((rows.lengths > 0).sum()), "pieces": len(pieces), "source": side}}
    return facts | ({"vocabulary": {"source": vocabulary_facts(codec, counts)}} if name == "train" else {})


def _notes(source: _TextFiles, facts: dict[str, Any]) -> Iterator[str]:
    train, valid = facts["train"], facts["valid"]
    counts = Counter({name: part["texts"] for name, part in (("train", train), ("valid", valid)) if part})
    yield from source.options.subset_notes("texts")
    yield from held_out_notes(source.split, "texts", counts["train"], counts["valid"])
    if train["pieces"] > train["texts"]:
        most = f"{source.options.max_length:,} tokens"
        yield f"{train['texts']:,} texts are cut into {train['pieces']:,} pieces of at most {most}"
    if valid and valid["source"]["unknown_tokens"]:
        yield f"{valid['source']['unknown']:.2%} of the tokens for validation are unknown"
