"""Scores of tags: accuracy, and precision, recall and F1 of spans.

As `seqeval` (Nakayama 2018), by sums over sentences, so that the bootstrap draws sentences, not words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seqloom.data.encoding.tag_schemes import Span, spans, strict_spans
from seqloom.errors import SeqloomError
from seqloom.metrics.bootstrap import percentiles, resampled_sums
from seqloom.metrics.metric import CorpusScore
from seqloom.metrics.metric_table import METRICS, functions, metric_names
from seqloom.metrics.text.text_metrics import Scores
from seqloom.version import __version__

Rows = Sequence[Sequence[str]]


@dataclass(frozen=True)
class TagSequences:
    """Predicted and reference tags of each sentence, and their scheme."""

    predictions: Rows
    references: Rows
    scheme: str | None = None  # None: the tags mark no spans


def accuracy(tagged: TagSequences) -> CorpusScore:
    """Share of words with the right tag (Manning 2011, "Part-of-Speech Tagging from 97% to 100%")."""
    return CorpusScore(_correct_tags(tagged), _percent, _signature("accuracy", "words"))


def sentence_accuracy(tagged: TagSequences) -> CorpusScore:
    """Share of sentences with all tags right (Manning 2011, section 1)."""
    right = _correct_tags(tagged)
    table = np.stack([right[:, 0] == right[:, 1], np.ones(len(right))], axis=1).astype(np.float64)
    return CorpusScore(table, _percent, _signature("sentence_accuracy", "sentences"))


def precision(tagged: TagSequences) -> CorpusScore:
    """Share of predicted spans that are right: first word, last word, type (Tjong Kim Sang and De Meulder 2003)."""
    return CorpusScore(_spans(tagged), lambda sums: 100 * _ratio(sums[0], sums[1]), _signature("precision", "spans"))


def recall(tagged: TagSequences) -> CorpusScore:
    """Share of reference spans that were found (Tjong Kim Sang and De Meulder 2003)."""
    return CorpusScore(_spans(tagged), lambda sums: 100 * _ratio(sums[0], sums[2]), _signature("recall", "spans"))


def f1(tagged: TagSequences) -> CorpusScore:
    """The harmonic mean of precision and recall over all spans (Tjong Kim Sang and De Meulder 2003), as conlleval and
    seqeval read them: also broken ones."""
    return CorpusScore(_spans(tagged), _f1, _signature("f1", "spans"))


def f1_strict(tagged: TagSequences) -> CorpusScore:
    """As `f1`, but only well-formed spans count (seqeval's strict mode, Nakayama 2018)."""
    return CorpusScore(_spans(tagged, strict=True), _f1, _signature("f1_strict", f"spans|{tagged.scheme}"))


TAG_METRICS: Mapping[str, Callable[[TagSequences], CorpusScore]] = functions("tags")


def score_tags(
    tagged: TagSequences, metrics: Sequence[str] | None = None, *, samples: int = 1000, seed: int = 12345
) -> Scores:
    """Each of `metrics` with its 95 % bootstrap interval over sentences; None: all that apply to the tags.

    `samples=0` leaves the intervals out.
    """
    _check(tagged)
    fitting = [name for name in TAG_METRICS if tagged.scheme is not None or not METRICS[name].spans]
    names = fitting if metrics is None else metric_names(metrics, TAG_METRICS)
    for name in names:
        if tagged.scheme is None and METRICS[name].spans:
            raise SeqloomError(f"{name} is a score of spans, and these tags mark none (as B-X, I-X and O would)")
    measured = {name: TAG_METRICS[name](tagged) for name in names}
    return Scores(
        metrics={name: one.score for name, one in measured.items()},
        intervals={name: _interval(one, samples, seed) for name, one in measured.items()} if samples else {},
        signature={name: one.signature for name, one in measured.items()},
        count=len(tagged.references),
    )


def score_sums(tagged: TagSequences) -> np.ndarray:
    """[5]: right tags, words, right, predicted and reference spans; they add up over batches and processes."""
    found = np.zeros((0, 3)) if tagged.scheme is None else _spans(tagged)
    return np.concatenate([_correct_tags(tagged).sum(0), found.sum(0)])


@dataclass(frozen=True)
class TypeScores:
    """Scores of one tag, or of one type of spans, in percent."""

    name: str
    precision: float
    recall: float
    f1: float
    wanted: int
    written: int


def by_type(tagged: TagSequences) -> list[TypeScores]:
    """Scores of every span type, or of every tag if they mark no spans; sorted by name."""
    right, written, wanted = Counter[str](), Counter[str](), Counter[str]()
    for predicted, true in zip(tagged.predictions, tagged.references, strict=True):
        if tagged.scheme is None:
            pairs = list(zip(predicted, true, strict=True))
            right.update(tag for tag, reference in pairs if tag == reference)
            written.update(predicted)
            wanted.update(true)
        else:
            ours, theirs = set(spans(predicted)), set(spans(true))
            right.update(span.kind for span in ours & theirs)
            written.update(span.kind for span in ours)
            wanted.update(span.kind for span in theirs)
    return [
        TypeScores(
            name,
            100 * _ratio(right[name], written[name]),
            100 * _ratio(right[name], wanted[name]),
            _f1(np.array([right[name], written[name], wanted[name]])),
            wanted[name],
            written[name],
        )
        for name in sorted(written | wanted)
    ]


def _check(tagged: TagSequences) -> None:
    if len(tagged.predictions) != len(tagged.references):
        raise SeqloomError(f"{len(tagged.predictions)} predictions but {len(tagged.references)} references")
    for row, (predicted, true) in enumerate(zip(tagged.predictions, tagged.references, strict=True), 1):
        if len(predicted) != len(true):
            raise SeqloomError(f"sentence {row}: {len(predicted)} tags were written for {len(true)} words")


def _correct_tags(tagged: TagSequences) -> np.ndarray:
    """[sentences, 2]: right tags, words."""
    pairs = zip(tagged.predictions, tagged.references, strict=True)
    found = [[sum(map(str.__eq__, predicted, true)), len(true)] for predicted, true in pairs]
    return np.array(found, np.float64).reshape(-1, 2)


def _spans(tagged: TagSequences, strict: bool = False) -> np.ndarray:
    """[sentences, 3]: right, predicted and reference spans."""

    def read(tags: Sequence[str]) -> set[Span]:
        scheme = tagged.scheme
        return set(strict_spans(tags, scheme) if strict and scheme not in (None, "iob1") else spans(tags))

    sets = (
        (read(predicted), read(true)) for predicted, true in zip(tagged.predictions, tagged.references, strict=True)
    )
    return np.array([[len(a & b), len(a), len(b)] for a, b in sets], np.float64).reshape(-1, 3)


def _interval(one: CorpusScore, samples: int, seed: int) -> tuple[float, float]:
    return percentiles([one.finish(row) for row in resampled_sums(one.table, samples=samples, seed=seed)], 0.95)


def _ratio(part: float, whole: float) -> float:
    """0/0 is 0, as in conlleval."""
    return float(part) / max(float(whole), 1.0)


def _percent(sums: np.ndarray) -> float:
    return 100 * _ratio(sums[0], sums[1])


def _f1(sums: np.ndarray) -> float:
    """2PR / (P + R) of right, predicted and reference counts."""
    return 100 * _ratio(2 * sums[0], sums[1] + sums[2])


def _signature(name: str, over: str) -> str:
    return f"{name}|over:{over}|version:{__version__}"
