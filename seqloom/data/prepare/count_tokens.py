"""Encoding a data set in one pass, with preliminary ids; final ids follow from the counts."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import IO

import numpy as np

from seqloom.data.encoding.encode import EncodedBlock, Rows, Side, normalize_all
from seqloom.data.encoding.encode_workers import encode_blocks
from seqloom.data.encoding.mmap_store import PairWriter
from seqloom.data.encoding.text_options import TwoSideOptions
from seqloom.data.formats.bad_lines import Skipped
from seqloom.data.formats.pairs_fast import Pairs
from seqloom.data.splits.split import Origin, Split
from seqloom.data.tokenizers.base_tokenizer import CleanedTokenizer
from seqloom.data.tokenizers.tokenizers import SPECIALS, make_tokenizer
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.errors import SeqloomError

PARALLEL_BYTES = 1 << 25  # bytes of data from which workers pay off
MAX_WORKERS = 4  # one process feeds them all
Codecs = tuple[Codec | None, Codec | None]  # of source and target


class TokenCounts:
    """Tokens of one side in order of appearance, with their counts in training examples."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict(count().__next__)
        self._counts = np.zeros(0, np.int64)

    def add_tokens(self, side: Side) -> np.ndarray:
        """The preliminary ids of the tokens of a block, after the specials."""
        tokens = side.tokens or []
        table = np.fromiter(map(self._numbers.__getitem__, tokens), np.int32, len(tokens))
        if len(self._numbers) > len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros(2 * len(self._numbers), np.int64)])
        return table + len(SPECIALS)

    def count(self, rows: Rows, table: np.ndarray) -> None:
        self._counts[table - len(SPECIALS)] += np.bincount(rows.ids, minlength=len(table))

    def counts(self) -> dict[str, int]:
        return dict(zip(self._numbers, self._counts.tolist(), strict=False))

    def final_ids(self, codec: Codec) -> np.ndarray:
        """Table from preliminary ids to those of the codec; specials stay."""
        tokens = (
            map(codec.splitter.repair_token, self._numbers)
            if isinstance(codec.splitter, CleanedTokenizer)
            else self._numbers
        )
        return np.array([*range(len(SPECIALS)), *map(codec.token_id, tokens)], np.int32)


@dataclass
class EncodedPairs:
    """Codecs, counts and hashes of encoded pairs."""

    source: Codec
    target: Codec
    tables: tuple[np.ndarray, np.ndarray]  # final ids of both sides
    counts: Counter[str]  # for notes
    hashes: dict[bool, np.ndarray]  # of all sources, held out or not


def encode_pairs(
    split: Split,
    options: TwoSideOptions,
    writers: tuple[PairWriter, PairWriter],
    held: IO[str],
    skipped: Skipped | None,
    codecs: Codecs | None,
) -> EncodedPairs:
    """Write every row, training and held-out, with preliminary ids; held-out examples also as text.

    A side with trained tokens (bpe) is read once more before. `codecs`: those of another run.
    """
    given = dict(zip(("source", "target"), codecs or (None, None), strict=True))
    trained = {side: codec or _train_codec(split, options, side) for side, codec in given.items()}
    settings = {
        **{
            side: codec.to_json() if codec else {"kind": options.tokens_of(side), "clean": options.cleaning_of(side)}
            for side, codec in trained.items()
        },
        "normalization": options.normalization,
        "key": split.key,
    }
    state = _EncodingState(
        (options.max_length_of("source"), options.max_length_of("target")), options.truncate, writers
    )
    longest, seen = options.max_characters, 0
    for origin, pairs, found in encode_blocks(split.blocks(skipped, longest), settings, workers(split)):
        out = np.full(len(pairs), True) if origin.held_out else split.held_out(found.hashes, seen)
        seen += len(pairs)
        state.add(pairs, found, out)
        _write_held_out(held, origin, pairs, np.flatnonzero(out).tolist())
    (source, left), (target, right) = (
        _finish_side(codec, state.vocabularies[side], options, side) for side, codec in trained.items()
    )
    return EncodedPairs(source, target, (left, right), state.counts, state.all_hashes())


def workers(split: Split) -> int:
    """The number of worker processes; ids do not depend on it."""
    size = sum(path.stat().st_size for group in (*split.train, *split.valid) for path in group.paths)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 0 if size < PARALLEL_BYTES or cores < 2 else min(cores, MAX_WORKERS)


def _train_codec(split: Split, options: TwoSideOptions, side: str) -> Codec | None:
    """The codec of a side whose tokens are trained on all texts; None for the others."""
    kind = options.tokens_of(side)
    if kind == "tokenizer":
        raise SeqloomError(
            "tokens 'tokenizer' come with an imported model: train from it with --from, or choose others"
        )
    return (
        Codec.build(kind, _training_texts(split, options, side), **options.vocabulary_of(side))
        if kind.startswith("bpe")
        else None
    )


