"""A trained masked model: fills <mask> in texts, and is scored on tokens that are hidden from it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from seqloom.data.batches.chunks import ChunkedTexts
from seqloom.data.batches.collate import pad
from seqloom.data.encoding.encode import Rows
from seqloom.data.files.columns import ReadOptions
from seqloom.data.formats.pairs import Example
from seqloom.data.prepare.texts import read_texts
from seqloom.data.tokenizers.tokenizers import EOS, SPECIALS, UNK
from seqloom.data.tokenizers.vocabulary import Codec, opened
from seqloom.decoding.batched import Answer
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError, known
from seqloom.metrics.bootstrap import percentiles, resampled_sums
from seqloom.metrics.metric_table import task_metrics
from seqloom.metrics.perplexity import perplexity
from seqloom.models.pretraining.masked_language_model import MASK
from seqloom.tasks.mask.evaluation import evaluation_details
from seqloom.tasks.shared.evaluation import Evaluation, examples_of, reading_of
from seqloom.tasks.shared.predictor import LoadedRun, Predictor
from seqloom.tasks.shared.unseen_characters import unknown_tokens
from seqloom.training.objectives.masked_tokens import MaskedTexts, predict_masked
from seqloom.version import __version__

HOLE = "<mask>"
SEED = 7  # of the tokens that are hidden in an evaluation
METRICS = task_metrics("mask")


class MaskModel(Predictor[str]):
    """What `seqloom.load` gives of a `mask` run. Remembers nothing between calls."""

    def __init__(self, run: LoadedRun) -> None:
        super().__init__(run)
        self.codec = opened(run.vocabularies, "source", Codec)

    def reading(self, columns: str | None = None, skip_bad: bool | None = None) -> ReadOptions:
        """How files are read: as those of the training, but for what is given."""
        return reading_of(self.config, columns, skip_bad)

    def read(self, files: list[str], reading: ReadOptions) -> tuple[list[Example], list[str]]:
        return read_texts(files, reading)

    def unknown(self, source: str) -> list[str]:
        if self.codec.kind != "chars":
            return []
        return [piece for text in source.split(HOLE) for piece in unknown_tokens(self.codec, text)]

    def answers(
        self, sources: Iterable[str], search: Search | None = None, rows: int = 64, ahead: int = 16
    ) -> Iterator[list[Answer]]:
        """The likeliest fillings of each text, in order, as a stream; a text without <mask> stays as it is."""
        search = search or Search()
        search.check_auto("mask")
        if search.sample:
            raise SeqloomError("a <mask> is filled with the likeliest tokens; leave --sample out")
        texts = iter(sources)
        while chunk := list(islice(texts, rows * ahead)):
            prompts = [_Prompt(text, self.codec, self.config["data"]["max_length"]) for text in chunk]
            fillings = self._predict_masks(
                [piece for prompt in prompts for piece in prompt.pieces], search.n_best, rows
            )
            for prompt in prompts:
                found = chain.from_iterable(islice(fillings, len(prompt.pieces)))
                yield prompt.answers(list(found), search.n_best)

    def dummy_forward(self, length: int) -> None:
        """One example of `length` tokens, one of them hidden, through the model: what `seqloom info` counts."""
        self.model(pad([[UNK] * length]), torch.zeros(1, dtype=torch.long))

    @torch.inference_mode()
    def _predict_masks(self, pieces: list[list[int]], n: int, rows: int) -> Iterator[list[list[tuple[float, int]]]]:
        """For each piece, for each <mask> in it, the `n` likeliest tokens with their log-probabilities."""
        self.model.eval()
        found: list[list[list[tuple[float, int]]]] = [[] for _ in pieces]
        asked = sorted((i for i, piece in enumerate(pieces) if MASK in piece), key=lambda i: len(pieces[i]))
        for start in range(0, len(asked), rows):
            batch = asked[start : start + rows]
            source = pad([pieces[i] for i in batch])
            places = (source.tokens == MASK).flatten().nonzero()[:, 0]
            logits = self.model(source.to(self.device), places.to(self.device)).float()
            logits[:, : len(SPECIALS)] = -math.inf  # none of them is written
            best = logits.log_softmax(-1).topk(min(n, logits.size(1) - len(SPECIALS)))
            values = [list(zip(*pair, strict=True)) for pair in zip(*(x.tolist() for x in best), strict=True)]
            for place, value in zip((places // source.tokens.size(1)).tolist(), values, strict=True):
                found[batch[place]].append(value)
        return iter(found)

    def evaluate(
        self,
        files: str | Path | Iterable[Any],
        search: Search | None = None,
        *,
        metrics: Sequence[str] | None = None,
        reading: ReadOptions | None = None,
    ) -> Evaluation:
        """How well hidden tokens of the texts are predicted: the same ones in every evaluation, each behind <mask>."""
        examples, notes = examples_of(self, files, reading, "texts")
        return self.score([example.source for example in examples], metrics=metrics, notes=notes)

    def score(
        self, texts: Sequence[str], *, metrics: Sequence[str] | None = None, notes: Sequence[str] = ()
    ) -> Evaluation:
        """Scores of texts in memory."""
        chosen = METRICS if metrics is None else [known(name, METRICS, "metric") for name in metrics]
        clozes, owners = self.clozes(texts)
        table, filled = self._measure(clozes)
        table = np.stack([np.bincount(owners, column, len(texts)) for column in table.T], axis=1)
        sums = table.sum(0)
        values = _scores(*sums.tolist())
        drawn = [_scores(*row) for row in resampled_sums(table).tolist()]
        share = self.config["data"]["mask_rate"]
        signature = f"masked:{share:g}|hidden:all|seed:{SEED}|tokens:{self.codec.kind}|version:{__version__}"
        ends = np.cumsum(np.bincount(owners, clozes.texts.lengths, len(texts))).astype(int).tolist()
        starts = [0, *ends[:-1]]
        return Evaluation(
            metrics={name: values[name] for name in chosen},
            intervals={name: percentiles([one[name] for one in drawn], 0.95) for name in chosen},
            signature={name: f"{name}|{signature}" for name in chosen},
            count=len(texts),
            predictions=[self.codec.decode(filled[a:b].tolist()) for a, b in zip(starts, ends, strict=True)],
            notes=tuple(notes),
        )

    def clozes(self, texts: Sequence[str]) -> tuple[MaskedTexts, np.ndarray]:
        """The texts in pieces with the tokens to be hidden, and which text each piece is of."""
        limit, rows = self.config["data"]["max_length"], [self.codec.encode(text) for text in texts]
        lengths = np.array([len(row) for row in rows], np.int64)
        pieces = ChunkedTexts.of(
            Rows(np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum())), lengths), limit
        )
        counts = -(-lengths // limit) if limit else np.minimum(lengths, 1)
        return MaskedTexts(pieces, self.config["data"]["mask_rate"], SEED), np.repeat(np.arange(len(rows)), counts)

    @torch.inference_mode()
    def _measure(self, clozes: MaskedTexts, rows: int = 64) -> tuple[np.ndarray, np.ndarray]:
        """[pieces, 3]: hits, nats and hidden tokens of each; and all ids with the predictions in their places."""
        self.model.eval()
        table, filled = np.zeros((len(clozes), 3)), clozes.texts.ids.copy()
        for chosen in clozes.plan(seed=0, epoch=0, batch_tokens=None, batch_rows=rows):
            places, labels, logits = predict_masked(self.model, clozes.batch(chosen).to(self.device))
            nats, best = F.cross_entropy(logits.float(), labels, reduction="none"), logits.argmax(-1)
            stacked = torch.stack([best == labels, nats, torch.ones_like(nats)], 1).double().cpu().numpy()
            width = int(clozes.texts.lengths[chosen].max())
            row, column = np.divmod(places.cpu().numpy(), width)
            np.add.at(table, chosen[row], stacked)
            filled[clozes.texts.offsets[chosen[row]] + column] = best.cpu().numpy()
        return table, filled

    def evaluation_details(
        self, examples: Sequence[Example], search: Search | None = None, *, most: int = 1000
    ) -> dict[str, Any]:
        """What a report tells of at most `most` texts, chosen by a hash. Fit for `json.dump`."""
        return evaluation_details(self, examples, most)


class _Prompt:
    """A text around its masks."""

    def __init__(self, text: str, codec: Codec, max_length: int | None) -> None:
        self.codec = codec
        # A token of bpe brings the blank before it: one before a mask belongs to what fills it.
        before = r"[ ]?" if codec.kind.startswith("bpe") else ""
        self.texts = re.split(f"{before}{HOLE}", text)
        first, *others = map(codec.encode, self.texts)
        ids = [*first, *chain.from_iterable([MASK, *other] for other in others)]
        limit = max_length or max(len(ids), 1)
        self.pieces = [[*ids[start : start + limit], EOS] for start in range(0, len(ids), limit)]

    def answers(self, fillings: list[list[tuple[float, int]]], n: int) -> list[Answer]:
        """The `n` likeliest ways to fill all masks, each for itself: the best of the first few, then of these with the
        best of the next."""
        best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
        for mask in fillings:
            ways = ((total + log_p, (*ids, id)) for total, ids in best for log_p, id in mask)
            best = sorted(ways, key=lambda way: -way[0])[:n]
        return [self._answer(total, ids) for total, ids in best]

    def _answer(self, total: float, ids: tuple[int, ...]) -> Answer:
        filled = chain.from_iterable(zip(self.texts, (*(self.codec.decode([id]) for id in ids), ""), strict=True))
        return Answer("".join(filled), ids, total, total, math.exp(total / max(len(ids), 1)))


def _scores(hits: float, nats: float, count: float) -> dict[str, float]:
    count = max(count, 1.0)
    return {"accuracy": 100 * hits / count, "perplexity": perplexity(nats, count), "loss": nats / count}
