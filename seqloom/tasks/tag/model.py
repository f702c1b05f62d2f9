"""A trained tagger, loaded from its run: sentences in, a tag for each of their words out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqloom.data.batches.tags import TagOptions, Tags, lexicon_of
from seqloom.data.encoding.tag_schemes import spans
from seqloom.data.files.columns import Reading
from seqloom.data.formats.conll import LONGEST, Sentence, read, sentences
from seqloom.data.formats.pairs import Told, read_sources
from seqloom.data.prepare.tags import fitted
from seqloom.data.tokenizers.tokenizers import UNK
from seqloom.decoding.batched import Answer
from seqloom.decoding.search import Search
from seqloom.errors import SeqloomError
from seqloom.metrics.span_f1 import Tagged, score_tags
from seqloom.tasks.shared.evaluation import Evaluation, examples_of, reading_of
from seqloom.tasks.shared.predict import Predicting
from seqloom.tasks.shared.unseen_characters import unknown_pieces
from seqloom.tasks.tag.evaluation import Judged, record
from seqloom.training.objectives.tags import allowed_moves

COLUMNED = (".conll", ".conllu", ".tsv", ".iob", ".bio")
Asked = str | Sequence[str]  # a sentence: its text, or its words
NOTHING = Answer("", (), 0.0, 0.0, 1.0)  # is said of an empty line


class SentenceTagger(Predicting[Asked]):
    """What `seqloom.load` gives for a run of `tag`. Remembers nothing between calls.

    It predicts the tags of a sentence, blanks between, as its words have blanks between.
    """

    each = (str, Sequence)

    def __init__(
        self,
        folder: Path,
        config: dict[str, Any],
        model: nn.Module,
        vocabularies: Mapping[str, Any],
        device: torch.device,
    ) -> None:
        self.folder, self.config, self._model, self.device = folder, config, model, device
        self.lexicon, self.tags = lexicon_of(vocabularies), Tags.from_json(vocabularies["tags"])
        self._allowed = allowed_moves(self.tags)
        self._most = config["data"].get("max_length") or LONGEST

    @property
    def model(self) -> nn.Module:
        return self._model

    def reading(self, columns: str | None = None, skip_bad: bool | None = None) -> Reading:
        """How files are read: as those of the training, but for what is given."""
        return reading_of(self.config, columns, skip_bad)

    def read(self, files: Sequence[str], reading: Reading) -> tuple[list[Sentence], list[str]]:
        """The tagged sentences of some files, mended if those of the training were, and what is to be said of them."""
        found = read(files, reading, longest=None)  # `tag` reads long ones in parts
        options = TagOptions(repair=self.config["data"].get("repair", False))
        sentences, notes = fitted(found.sentences, options, self.tags)
        return sentences, [*found.notes, *notes]

    def sources(self, file: str, reading: Reading | None = None, told: Told | None = None) -> Iterator[Asked]:
        """What to tag: sentences of a CoNLL file (.conll, .conllu, .tsv), with or without tags, or lines of text."""
        if file.removesuffix(".gz").endswith(COLUMNED):
            return sentences(file, reading or self.reading(), told)
        return read_sources(file, reading, told)

    def unknown(self, source: Asked) -> list[str]:
        codec = self.lexicon.characters
        return [piece for word in _words(source) for piece in unknown_pieces(codec, self.lexicon.shape(word))]

    def told(self, source: Asked, answer: Answer) -> dict[str, Any]:
        """The words, their tags and the spans that these mark; of words that were told apart offsets are those of the
        words with blanks between."""
        words, text = list(_words(source)), source if isinstance(source, str) else " ".join(source)
        places, end = [], 0
        for word in words:
            start = text.index(word, end)
            end = start + len(word)
            places.append((start, end))
        tags = [self.tags.names[tag] for tag in answer.tokens]
        marked = [] if self.tags.scheme is None else spans(tags)
        found = [(span, places[span.first][0], places[span.last][1]) for span in marked]
        keys = ("type", "start", "end", "text", "tokens")
        told = ((one.kind, start, end, text[start:end], [one.first, one.last]) for one, start, end in found)
        return {"tokens": words, "tags": tags, "spans": [dict(zip(keys, one, strict=True)) for one in told]}

    def spans(self, sources: Iterable[Asked]) -> list[list[dict[str, Any]]]:
        """The spans of each sentence: type, text, first and last character (`start`, and `end` behind it) and word."""
        asked = list(sources)
        each = zip(asked, self.answers(asked), strict=True)
        return [self.told(source, answers[0])["spans"] for source, answers in each]

    def answers(
        self, sources: Iterable[Asked], search: Search | None = None, rows: int = 64, ahead: int = 16
    ) -> Iterator[list[Answer]]:
        """The tags of each sentence, in order, as a stream; the confidence is the geometric mean of their marginals.

        A text is cut into words at its blanks; words that were told apart already may hold some."""
        search = search or Search()
        if search.beam > 1 or search.n_best > 1 or search.sample:
            raise SeqloomError(
                "the likeliest tags are found exactly: --beam, --n-best and --sample are for other tasks"
            )
        if rows < 1:
            raise SeqloomError(f"a batch has at least 1 row, here {rows}")
        sources = iter(sources)
        while chunk := [_words(source) for source in islice(sources, ahead * rows)]:
            yield from ([answer] for answer in self.tag(chunk, rows))

    @torch.inference_mode()
    def tag(self, sentences: Sequence[Sequence[str]], rows: int = 64) -> list[Answer]:
        """As `answers`, for sentences that are lists of words. A very long sentence is read in parts."""
        self._model.eval()
        parts = [
            (row, words[at : at + self._most])
            for row, words in enumerate(sentences)
            for at in _starts(words, self._most)
        ]
        parts.sort(key=lambda part: len(part[1]))  # stable: the parts of a sentence but for the last are equally long
        found: list[list[tuple[list[int], list[float], float]]] = [[] for _ in sentences]
        for start in range(0, len(parts), rows):
            batch = parts[start : start + rows]
            best = self._model.best(self.lexicon.words_of([words for _, words in batch]).to(self.device), self._allowed)  # pyright: ignore
            each = zip(batch, best.tags.tolist(), best.marginals.tolist(), best.likelihood.tolist(), strict=True)
            for (row, words), tags, marginals, likelihood in each:
                found[row].append((tags[: len(words)], marginals[: len(words)], likelihood))
        return [self._answer(sorted(several, key=lambda part: -len(part[0]))) for several in found]

    def once(self, length: int) -> None:
        """One example of `length` words through the model: what `seqloom info` counts."""
        self._model.scores(self.lexicon.words_of([["word"] * length]))  # pyright: ignore[reportCallIssue]

    def _answer(self, parts: list[tuple[list[int], list[float], float]]) -> Answer:
        tags = [tag for part in parts for tag in part[0]]
        if not tags:
            return NOTHING
        score = sum(sum(part[1]) for part in parts) / len(tags)
        text = " ".join(self.tags.names[tag] for tag in tags)
        return Answer(text, tuple(tags), score, sum(part[2] for part in parts), math.exp(score))

    def evaluate(
        self,
        files: str | Path | Iterable[Any],
        search: Search | None = None,
        *,
        metrics: Sequence[str] | None = None,
        reading: Reading | None = None,
    ) -> Evaluation:
        """Scores on files of tagged sentences, or on the test split of a dataset by name."""
        sentences, notes = examples_of(self, files, reading, "tagged sentences")
        return self.judge(self.judged(sentences), metrics, tuple(notes))

    def judged(self, sentences: Sequence[Sentence]) -> list[Judged]:
        """Sentences with the tags that the model gives them."""
        answers = self.tag([sentence.words for sentence in sentences])
        return [
            Judged(sentence, answer, tuple(self.tags.names[tag] for tag in answer.tokens), self._unknown(sentence))
            for sentence, answer in zip(sentences, answers, strict=True)
        ]

    def _unknown(self, sentence: Sentence) -> tuple[bool, ...]:
        return tuple(self.lexicon.number(word) == UNK for word in sentence.words)

    def judge(
        self, judged: Sequence[Judged], metrics: Sequence[str] | None = None, notes: tuple[str, ...] = ()
    ) -> Evaluation:
        """Scores of tags that were written already."""
        tagged = Tagged([one.written for one in judged], [one.sentence.tags for one in judged], self.tags.scheme)
        scores = score_tags(tagged, metrics)
        new = sorted({tag for one in judged for tag in one.sentence.tags} - set(self.tags.names))
        if new:
            notes = (*notes, f"tags that the model does not know, and so always misses: {', '.join(new[:5])}")
        predictions = [one.answer.text for one in judged]
        told = (scores.metrics, scores.intervals, scores.signature, scores.count, predictions, notes)
        return Evaluation(*told, self.config.get("members", ()))

    def record(self, examples: Sequence[Sentence], search: Search | None = None, *, most: int = 1000) -> dict[str, Any]:
        """What an evaluation of at most `most` sentences found, for a report; see `tagrecord`."""
        return record(self, examples, most)


def _words(source: Asked) -> Sequence[str]:
    return source.split() if isinstance(source, str) else source


def _starts(words: Sequence[str], most: int) -> range:
    return range(0, len(words), most)