def _training_texts(split: Split, options: TwoSideOptions, side: str) -> Iterator[str]:
    """The texts of a side of the training examples."""
    seen = 0
    for origin, pairs in split.blocks(Skipped() if options.skip_bad else None, options.max_characters):
        if origin.held_out:
            return
        texts = pairs.sources if side == "source" else pairs.targets
        if split.share:
            training = ~split.held_out_texts(normalize_all(pairs.sources, split.normalization), seen)
            seen += len(pairs)
            training = training if side == "source" or pairs.counts is None else np.repeat(training, pairs.counts)
            texts = [text for text, taken in zip(texts, training.tolist(), strict=True) if taken]
        yield from texts


def _finish_side(
    codec: Codec | None, vocabulary: TokenCounts, options: TwoSideOptions, side: str
) -> tuple[Codec, np.ndarray]:
    """The codec of a side, and the table of final ids."""
    if codec is not None and codec.kind.startswith("bpe"):  # ids are final already
        return codec, np.arange(codec.size)
    if codec is None:
        counts, clean = vocabulary.counts(), options.cleaning_of(side)
        if clean is not None and clean["repair"] == "known":
            counts = CleanedTokenizer(make_tokenizer(options.tokens_of(side)), **clean).repair_counts(counts)
        codec = Codec.from_counts(options.tokens_of(side), counts, **options.vocabulary_of(side)).with_cleaning(clean)
    return codec, vocabulary.final_ids(codec)


@dataclass
class _EncodingState:
    """State across blocks."""

    max_lengths: tuple[int | None, int | None]  # of source and target
    cut: str
    writers: tuple[PairWriter, PairWriter]
    vocabularies: dict[str, TokenCounts] = field(
        default_factory=lambda: {"source": TokenCounts(), "target": TokenCounts()}
    )
    counts: Counter[str] = field(default_factory=Counter)
    hashes: dict[bool, list[np.ndarray]] = field(default_factory=lambda: {False: [], True: []})

    def add(self, pairs: Pairs, found: EncodedBlock, out: np.ndarray) -> None:
        """`out`: which examples are held out."""
        tables = [self.vocabularies[side].add_tokens(getattr(found, side)) for side in ("source", "target")]
        for held, mask in ((False, ~out), (True, out)):
            if not mask.any():
                continue
            each = None if pairs.counts is None else np.asarray(pairs.counts)
            left = found.source.rows.select(mask)
            right = found.target.rows.select(mask if each is None else np.repeat(mask, each))
            if not held:
                self._count((found.source, left, tables[0], "source"), (found.target, right, tables[1], "target"))
            if each is not None:  # a row for every target
                left = left.take(np.repeat(np.arange(len(left.lengths)), each[mask]))
                self.counts["further"] += int((each[mask] - 1).sum())
            self.hashes[held].append(found.hashes[mask])
            left = _preliminary_ids(left, found.source, tables[0])
            right = _preliminary_ids(right, found.target, tables[1])
            short, brief = (rows.cut(n, self.cut) for rows, n in zip((left, right), self.max_lengths, strict=True))
            self.counts["cut"] += int(((short.lengths < left.lengths) | (brief.lengths < right.lengths)).sum())
            self.writers[held].extend(short, brief)

    def _count(self, *sides: tuple[Side, Rows, np.ndarray, str]) -> None:
        for side, rows, table, name in sides:
            if side.tokens is not None:
                self.vocabularies[name].count(rows, table)

    def all_hashes(self) -> dict[bool, np.ndarray]:
        none = np.zeros(0, np.uint64)
        return {held: np.concatenate([none, *parts]) for held, parts in self.hashes.items()}


def _preliminary_ids(rows: Rows, side: Side, table: np.ndarray) -> Rows:
    return Rows(rows.ids + len(SPECIALS) if side.tokens is None else table[rows.ids], rows.lengths)


def _write_held_out(file: IO[str], origin: Origin, pairs: Pairs, chosen: list[int]) -> None:
    """Held-out examples as text, a JSON list a line: file, line, source, targets."""
    if not chosen:
        return
    ends = np.cumsum(pairs.counts).tolist() if pairs.counts is not None else None
    for i in chosen:
        targets = pairs.targets[i : i + 1] if ends is None else pairs.targets[ends[i - 1] if i else 0 : ends[i]]
        file.write(json.dumps([origin.file, pairs.lines[i], pairs.sources[i], targets], ensure_ascii=False) + "\n")
