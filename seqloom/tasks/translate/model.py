"""A trained model that translates, loaded from its run folder: predict, evaluate, look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from seqloom.data.batches.collate import pad
from seqloom.data.files.columns import ReadOptions
from seqloom.data.formats.bad_lines import read_examples as read_examples
from seqloom.data.formats.pairs import Example
from seqloom.data.tokenizers.tokenizers import BOS, EOS, UNK, normalization_suffix
from seqloom.decoding.batched import Answer, TextPredictor, may_be_long
from seqloom.decoding.search_options import Search
from seqloom.errors import known
from seqloom.inspection.attention_maps import AttentionMap, attention_maps
from seqloom.metrics.text.bleu_chrf import tokenizer, tokenizer_advice
from seqloom.metrics.text.text_metrics import score
from seqloom.tasks.shared.evaluation import Evaluation, examples_of, reading_of
from seqloom.tasks.shared.predictor import LoadedRun, Predictor
from seqloom.tasks.shared.unseen_characters import unknown_tokens
from seqloom.training.objectives.teacher_forcing import TeacherForcing
from seqloom.training.validation import group_by_source, paired_batches, validation_loss

SYMBOLS, SHORT = 300, 5  # an inventory of sounds: at most so many, each of so many characters at most


class Translator(Predictor[str]):
    """What `seqloom.load` gives. Remembers nothing between calls."""

    def __init__(self, run: LoadedRun, texts: TextPredictor) -> None:
        super().__init__(run)
        self.texts = texts

    def reading(self, columns: str | None = None, skip_bad: bool | None = None) -> ReadOptions:
        """How files are read: as those of the training, but for what is given."""
        return reading_of(self.config, columns, skip_bad)

    def read(self, files: list[str], reading: ReadOptions) -> tuple[list[Example], list[str]]:
        """The examples of files, and notes on them."""
        return read_examples(files, reading)

    @property
    def unseen_unit(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "characters" if self.texts.source.kind == "chars" else "words"

    def unknown(self, source: str) -> list[str]:
        return unknown_tokens(self.texts.source, source)

    def length(self, source: str) -> int:
        return len(self.texts.encode(source)) if may_be_long(source) else 0

    def answers(
        self, sources: Iterable[str], search: Search | None = None, rows: int = 64, ahead: int = 16
    ) -> Iterator[list[Answer]]:
        """The best answers of each source with their scores, in order, as a stream."""
        return self.texts.answers(sources, search or Search(), rows, ahead)

    def evaluate(
        self,
        files: str | Path | Iterable[Any],
        search: Search | None = None,
        *,
        metrics: Sequence[str] | None = None,
        together: bool = False,
        tokenize: str = "13a",
        reading: ReadOptions | None = None,
    ) -> Evaluation:
        """Scores on files of examples, or on the test split of a dataset by name.

        `together`: lines with one source are one example with several references. `reading`: which columns, and what
        about broken lines; as the run was trained unless given.
        """
        tokenizer(tokenize)  # else it would be refused when all is decoded
        examples, notes = examples_of(self, files, reading)
        if together:
            examples = [Example(source, tuple(targets), "", 0) for source, targets in group_by_source(examples).items()]
        predictions = self.predict([example.source for example in examples], search)
        scored = self.score(examples, predictions, metrics=metrics, tokenize=tokenize)
        return replace(scored, notes=(*notes, *scored.notes))

    def score(
        self,
        examples: Sequence[Example],
        predictions: list[str],
        *,
        metrics: Sequence[str] | None = None,
        tokenize: str = "13a",
    ) -> Evaluation:
        """Scores of predictions that were made already, one for each example."""
        references = [tuple(map(self.texts.target.normalize, example.targets)) for example in examples]
        scores = score(
            predictions,
            references,
            split=self.texts.target.display_tokens,
            metrics=metrics,
            tokenize=tokenize,
        )
        values = dict(scores.metrics)
        if metrics is None:
            values["perplexity"] = self._perplexity(examples)
        # What both sides lost before they were compared.
        target = self.texts.target
        signature = {
            name: text + normalization_suffix(target.fold, target.half_width) for name, text in scores.signature.items()
        }
        hint = tokenizer_advice(references, tokenize) if "bleu" in values else None
        notes = () if hint is None else (hint,)
        found = (values, scores.intervals, signature, scores.count, predictions, notes)
        members = self.config.get("members", ())
        return Evaluation(*found, members, pronunciations=self._pronounces(examples, references))

    def _pronounces(self, examples: Sequence[Example], references: Sequence[Sequence[str]]) -> bool:
        """Whether these are pronunciations, by what they are like: single words on the one side, on the other several
        short symbols of a small inventory with blanks between."""
        target = self.texts.target
        if target.kind != "words" or target.size > SYMBOLS or not examples:
            return False
        if any(len(example.source.split()) != 1 for example in examples):
            return False
        symbols = [len(target.display_tokens(several[0])) for several in references]
        return sum(symbols) >= 2 * len(symbols) and max(map(len, target.tokens), default=9) <= SHORT

    def _perplexity(self, examples: Sequence[Example]) -> float:
        """Of the first reference of each example, <eos> counted."""
        target = self.texts.target
        pairs = [(self.texts.encode(e.source), [BOS, *target.encode(e.targets[0]), EOS]) for e in examples]
        objective = TeacherForcing(self.texts.model)
        return validation_loss(objective, paired_batches(pairs), self.texts.device)["perplexity"]

    def evaluation_details(
        self, examples: Sequence[Example], search: Search | None = None, *, most: int = 1000, tokenize: str = "13a"
    ) -> dict[str, Any]:
        """What an evaluation found, as values for a report."""
        from seqloom.tasks.translate.evaluation import evaluation_details

        return evaluation_details(self, examples, search, most=most, tokenize=tokenize)

    def dummy_forward(self, length: int) -> None:
        """One example of `length` tokens a side through the model: what `seqloom info` counts."""
        self.model(pad([[UNK] * length]), torch.tensor([[BOS] + [UNK] * (length - 1)]))

    def attention(self, source: str, target: str | None = None, layer: str | None = None) -> AttentionMap:
        """Where the model looks while it writes its own answer, or `target`; the last layer unless named."""
        if target is None:
            tokens = next(self.texts.answers([source], Search()))[0].tokens
        else:
            tokens = tuple(self.texts.target.encode(target))
        maps = attention_maps(self.texts, source, tokens)
        return maps[list(maps)[-1] if layer is None else known(layer, maps, "layer")]
