"""Batches of texts to ids. Free of torch: worker processes import it.

A block of texts is encoded with a vocabulary of its own; `count_tokens` maps these ids to final ones. So one pass over
the data both learns the vocabulary and encodes.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, count
from typing import Any, NamedTuple

import numpy as np

from seqloom.data.tokenizers.base_tokenizer import Label, Labels
from seqloom.data.tokenizers.graphemes import one_per_character
from seqloom.data.tokenizers.pretrained import PretrainedTokenizer
from seqloom.data.tokenizers.tokenizers import Bpe, Bytes, Chars, Splitter, make_tokenizer, normalize
from seqloom.data.tokenizers.vocabulary import Codec


class Rows(NamedTuple):
    """Ragged rows: all ids in one flat array, and the length of each row."""

    ids: np.ndarray  # [numbers]
    lengths: np.ndarray  # [rows] int64

    def take(self, rows: np.ndarray) -> Rows:
        """The rows `rows`, in this order; repeats are allowed."""
        starts = np.cumsum(self.lengths) - self.lengths
        lengths = self.lengths[rows]
        return Rows(self.ids[index_ranges(starts[rows], lengths)], lengths)

    def select(self, mask: np.ndarray) -> Rows:
        """The rows where `mask` is true."""
        return self if mask.all() else Rows(self.ids[np.repeat(mask, self.lengths)], self.lengths[mask])

    def cut(self, limit: int | None, drop: str) -> Rows:
        """At most `limit` ids a row; `drop`: the end that is cut off, "tail" or "head"."""
        if limit is None or not len(self.lengths) or self.lengths.max() <= limit:
            return self
        lengths = np.minimum(self.lengths, limit)
        starts = np.cumsum(self.lengths) - self.lengths
        return Rows(
            self.ids[index_ranges(starts if drop == "tail" else starts + self.lengths - lengths, lengths)], lengths
        )

    def with_specials(self, before: Sequence[int], after: Sequence[int]) -> Rows:
        """Add the ids `before` and `after` to every row."""
        lengths = self.lengths + len(before) + len(after)
        ends = np.cumsum(lengths)
        ids = np.empty(int(lengths.sum()), self.ids.dtype)
        free = np.ones(len(ids), bool)
        places = [*((ends - lengths + i, number) for i, number in enumerate(before))]
        places += [(ends - len(after) + i, number) for i, number in enumerate(after)]
        for place, number in places:
            ids[place], free[place] = number, False
        ids[free] = self.ids
        return Rows(ids, lengths)


def index_ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """starts[0], starts[0] + 1, … starts[0] + lengths[0] - 1, starts[1], …"""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - (ends - lengths), lengths)


class Side(NamedTuple):
    """One side of a block. Ids index `tokens`, or the tokens of the codec (without specials) if that is None."""

    rows: Rows
    tokens: list[str] | None


class EncodedBlock(NamedTuple):
    """A block of examples."""

    hashes: np.ndarray  # [examples] uint64, of the sources
    source: Side
    target: Side


@dataclass(frozen=True, eq=False)
class PairEncoder:
    """Encodes blocks of sources and targets. `key`: of the hash, see `source_hash`."""

    source: Splitter
    target: Splitter
    normalization: dict[str, Any]  # keywords of `normalize`
    key: bytes

    @classmethod
    def of(cls, value: dict[str, Any]) -> PairEncoder:
        """From JSON: `source` and `target` (a kind of tokens, perhaps with `clean`, or a codec), and the others."""
        source, target = (_splitter(value[side]) for side in ("source", "target"))
        return cls(source, target, value["normalization"], value["key"].encode())

    def __call__(self, sources: list[str], targets: list[str]) -> EncodedBlock:
        ways = {} if isinstance(self.target, Label | Labels) else self.normalization
        left, right = normalize_all(sources, self.normalization), normalize_all(targets, ways)
        digests = b"".join([source_hash(text, self.key) for text in left])
        hashes = np.frombuffer(digests, ">u8").astype(np.uint64)
        # An imported tokenizer normalizes its texts by itself.
        left = sources if isinstance(self.source, PretrainedTokenizer) else left
        right = targets if isinstance(self.target, PretrainedTokenizer) else right
        return EncodedBlock(hashes, encode_texts(self.source, left), encode_texts(self.target, right))


def _splitter(value: str | dict[str, Any]) -> Splitter:
    if isinstance(value, str):
        return make_tokenizer(value)
    return Codec.from_json(value).splitter if "tokens" in value else make_tokenizer(value["kind"], clean=value["clean"])


def source_hash(text: str, key: bytes) -> bytes:
    """Hash of a normalized text. Texts that differ only in white space have the same."""
    return blake2b(" ".join(text.split()).encode(), digest_size=8, key=key).digest()


def normalize_all(texts: list[str], normalization: dict[str, Any]) -> list[str]:
    """`normalize` of each, with one NFC check of all texts first.

    Lone surrogates, which `normalize` would replace, cannot occur: reading refuses them.
    """
    if not any(normalization.values()) and unicodedata.is_normalized("NFC", "".join(texts)):
        return texts
    return [normalize(text, **normalization) for text in texts]


def encode_texts(splitter: Splitter, texts: list[str]) -> Side:
    """Normalized texts, split into tokens and encoded."""
    whole = "".join(texts)
    if isinstance(splitter, Chars) and one_per_character(whole):
        if whole.isascii():
            codes = np.frombuffer(whole.encode("latin-1"), np.uint8)
        else:
            codes = np.frombuffer(whole.encode("utf-32-le"), np.uint32)
        return _encode_codes(codes, np.fromiter(map(len, texts), np.int64, len(texts)))
    if isinstance(splitter, Bytes):
        raw = texts if whole.isascii() else [text.encode() for text in texts]
        return _encode_codes(np.frombuffer(whole.encode(), np.uint8), np.fromiter(map(len, raw), np.int64, len(texts)))
    if isinstance(splitter, Bpe):
        rows = [encoded.ids for encoded in splitter.model.encode_batch_fast(texts, add_special_tokens=False)]
        return Side(_flatten(rows, chain.from_iterable(rows)), None)
    rows = [splitter.split(text) for text in texts]
    numbers: defaultdict[str, int] = defaultdict(count().__next__)
    return Side(_flatten(rows, map(numbers.__getitem__, chain.from_iterable(rows))), list(numbers))


def _encode_codes(codes: np.ndarray, lengths: np.ndarray) -> Side:
    """Each code point, or byte, is a token."""
    seen = np.bincount(codes, minlength=1) > 0
    table = (np.cumsum(seen) - 1).astype(np.int32)
    return Side(Rows(table[codes], lengths), [chr(code) for code in np.flatnonzero(seen)])


def _flatten(rows: Sequence[Sequence[Any]], numbers: Iterator[int]) -> Rows:
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return Rows(np.fromiter(numbers, np.int32, int(lengths.sum())), lengths)
