"""A trained classifier, loaded from its run: texts in, labels with their probability out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqloom.data.batches.collate import cut, pad
from seqloom.data.batches.labels import Target
from seqloom.data.files.columns import ReadOptions, read_options_of_run
from seqloom.data.formats.bad_lines import read_examples as read_examples
from seqloom.data.formats.pairs import Example
from seqloom.data.prepare.labels import LabelOptions
from seqloom.data.tokenizers.tokenizers import EOS, UNK
from seqloom.data.tokenizers.vocabulary import Codec, opened
from seqloom.decoding.batched import Answer, may_be_long
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError
from seqloom.metrics.classification import LabelPredictions, NumberPredictions, score_labels
from seqloom.options import checked
from seqloom.parts.layers.pooling import AttentionPool
from seqloom.parts.probe import watch
from seqloom.tasks.classify.evaluation import evaluation_details
from seqloom.tasks.shared.evaluation import Evaluation, examples_of
from seqloom.tasks.shared.label_predictions import default_metrics, label_answers, with_references
from seqloom.tasks.shared.predictor import LoadedRun, Predictor
from seqloom.tasks.shared.unseen_characters import unknown_tokens

EMPTY_ANSWER = Answer("", (), 0.0, 0.0, 1.0)  # of an empty line


class ClassifyModel(Predictor[str]):
    """What `seqloom.load` gives for a run of `classify`. Remembers nothing between calls."""

    def __init__(self, run: LoadedRun) -> None:
        super().__init__(run)
        self.source = opened(run.vocabularies, "source", Codec)
        self.target = opened(run.vocabularies, "target", Target)
        self.options = LabelOptions(**checked(LabelOptions, run.config["data"], "data"))

    def reading(self, columns: str | None = None, skip_bad: bool | None = None) -> ReadOptions:
        """How files are read: as those of the training, but for what is given."""
        bad = self.options.skip_bad if skip_bad is None else skip_bad
        found = read_options_of_run(self.config["data"], columns, bad)
        return replace(self.options, columns=found.columns, skip_bad=bad, limit=None, sample=None, **found.file_options)

    def read(self, files: list[str], reading: ReadOptions) -> tuple[list[Example], list[str]]:
        """The examples of some files, and what there is to say about them."""
        return read_examples(files, reading)

    @property
    def unseen_unit(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "characters" if self.source.kind == "chars" else "words"

    def unknown(self, source: str) -> list[str]:
        return unknown_tokens(self.source, source)

    def length(self, source: str) -> int:
        return len(self.encode(source)) if may_be_long(source) else 0

    def answers(
        self, sources: Iterable[str], search: Search | None = None, rows: int = 64, ahead: int = 16
    ) -> Iterator[list[Answer]]:
        """The likeliest labels of each text, `search.n_best` of them, in order, as a stream; `confidence` is the
        probability. Of several labels there is one answer: those more likely than not; its confidence is the geometric
        mean over all labels of being right about them. A number comes with no probability: its confidence is 1."""
        search = search or Search()
        search.check_auto("classify")
        if search.sample or search.beam > search.n_best:
            raise SeqloomError("a classifier knows the likeliest labels: --sample and --beam are for other tasks")
        texts = iter(sources)
        while chunk := list(islice(texts, ahead * rows)):
            for text, logits in zip(chunk, self.logits(chunk, rows), strict=True):
                yield label_answers(self.target, logits, search.n_best) if text.strip() else [EMPTY_ANSWER]

    @torch.inference_mode()
    def logits(self, texts: Sequence[str], rows: int = 64) -> np.ndarray:
        """[N, outputs], in batches of texts of like length."""
        self.model.eval()
        encoded = [self.encode(text) for text in texts]
        order = sorted(range(len(texts)), key=lambda i: len(encoded[i]))
        found = np.zeros((len(texts), self.target.size), np.float32)
        for start in range(0, len(order), rows):
            batch = order[start : start + rows]
            found[batch] = self.model(pad([encoded[i] for i in batch]).to(self.device)).float().cpu().numpy()
        return found

    def dummy_forward(self, length: int) -> None:
        """One example of `length` tokens through the model: what `seqloom info` counts."""
        self.model(pad([[UNK] * length]))

    def encode(self, text: str) -> list[int]:
        """As the training data was: cut if it is too long, ended by <eos>."""
        return [*cut(self.source.encode(text), self.options.max_length, self.options.truncate), EOS]

    def display_tokens(self, text: str) -> list[str]:
        """The tokens of `encode` for display, without <eos>."""
        return list(cut(self.source.display_tokens(text), self.options.max_length, self.options.truncate))

    def evaluate(
        self,
        files: str | Path | Iterable[Any],
        search: Search | None = None,
        *,
        metrics: Sequence[str] | None = None,
        reading: ReadOptions | None = None,
    ) -> Evaluation:
        """Scores on files of examples, or on the test split of a dataset by name."""
        examples, notes = examples_of(self, files, reading)
        sources = list(self.warn_of_long(example.source for example in examples))
        scored = self.score(examples, self.logits(sources), metrics)
        return replace(scored, notes=(*notes, *scored.notes))

    def score(
        self, examples: Sequence[Example], logits: np.ndarray, metrics: Sequence[str] | None = None
    ) -> Evaluation:
        """Scores of outputs that were computed already, [N, outputs], one row for each example."""
        found = self.found(examples, logits)
        scores = score_labels(found, metrics=metrics or default_metrics(self.target.kind))
        texts = [label_answers(self.target, row)[0].text for row in logits]
        notes: tuple[str, ...] = ()
        if (
            isinstance(found, LabelPredictions)
            and found.missing is not None
            and (missed := int((found.missing > 0).sum()))
        ):
            notes = (f"{missed:,} of {len(texts):,} examples have labels that the training data lacks",)
        values = (scores.metrics, scores.intervals, scores.signature, scores.count, texts, notes)
        return Evaluation(*values, self.config.get("members", ()))

    def found(self, examples: Sequence[Example], logits: np.ndarray) -> LabelPredictions | NumberPredictions:
        """Predictions beside their references."""
        texts = [example.targets[0] for example in examples]
        return with_references(self.target, logits, self.target.encode(texts), self.target.missing(texts))

    def evaluation_details(
        self, examples: Sequence[Example], search: Search | None = None, *, most: int = 1000
    ) -> dict[str, Any]:
        """What an evaluation found, as values for a report; fit for `json.dump`."""
        return evaluation_details(self, examples, most=most)

    @torch.inference_mode()
    def attention(self, text: str) -> list[tuple[str, float]] | None:
        """How much each token counts in the summary, <eos> too; None where the summary is no attention."""
        summary = getattr(self.model, "summary", None)
        if not isinstance(summary, AttentionPool):
            return None
        self.model.eval()
        with watch(summary) as seen:
            self.model(pad([self.encode(text)]).to(self.device))
        weights = seen[""][0].flatten().float().cpu().tolist()
        return list(zip([*self.display_tokens(text), "<eos>"], weights, strict=True))
