"""Tagged sentences for training, encoded in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqloom.data.batches.bucketing import Plan, plan
from seqloom.data.batches.words import Lexicon, TagBatch, WordTable
from seqloom.data.encoding.encode import Rows
from seqloom.data.encoding.text_options import TextOptions
from seqloom.data.formats.conll import Sentence
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.errors import SeqloomError

DAMAGED = "the stored vocabularies of tags are damaged"


@dataclass(frozen=True, kw_only=True)
class TagOptions(TextOptions):
    """The `data` section of the configuration of a tagger.

    `columns`: the word's and the tag's, by number ("1,4"), or by name in CoNLL-U ("XPOS"). Of `TextOptions`,
    `lowercase`, `max_vocab` and `min_count` apply to words; characters keep their case. `max_length`: most words of a
    sentence. `repair_tags`: repair tags that violate their scheme (I-X after O), and turn IOB1 into BIO.
    """

    max_length: int | None = None
    repair_tags: bool = False


@dataclass(frozen=True)
class Tags:
    """The tags, most frequent first, and their scheme, if they mark spans."""

    names: tuple[str, ...]
    scheme: str | None

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def to_json(self) -> dict[str, Any]:
        return {"tags": list(self.names), "scheme": self.scheme}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Tags:
        try:
            return cls(tuple(map(str, value["tags"])), value["scheme"])
        except (KeyError, TypeError) as error:
            raise SeqloomError(f"{DAMAGED}: {error}") from error


class TagSource:
    """A `BatchSource` of encoded sentences."""

    folder: Path | None = None

    def __init__(self, sentences: Sequence[Sentence], types: WordTable, tags: Tags) -> None:
        self.types = types
        lengths = np.fromiter((len(sentence.words) for sentence in sentences), np.int64, len(sentences))
        words = [types.add(word) for sentence in sentences for word in sentence.words]
        labels = [tags.numbers[tag] for sentence in sentences for tag in sentence.tags]
        self.words = Rows(np.array(words, np.int32), lengths)
        self.tags = Rows(np.array(labels, np.int32), lengths)
        digest = hashlib.sha256(json.dumps([list(types.rows), tags.to_json()]).encode())
        for part in (*self.words, self.tags.ids):
            digest.update(part.tobytes())
        self.fingerprint = digest.hexdigest()

    def __len__(self) -> int:
        return len(self.words.lengths)

    @property
    def numbers(self) -> np.ndarray:
        """[words]: ids of all words, flat."""
        return self.types.tables[0][self.words.ids]

    def plan(self, *, seed: int, epoch: int, batch_tokens: int | None, batch_rows: int | None) -> Plan:
        """Batches of sentences of like length: see `bucketing.plan`."""
        both = (self.words.lengths, self.words.lengths)
        return plan(*both, seed=seed, epoch=epoch, batch_tokens=batch_tokens, batch_rows=batch_rows)

    def batch(self, rows: np.ndarray) -> TagBatch:
        rows = np.asarray(rows, np.int64)
        tags = self.tags.take(rows)
        source = self.types.words(self.words.take(rows))
        padded = np.zeros(tuple(source.tokens.tokens.shape), np.int64)
        padded[np.arange(padded.shape[1]) < tags.lengths[:, None]] = tags.ids
        return TagBatch(source, torch.from_numpy(padded), tuple(rows.tolist()))

    def count(self, rows: np.ndarray) -> int:
        return int(self.words.lengths[rows].sum())

    def costs(self, plan: Plan) -> np.ndarray:
        """[batches]: padded words."""
        starts = np.concatenate([[0], plan.ends[:-1]])
        return np.maximum.reduceat(self.words.lengths[plan.order], starts) * (plan.ends - starts)


@dataclass(frozen=True, eq=False)
class PreparedTags:
    """Tagged sentences ready for training."""

    train: TagSource
    valid: TagSource | None
    notes: list[str]
    facts: dict[str, Any] = field(repr=False)
    lexicon: Lexicon
    tags: Tags
    rare: int  # the first id of the words that were seen once
    sentences: list[Sentence] = field(repr=False)  # held out

    def vocabularies(self) -> dict[str, Any]:
        source = {**self.lexicon.words.to_json(), "rare": self.rare}
        return {"source": source, "characters": self.lexicon.characters.to_json(), "tags": self.tags.to_json()}

    def validation_examples(self) -> list[Sentence]:
        return self.sentences


def lexicon_of(vocabularies: Mapping[str, Any]) -> Lexicon:
    return Lexicon(*(Codec.from_json(vocabularies[name]) for name in ("source", "characters")))
