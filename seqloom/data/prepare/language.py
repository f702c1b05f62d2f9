"""Text for a language model: read, split, encoded, and kept in a cache."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.data.batches.language import Stream, StreamOptions
from seqloom.data.encoding.encode import Rows, Side, encode_texts, normalize_all
from seqloom.data.encoding.mmap_store import RowsFile, load_rows
from seqloom.data.encoding.statistics import length_statistics, vocabulary_facts
from seqloom.data.formats.bad_lines import Skipped, skipped_notes
from seqloom.data.prepare.cache import cached, fingerprint
from seqloom.data.prepare.count_tokens import TokenCounts
from seqloom.data.prepare.language_holdout import Block, LanguageFiles
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.tokenizers.tokenizers import BOS, EOS, SPECIALS, UNK, make_tokenizer
from seqloom.data.tokenizers.vocabulary import Codec, Vocabularies
from seqloom.errors import SeqloomError
from seqloom.files import write_json

MAX_HASHED_LINES = 200_000  # lines; of more a run stores no hashes


@dataclass(frozen=True, eq=False)
class PreparedLanguage:
    """Text ready for training."""

    codec: Codec
    labels: list[str]  # of lines, to condition on; may be empty
    train: Stream
    valid: Stream | None
    notes: list[str]
    facts: dict[str, Any] = field(repr=False)

    def vocabularies(self) -> Vocabularies:
        return Vocabularies(source=self.codec, lines={"labels": self.labels, "seen": line_hashes(self.train)})

    def validation_examples(self) -> list[Stream]:
        return [] if self.valid is None else [self.valid]


def prepare_language(request: PrepareRequest[StreamOptions]) -> PreparedLanguage:
    """Holds out the last share of running text, or a share of lines by hash."""
    options, stored = request.options, request.vocabularies
    if not request.train:
        raise SeqloomError("no training files were given")
    source = LanguageFiles(request.train, request.valid, options, request.seed)
    name = fingerprint(source.key(stored))
    folder, codec = cached(f"text-{name}", request.cache, lambda fresh: _build(fresh, source, stored))
    meta = json.loads((folder / "meta.json").read_bytes())
    streams: dict[str, Stream] = {}
    for part in ("train", "valid"):
        if meta["facts"][part]:
            ids, offsets = load_rows(folder, part)
            ends, characters = offsets if options.lines else None, meta["characters"][part]
            streams[part] = Stream(ids, ends, options, f"{name}-{part}", folder, characters)
    notes = [*source.notes, *meta["notes"]]
    return PreparedLanguage(
        codec=codec or Codec.from_json(json.loads((folder / "source.json").read_bytes())),
        labels=meta["labels"],
        train=streams["train"],
        valid=streams.get("valid"),
        notes=notes,
        facts=meta["facts"] | {"notes": notes},
    )


def encode_files(
    files: list[str], options: StreamOptions, codec: Codec, labels: list[str], name: str = "text"
) -> tuple[Stream, list[str]]:
    """Files encoded in memory with the vocabulary of a run, and notes."""
    skipped = Skipped() if options.skip_bad else None
    numbers, parts = _BlockEncoder(options, codec, labels), list[Rows]()
    source = LanguageFiles(files, 0.0, replace(options, limit=None, sample=None), 0)
    for block in source.blocks(skipped):
        parts.append(numbers.encode(block))
    table = numbers.final(codec, labels)
    ids = np.concatenate([np.zeros(0, np.int64), *(table[rows.ids] for rows in parts)])
    lengths = np.concatenate([np.zeros(1, np.int64), *(rows.lengths for rows in parts)])
    _check_length(files, len(ids))
    offsets = np.cumsum(lengths) if options.lines else None
    notes = [
        *source.notes,
        *_unknown_label_notes(numbers.label_counts[False], labels),
        *skipped_notes((skipped or Skipped()).to_json()),
    ]
    return Stream(ids, offsets, options, name, characters=numbers.characters[False]), notes


def _check_length(files: list[str], tokens: int) -> None:
    if not tokens:
        raise SeqloomError(f"{', '.join(files)}: holds no text")
    if tokens < 2:
        raise SeqloomError(f"{', '.join(files)}: the text is too short: a language model needs two tokens at least")


class _BlockEncoder:
    """Encodes blocks with preliminary ids (see `count_tokens`). Labels count down from −1."""

    def __init__(self, options: StreamOptions, codec: Codec | None, labels: Iterable[str] = ()) -> None:
        self.options = options
        self.splitter = make_tokenizer(options.tokens) if codec is None else codec.splitter
        self.vocabulary, self.counts = TokenCounts(), Counter[str]()
        self.labels = {label: number for number, label in enumerate(labels)}
        self.label_counts: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}  # labels
        self.characters = {False: 0, True: 0}  # of training and held-out text

    def encode(self, block: Block) -> Rows:
        """A row for each line; running text is one row."""
        texts = normalize_all(block.texts, self.options.normalization)
        by_line = not self.options.lines and self.options.tokens == "words"
        side = encode_texts(self.splitter, texts[0].split("\n") if by_line else texts)
        rows = self._preliminary(side, block.held)
        self.label_counts[block.held].update(block.labels or ())
        self.characters[block.held] += self._characters(texts, rows.lengths)
        if self.options.lines:
            return self._bounded(rows, block.labels)
        self.counts["lines"] += texts[0].count("\n")
        if by_line:  # the text after the last line end is no whole line
            rows = Rows(rows.with_specials((), (EOS,)).ids[:-1], rows.lengths)
        return Rows(rows.ids, np.array([len(rows.ids)]))

    def _characters(self, texts: list[str], lengths: np.ndarray) -> int:
        """Characters of whole lines with their ends, of truncated ones only what remains; unknown tokens count too."""
        if not self.options.lines:
            return sum(map(len, texts))
        long = [texts[row] for row in np.flatnonzero(lengths > self.options.length)]
        kept = (self.splitter.join(self.splitter.split(text)[: self.options.length]) for text in long)
        return sum(map(len, texts)) + len(texts) - sum(len(text) + 1 for text in long) + sum(map(len, kept))

    def _preliminary(self, side: Side, held: bool) -> Rows:
        if side.tokens is None:
            return Rows(side.rows.ids + len(SPECIALS), side.rows.lengths)
        table = self.vocabulary.add_tokens(side)
        if not held:
            self.vocabulary.count(side.rows, table)
        return Rows(table[side.rows.ids], side.rows.lengths)

    def _bounded(self, rows: Rows, labels: list[str] | None) -> Rows:
        """Add <bos> or the label before, and <eos> after unless the line is truncated."""
        long = rows.lengths > self.options.length
        whole = rows.cut(self.options.length, "tail").with_specials((BOS,), (EOS,))
        ends = np.cumsum(whole.lengths)
        if labels is not None:
            numbers = [self.labels.setdefault(label, len(self.labels)) for label in labels]
            whole.ids[ends - whole.lengths] = -1 - np.array(numbers, whole.ids.dtype)
        if not long.any():
            return whole
        self.counts["cut"] += int(long.sum())
        real = np.ones(len(whole.ids), bool)
        real[ends[long] - 1] = False
        return Rows(whole.ids[real], whole.lengths - long)

    def final(self, codec: Codec, labels: list[str]) -> np.ndarray:
        """Table from preliminary to final ids. Labels have negative ids and so stand at the end of the table."""
        places = {label: codec.size + number for number, label in enumerate(labels)}
        tokens = np.arange(codec.size) if codec.kind.startswith("bpe") else self.vocabulary.final_ids(codec)
        return np.concatenate([tokens, [places.get(label, BOS) for label in reversed(self.labels)]]).astype(np.int32)


def line_hashes(stream: Stream) -> str:
    """Hashes of all lines, 8 bytes each as base64, to tell whether generated lines are new. Empty for running text and
    for very many lines."""
    if stream.offsets is None or len(stream) > MAX_HASHED_LINES:
        return ""
    rows = np.split(stream.ids, stream.offsets[1:-1])
    return base64.b64encode(b"".join(sorted({line_hash(row[1:]) for row in rows}))).decode()


def line_hash(ids: np.ndarray | Sequence[int]) -> bytes:
    """Hash of the tokens of a line without <bos> and <eos>."""
    row = np.asarray(ids, np.int64)
    return blake2b(row[row != EOS].tobytes(), digest_size=8).digest()


def _build(folder: Path, source: LanguageFiles, stored: Mapping[str, Any] | None) -> Codec:
    """Fill the folder; return the vocabulary. `stored`: vocabularies of another run."""
    options, skipped = source.options, Skipped() if source.options.skip_bad else None
    source = source.decide()
    codec = Codec.from_json(stored["source"]) if stored else _train_codec(source)
    numbers = _BlockEncoder(options, codec)
    labels = None if not stored or "lines" not in stored else list(stored["lines"]["labels"])
    sides = {held: RowsFile(folder, name) for held, name in ((False, "train"), (True, "valid"))}
    seen: Counter[str] = Counter()
    try:
        for block in source.blocks(skipped):
            if labels is not None and not block.held:
                _all_known(block, labels)
            rows = numbers.encode(block)
            sides[block.held].extend(rows)
            seen["valid" if block.held else "train"] += len(rows.lengths) if options.lines else len(rows.ids)
    finally:
        for side in sides.values():
            side.close()
    if not seen["train"]:
        held = "; all of it was held out for validation" if seen["valid"] else ""
        raise SeqloomError(f"{', '.join(source.train)}: holds no text{held}")
    if not options.lines:
        _check_length(source.train, seen["train"])
        if seen["valid"]:
            _check_length(source.valid if isinstance(source.valid, list) else source.train, seen["valid"])
    codec = codec or Codec.from_counts(options.tokens, numbers.vocabulary.counts(), **options.vocabulary)
    labels = sorted(numbers.label_counts[False]) if labels is None else labels
    table, facts = numbers.final(codec, labels), dict[str, Any]()
    for held, name in ((False, "train"), (True, "valid")):
        counts = sides[held].finalize(table)
        facts[name] = _facts(folder, name, counts, options) if seen[name] else None
        if not held:
            facts["vocabulary"] = {"source": vocabulary_facts(codec, counts[: codec.size])}
    facts["skipped"] = (skipped or Skipped()).to_json()
    write_json(folder / "source.json", codec.to_json())
    notes = [
        *_notes(source, facts, numbers.counts),
        *_unknown_label_notes(numbers.label_counts[True], labels, " for validation"),
    ]
    notes += skipped_notes(facts["skipped"])
    written = {"train": numbers.characters[False], "valid": numbers.characters[True]}
    write_json(folder / "meta.json", {"facts": facts, "notes": notes, "labels": labels, "characters": written})
    return codec


def _all_known(block: Block, labels: list[str]) -> None:
    if new := sorted({*(block.labels or ())}.difference(labels)):
        have = f"choose from: {', '.join(labels)}" if labels else "it was trained without labels"
        raise SeqloomError(f"{block.file}: the model that is gone on from has no label {new[0]!r}; {have}")


def _unknown_label_notes(label_counts: Counter[str], labels: list[str], where: str = "") -> Iterator[str]:
    """A note on lines whose label the model lacks: they begin with <bos>, which it never saw."""
    unknown = [label for label in sorted(label_counts) if label not in labels]
    if unknown:
        some = ", ".join(map(repr, unknown[:5])) + (" …" if len(unknown) > 5 else "")
        lines = sum(label_counts[label] for label in unknown)
        yield f"{lines:,} of {label_counts.total():,} lines{where} have a label that the model lacks: {some}"


def _train_codec(source: LanguageFiles) -> Codec | None:
    """The codec of tokens that are trained on all text; None for others."""
    options = source.options
    if not options.tokens.startswith("bpe"):
        return None
    training = (block for block in source.blocks(Skipped() if options.skip_bad else None) if not block.held)
    return Codec.build(options.tokens, (text for block in training for text in block.texts), **options.vocabulary)


def _facts(folder: Path, name: str, counts: np.ndarray, options: StreamOptions) -> dict[str, Any]:
    total, unknown = int(counts[EOS:].sum()), int(counts[UNK])
    facts: dict[str, Any] = {"tokens": total, "unknown_tokens": unknown, "unknown": round(unknown / total, 6)}
    if not options.lines:
        return {"source": facts}
    lengths = np.diff(load_rows(folder, name)[1])
    return {"lines": len(lengths), "source": facts | {"lengths": length_statistics(np.bincount(lengths))}}


def _notes(source: LanguageFiles, facts: dict[str, Any], counts: Counter[str]) -> Iterator[str]:
    train, held, options = facts["train"], facts["valid"], source.options
    yield from options.subset_notes("lines")
    if held and not isinstance(source.valid, list):
        unit = "lines" if options.lines else "tokens"
        part, rest = (one["lines"] if options.lines else one["source"]["tokens"] for one in (held, train))
        where = "the last of the text" if source.held_out_range[1] == 1.0 else "a stretch of the text"
        where = "by a hash of the text" if options.lines else where
        yield f"held out {part:,} of {part + rest:,} {unit} ({part / (part + rest):.1%}) for validation, {where}"
    if counts["cut"]:
        yield f"{counts['cut']:,} lines cut to {options.length:,} tokens, without their <eos>; see data.length"
    if held and (unknown := held["source"]["unknown_tokens"]):
        yield f"{unknown:,} of {held['source']['tokens']:,} tokens for validation are unknown"
