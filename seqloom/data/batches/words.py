"""Sentences as word ids and characters; each distinct word is spelt once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.data.batches.collate import Padded, bucket_size, pad_flat, send, split_points
from seqloom.data.encoding.encode import Rows
from seqloom.data.tokenizers.tokenizers import BOS, EOS, normalize
from seqloom.data.tokenizers.vocabulary import Codec

MAX_CHARACTERS = 40  # characters of a word that are read, half from its beginning, half from its end


@dataclass(frozen=True, eq=False)
class Words:
    """The input of a tagger; rows are padded after."""

    tokens: Padded  # [B, S] ids of words; <unk> for unseen ones
    index: Tensor  # [B, S] int64: row in `characters`; 0 at padding
    characters: Padded  # [U, C]: <bos> c1 … cn <eos> of each distinct word of the batch

    @property
    def lengths(self) -> Tensor | None:
        """[B] on the device; None where every row is full."""
        return None if self.tokens.full else self.tokens.lengths

    def to(self, device: torch.device | str) -> Words:
        return Words(self.tokens.to(device), send(self.index, device), self.characters.to(device))

    def part(self, first: int, last: int) -> Words:
        """Rows `first` to `last` (not included), with their own words only."""
        tokens = self.tokens.part(first, last)
        index = self.index[first:last, : tokens.tokens.shape[1]]
        used, index = torch.unique(index, return_inverse=True)
        lengths = [self.characters.host[row] for row in used.tolist()]
        characters = self.characters.tokens[used][:, : max(lengths, default=0)]
        return Words(tokens, index, Padded(characters, self.characters.lengths[used], tuple(lengths)))

    def pad_to_bucket(self, most: int | None = None) -> Words:
        """Padded to few shapes; the added rows of characters repeat the first and are never indexed."""
        tokens, characters = self.tokens.pad_to_bucket(most), self.characters.pad_to_bucket()
        more = bucket_size(len(characters.host)) - len(characters.host)
        spelt, lengths = (
            torch.cat([one, one[:1].repeat_interleave(more, 0)]) for one in (characters.tokens, characters.lengths)
        )
        host = characters.host + characters.host[:1] * more
        wider = tokens.tokens.shape[1] - self.index.shape[1]
        return Words(tokens, F.pad(self.index, (0, wider)), Padded(spelt, lengths, host))


@dataclass(frozen=True, eq=False)
class TagBatch:
    """What one training step reads."""

    source: Words
    tags: Tensor  # [B, S] int64; 0 at padding
    rows: tuple[int, ...]  # examples of the source; empty for a batch of weight zero

    @property
    def count(self) -> int:
        """The number of words to tag."""
        return sum(self.source.tokens.host) if self.rows else 0

    def to(self, device: torch.device | str) -> TagBatch:
        return TagBatch(self.source.to(device), send(self.tags, device), self.rows)

    def pad_to_bucket(self, most: int | None = None) -> TagBatch | None:
        """The same in one of few shapes; None for a batch of weight zero."""
        if not self.rows:
            return None
        source = self.source.pad_to_bucket(most)
        return replace(self, source=source, tags=F.pad(self.tags, (0, source.index.shape[1] - self.tags.shape[1])))

    def micro_batches(self, n: int) -> list[TagBatch]:
        return [self._part(a, b) for a, b in split_points(len(self.rows), n)] or [self]

    def zero_weight_row(self) -> TagBatch:
        return replace(self._part(0, 1), rows=())

    def _part(self, first: int, last: int) -> TagBatch:
        source = self.source.part(first, last)
        return TagBatch(source, self.tags[first:last, : source.tokens.tokens.shape[1]], self.rows[first:last])


class Lexicon:
    """Vocabularies of words and characters. Only words are lowercased."""

    def __init__(self, words: Codec, characters: Codec) -> None:
        self.words, self.characters = words, characters

    def shape(self, word: str) -> str:
        """The normalized spelling of a word; words of one spelling are one entry."""
        return normalize(word, half_width=self.words.half_width)

    def word_id(self, word: str) -> int:
        return self.words.token_id(self.words.normalize(word))

    def spell(self, shape: str) -> list[int]:
        """<bos> c1 … cn <eos>; of a very long word the beginning and the end."""
        ids = self.characters.encode(shape)
        if len(ids) > MAX_CHARACTERS:
            ids = ids[: MAX_CHARACTERS // 2] + ids[-MAX_CHARACTERS // 2 :]
        return [BOS, *ids, EOS]

    def words_of(self, sentences: Sequence[Sequence[str]]) -> Words:
        """Encode sentences in memory, for prediction."""
        types = WordTable(self)
        flat = [types.add(word) for sentence in sentences for word in sentence]
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        return types.words(Rows(np.array(flat, np.int64), lengths))


class WordTable:
    """A table of distinct words, each encoded and spelt once."""

    def __init__(self, lexicon: Lexicon, shapes: Iterable[str] = ()) -> None:
        self.lexicon = lexicon
        self.rows: dict[str, int] = {}
        self._tables: tuple[np.ndarray, Rows] | None = None
        for shape in shapes:
            self.add(shape)

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, word: str) -> int:
        """The row of a word in the table."""
        shape = self.lexicon.shape(word)
        self._tables = None
        return self.rows.setdefault(shape, len(self.rows))

    @property
    def tables(self) -> tuple[np.ndarray, Rows]:
        """The id of every word, and its characters."""
        if self._tables is None:
            spelt = [self.lexicon.spell(shape) for shape in self.rows]
            lengths = np.fromiter(map(len, spelt), np.int64, len(spelt))
            flat = np.fromiter((number for row in spelt for number in row), np.int32, int(lengths.sum()))
            numbers = np.fromiter(map(self.lexicon.word_id, self.rows), np.int64, len(self.rows))
            self._tables = numbers, Rows(flat, lengths)
        return self._tables

    def words(self, rows: Rows) -> Words:
        """Rows of indices into this table as a batch."""
        numbers, spelt = self.tables
        used, index = np.unique(rows.ids, return_inverse=True)
        characters = spelt.take(used)
        return Words(
            pad_flat(numbers[rows.ids], rows.lengths),
            pad_flat(index, rows.lengths, value=0).tokens,
            pad_flat(characters.ids.astype(np.int64), characters.lengths),
        )
