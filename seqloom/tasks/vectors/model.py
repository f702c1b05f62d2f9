"""Trained word vectors: which words are like a word, and how well neighbours are told apart from other words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.data.batches.chunks import ChunkedTexts
from seqloom.data.encoding.encode import Rows
from seqloom.data.files.columns import ReadOptions
from seqloom.data.formats.pairs import Example
from seqloom.data.prepare.texts import read_texts
from seqloom.data.tokenizers.tokenizers import SPECIALS, UNK
from seqloom.data.tokenizers.vocabulary import Codec, opened
from seqloom.decoding.batched import Answer
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError, known
from seqloom.tasks.shared.evaluation import Evaluation, examples_of, reading_of
from seqloom.tasks.shared.predictor import LoadedRun, Predictor
from seqloom.tasks.vectors.evaluation import evaluation_details
from seqloom.training.objectives.skip_gram import NegativeSampling, Windows
from seqloom.training.validation import validation_loss
from seqloom.version import __version__

SEED = 7  # of the words drawn in an evaluation


class VectorModel(Predictor[str]):
    """What `seqloom.load` gives of a `vectors` run. Remembers nothing between calls."""

    def __init__(self, run: LoadedRun) -> None:
        super().__init__(run)
        self.codec = opened(run.vocabularies, "source", Codec)

    def reading(self, columns: str | None = None, skip_bad: bool | None = None) -> ReadOptions:
        """How files are read: as those of the training, but for what is given."""
        return reading_of(self.config, columns, skip_bad)

    def read(self, files: list[str], reading: ReadOptions) -> tuple[list[Example], list[str]]:
        return read_texts(files, reading)

    @cached_property
    def _units(self) -> Tensor:
        """[V, dim]: all vectors at length one."""
        return F.normalize(self.model.source.weight.detach().float(), dim=-1)  # pyright: ignore

    def answers(
        self, sources: Iterable[str], search: Search | None = None, rows: int = 64, ahead: int = 16
    ) -> Iterator[list[Answer]]:
        """The words whose vectors have the largest cosine with each word's, in order, as a stream. Of several words the
        mean counts; where none is known the answer is empty."""
        search = search or Search()
        search.check_auto("vectors")
        n = search.n_best
        texts = iter(sources)
        while chunk := list(islice(texts, rows)):
            asked = [[id for id in self.codec.encode(text) if id != UNK] for text in chunk]
            empty = self._units.new_zeros(1, self._units.size(1))
            means = torch.stack([torch.cat([self._units[ids], empty]).sum(0) for ids in asked])
            likeness = F.normalize(means, dim=-1) @ self._units.T
            likeness[:, : len(SPECIALS)] = -2.0
            for row, ids in zip(likeness, asked, strict=True):
                row[ids] = -2.0  # a word is most like itself
                best = row.topk(min(n, max(len(row) - len(SPECIALS) - len(set(ids)), 1)))
                found = zip(best.values.tolist(), best.indices.tolist(), strict=True)
                nothing = [Answer("", (), 0.0, 0.0, 0.0)]
                answers = [Answer(self.codec.decode([id]), (id,), one, 0.0, max(one, 0.0)) for one, id in found]
                yield answers if ids else nothing

    def dummy_forward(self, length: int) -> None:
        """One example of `length` words and a neighbour of each through the model: what `seqloom info` counts."""
        words = torch.full((length,), UNK)
        self.model(words, words[:, None])

    def evaluate(
        self,
        files: str | Path | Iterable[Any],
        search: Search | None = None,
        *,
        metrics: Sequence[str] | None = None,
        reading: ReadOptions | None = None,
    ) -> Evaluation:
        """The mean loss of the pairs of neighbours in the texts."""
        for name in metrics or ():
            known(name, ("loss",), "metric")
        examples, notes = examples_of(self, files, reading, "texts")
        return self.score([example.source for example in examples], notes)

    def score(self, texts: Sequence[str], notes: Sequence[str] = ()) -> Evaluation:
        """Scores of texts in memory; words are drawn by their shares in these."""
        data, rows = self.config["data"], [self.codec.encode(text) for text in texts]
        lengths = np.array([len(row) for row in rows], np.int64)
        pieces = ChunkedTexts.of(Rows(np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum())), lengths))
        counts = np.bincount(pieces.ids, minlength=self.codec.size)
        how = {"window": data["window"], "negatives": data["negatives"], "often": data["subsample"]}
        windows = Windows(pieces, counts, **how, seed=SEED)
        if not len(windows):
            raise SeqloomError("no two words of the vocabulary stand in one of the texts")
        plan = windows.plan(seed=0, epoch=0, batch_tokens=None, batch_rows=64)
        objective = NegativeSampling(self.model)  # pyright: ignore[reportArgumentType]
        found = validation_loss(objective, map(windows.batch, plan), self.device)
        signature = "|".join(f"{name}:{value:g}" for name, value in how.items())
        return Evaluation(
            metrics={"loss": found["loss"]},
            intervals={},
            signature={"loss": f"loss|{signature}|seed:{SEED}|version:{__version__}"},
            count=len(texts),
            predictions=[],
            notes=tuple(notes),
        )

    def evaluation_details(
        self, examples: Sequence[Example], search: Search | None = None, *, most: int = 1000
    ) -> dict[str, Any]:
        """What a report tells of at most `most` texts, chosen by a hash. Fit for `json.dump`."""
        return evaluation_details(self, examples, most)
