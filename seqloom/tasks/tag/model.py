"""A trained tagger, loaded from its run: sentences in, a tag for each of their words out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from seqloom.data.batches.tags import TagOptions, Tags, lexicon_of
from seqloom.data.encoding.tag_schemes import spans
from seqloom.data.files.columns import ReadOptions
from seqloom.data.formats.conll import LONGEST, Sentence, read, sentences
from seqloom.data.formats.pairs import OnNote, read_sources
from seqloom.data.prepare.tags import clean_tags
from seqloom.data.tokenizers.tokenizers import UNK
from seqloom.decoding.batched import Answer
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError
from seqloom.metrics.span_f1 import TagSequences, score_tags
from seqloom.tasks.shared.evaluation import Evaluation, examples_of, reading_of
from seqloom.tasks.shared.predictor import LoadedRun, Predictor
from seqloom.tasks.shared.unseen_characters import unknown_tokens
from seqloom.tasks.tag.evaluation import ScoredExample, evaluation_details
from seqloom.training.objectives.tags import allowed_moves

COLUMNED = (".conll", ".conllu", ".tsv", ".iob", ".bio")
Asked = str | Sequence[str]  # a sentence: its text, or its words
EMPTY_ANSWER = Answer("", (), 0.0, 0.0, 1.0)  # of an empty line


class TagModel(Predictor[Asked]):
    """What `seqloom.load` gives for a run of `tag`. Remembers nothing between calls.

    It predicts the tags of a sentence, blanks between, as its words have blanks between.
    """

    item_types = (str, Sequence)

    def __init__(self, run: LoadedRun) -> None:
        super().__init__(run)
        self.lexicon, self.tags = lexicon_of(run.vocabularies), Tags.from_json(run.vocabularies["tags"])
        self._allowed = allowed_moves(self.tags)
        self._most = run.config["data"].get("max_length") or LONGEST

    def reading(self, columns: str | None = None, skip_bad: bool | None = None) -> ReadOptions:
        """How files are read: as those of the training, but for what is given."""
        return reading_of(self.config, columns, skip_bad)

    def read(self, files: Sequence[str], reading: ReadOptions) -> tuple[list[Sentence], list[str]]:
        """The tagged sentences of some files, repaired if those of the training were, and notes on them."""
        found = read(files, reading, longest=None)  # `tag` reads long ones in parts
        options = TagOptions(repair_tags=self.config["data"].get("repair_tags", False))
        sentences, notes = clean_tags(found.sentences, options, self.tags)
        return sentences, [*found.notes, *notes]

    def sources(self, file: str, reading: ReadOptions | None = None, on_note: OnNote | None = None) -> Iterator[Asked]:
        """What to tag: sentences of a CoNLL file (.conll, .conllu, .tsv), with or without tags, or lines of text."""
        if file.removesuffix(".gz").endswith(COLUMNED):
            return sentences(file, reading or self.reading(), on_note)
        return read_sources(file, reading, on_note)

    def unknown(self, source: Asked) -> list[str]:
        codec = self.lexicon.characters
        return [piece for word in _words(source) for piece in unknown_tokens(codec, self.lexicon.shape(word))]

    def answer_json(self, source: Asked, answer: Answer) -> dict[str, Any]:
        """The words, their tags and the spans that these mark; of a sentence given as words, offsets are those of the
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
        marked_spans = ((one.kind, start, end, text[start:end], [one.first, one.last]) for one, start, end in found)
        return {"tokens": words, "tags": tags, "spans": [dict(zip(keys, one, strict=True)) for one in marked_spans]}

    def spans(self, sources: Iterable[Asked]) -> list[list[dict[str, Any]]]:
        """The spans of each sentence: type, text, first and last character (`start`, and `end` behind it) and word."""
        asked = list(sources)
        each = zip(asked, self.answers(asked), strict=True)
        return [self.answer_json(source, answers[0])["spans"] for source, answers in each]

    def answers(
        self, sources: Iterable[Asked], search: Search | None = None, rows: int = 64, ahead: int = 16
    ) -> Iterator[list[Answer]]:
        """The tags of each sentence, in order, as a stream; the confidence is the geometric mean of their marginals.

        A text is cut into words at its blanks; words given one by one may hold some."""
        search = search or Search()
        search.check_auto("tag")
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
        self.model.eval()
        parts = [
            (row, words[at : at + self._most])
            for row, words in enumerate(sentences)
            for at in range(0, len(words), self._most)
        ]
        parts.sort(key=lambda part: len(part[1]))  # stable: the parts of a sentence but for the last are equally long
        found: list[list[tuple[list[int], list[float], float]]] = [[] for _ in sentences]
        for start in range(0, len(parts), rows):
            batch = parts[start : start + rows]
            best = self.model.best(self.lexicon.words_of([words for _, words in batch]).to(self.device), self._allowed)  # pyright: ignore
            each = zip(batch, best.tags.tolist(), best.marginals.tolist(), best.likelihood.tolist(), strict=True)
            for (row, words), tags, marginals, likelihood in each:
                found[row].append((tags[: len(words)], marginals[: len(words)], likelihood))
        return [self._answer(sorted(several, key=lambda part: -len(part[0]))) for several in found]

    def dummy_forward(self, length: int) -> None:
        """One example of `length` words through the model: what `seqloom info` counts."""
        self.model.scores(self.lexicon.words_of([["word"] * length]))  # pyright: ignore[reportCallIssue]

    def _answer(self, parts: list[tuple[list[int], list[float], float]]) -> Answer:
        tags = [tag for part in parts for tag in part[0]]
        if not tags:
            return EMPTY_ANSWER
        score = sum(sum(part[1]) for part in parts) / len(tags)
        text = " ".join(self.tags.names[tag] for tag in tags)
        return Answer(text, tuple(tags), score, sum(part[2] for part in parts), math.exp(score))

    def evaluate(
        self,
        files: str | Path | Iterable[Any],
        search: Search | None = None,
        *,
        metrics: Sequence[str] | None = None,
        reading: ReadOptions | None = None,
    ) -> Evaluation:
        """Scores on files of tagged sentences, or on the test split of a dataset by name."""
        sentences, notes = examples_of(self, files, reading, "tagged sentences")
        return self.score(self.scored(sentences), metrics, tuple(notes))

    def scored(self, sentences: Sequence[Sentence]) -> list[ScoredExample]:
        """Sentences with the tags that the model gives them."""
        scored = []
        for sentence, answer in zip(sentences, self.tag([one.words for one in sentences]), strict=True):
            predicted = tuple(self.tags.names[tag] for tag in answer.tokens)
            unknown = tuple(self.lexicon.word_id(word) == UNK for word in sentence.words)
            scored.append(ScoredExample(sentence, answer, predicted, unknown))
        return scored

    def score(
        self, scored: Sequence[ScoredExample], metrics: Sequence[str] | None = None, notes: tuple[str, ...] = ()
    ) -> Evaluation:
        """Scores of tags that were written already."""
        tagged = TagSequences([one.written for one in scored], [one.sentence.tags for one in scored], self.tags.scheme)
        scores = score_tags(tagged, metrics)
        new = sorted({tag for one in scored for tag in one.sentence.tags} - set(self.tags.names))
        if new:
            notes = (*notes, f"tags that the model does not know, and so always misses: {', '.join(new[:5])}")
        predictions = [one.answer.text for one in scored]
        values = (scores.metrics, scores.intervals, scores.signature, scores.count, predictions, notes)
        return Evaluation(*values, self.config.get("members", ()))

    def evaluation_details(
        self, examples: Sequence[Sentence], search: Search | None = None, *, most: int = 1000
    ) -> dict[str, Any]:
        """What an evaluation of at most `most` sentences found, as values for a report."""
        return evaluation_details(self, examples, most)


def _words(source: Asked) -> Sequence[str]:
    return source.split() if isinstance(source, str) else source
