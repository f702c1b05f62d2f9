"""Score predictions against references: every metric by its name, with an interval and a signature."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqloom.errors import SeqloomError, known
from seqloom.metrics.bootstrap import percentiles, resampled_sums
from seqloom.metrics.metric import CorpusScore
from seqloom.metrics.metric_table import functions, lower_is_better, metric_names
from seqloom.metrics.text import bleu_chrf
from seqloom.metrics.text.error_rates import error_rate, ratio
from seqloom.version import __version__


@dataclass(frozen=True)
class Examples:
    """The input of a metric."""

    predictions: Sequence[str]
    references: Sequence[Sequence[str]]  # one or more per prediction
    split: Callable[[str], list[str]]  # the target's `display_tokens`
    tokenize: str = "13a"  # BLEU's own tokenizer


def per(examples: Examples) -> CorpusScore:
    """Error rate over the target's tokens: the phoneme error rate where these are phonemes.

    100 · Σ edits / Σ reference tokens (Bisani and Ney 2008), the closest reference of each example counting.
    """
    return _edit_rate("per", examples, examples.split)


def cer(examples: Examples) -> CorpusScore:
    """Character error rate: 100 · Σ edits / Σ reference characters (Morris et al. 2004, on characters).

    jiwer's convention: a character is a Unicode code point; blanks within the text count, those at its ends do not.
    """
    return _edit_rate("cer", examples, lambda line: list(line.strip()))


def wer(examples: Examples) -> CorpusScore:
    """Word error rate: 100 · Σ edits / Σ reference words, words being split at blanks (Morris et al. 2004).

    Not the "WER" of papers on pronunciation, the share of words with any error; that is 100 − `exact_match`.
    """
    return _edit_rate("wer", examples, str.split)


def exact_match(examples: Examples) -> CorpusScore:
    """Share of predictions that equal one of their references, but for blanks at the ends (Rajpurkar et al. 2016, 6.1).

    Nothing else is normalized, neither case nor punctuation; so it is 100 exactly where `cer` is 0.
    """
    pairs = zip(examples.predictions, examples.references, strict=True)
    hits = [[text.strip() in {line.strip() for line in several}, 1] for text, several in pairs]
    table = np.array(hits, dtype=np.float64).reshape(-1, 2)
    return CorpusScore(table, percent, _signature("exact_match", "any"))


def bleu(examples: Examples) -> CorpusScore:
    """Corpus BLEU (Papineni et al. 2002) by sacreBLEU (Post 2018); see `bleu_chrf.bleu`."""
    return bleu_chrf.bleu(examples.predictions, examples.references, tokenize=examples.tokenize)


def chrf(examples: Examples) -> CorpusScore:
    """chrF2, the F-score of character n-grams (Popović 2015) by sacreBLEU; see `bleu_chrf.chrf`."""
    return bleu_chrf.chrf(examples.predictions, examples.references)


METRICS: Mapping[str, Callable[[Examples], CorpusScore]] = functions("texts")


@dataclass(frozen=True)
class Scores:
    """Scores in percent by the name of the metric. Not a number where there was no example."""

    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]  # 95 % bootstrap; empty if none was asked for
    signature: dict[str, str]
    count: int  # examples

    def to_json(self) -> dict[str, Any]:
        """For `json.dump`; what is not a finite number becomes null, since JSON has no NaN."""
        return {
            "metrics": {name: _finite(value) for name, value in self.metrics.items()},
            "intervals": {name: [_finite(low), _finite(high)] for name, (low, high) in self.intervals.items()},
            "signature": dict(self.signature),
            "count": self.count,
        }


def score(
    predictions: list[str],
    references: list[tuple[str, ...]],
    *,
    split: Callable[[str], list[str]],
    metrics: Sequence[str] | None = None,
    tokenize: str = "13a",
    samples: int = 1000,
    seed: int = 12345,
) -> Scores:
    """Each of `metrics` (None: all) over the whole corpus, with its 95 % bootstrap interval.

    `split` is the target's `display_tokens`, for `per`; `tokenize` is BLEU's. `samples=0` leaves the intervals out.
    """
    names = metric_names(metrics, METRICS)
    if samples < 0:
        raise SeqloomError(f"samples, the number of bootstrap draws, must be 0 or more, not {samples}.")
    bleu_chrf.check_texts(predictions, references)
    examples = Examples(predictions, references, split, tokenize)
    return with_intervals({name: METRICS[name](examples) for name in names}, len(predictions), samples, seed)


def with_intervals(measured: dict[str, CorpusScore], count: int, samples: int, seed: int) -> Scores:
    """Scores on `count` examples, with intervals from `samples` bootstrap draws."""
    return Scores(
        metrics={name: one.score for name, one in measured.items()},
        intervals=_intervals(measured, samples, seed) if samples else {},
        signature={name: one.signature for name, one in measured.items()},
        count=count,
    )


def higher_is_better(name: str) -> bool:
    """Of a score of texts."""
    return not lower_is_better(known(name, METRICS, "metric"))


def _edit_rate(name: str, examples: Examples, split: Callable[[str], list[str]]) -> CorpusScore:
    predictions = [split(line) for line in examples.predictions]
    references = [[split(line) for line in several] for several in examples.references]
    counted = error_rate(predictions, references)
    return CorpusScore(np.stack([counted.errors, counted.lengths], axis=1), percent, _signature(name, "closest"))


def _intervals(measured: dict[str, CorpusScore], samples: int, seed: int) -> dict[str, tuple[float, float]]:
    """All metrics in one table, so that drawing, the most expensive part, is done once."""
    if not measured:
        return {}
    sums = resampled_sums(np.hstack([one.table for one in measured.values()]), samples=samples, seed=seed)
    ends = np.cumsum([one.table.shape[1] for one in measured.values()])
    parts = np.split(sums, ends[:-1], axis=1)
    return {
        name: percentiles([one.finish(row) for row in part], 0.95)
        for (name, one), part in zip(measured.items(), parts, strict=True)
    }


def percent(sums: np.ndarray) -> float:
    """100 · the first sum / the second."""
    return 100 * ratio(float(sums[0]), float(sums[1]))


def _signature(name: str, references: str) -> str:
    return f"{name}|refs:{references}|case:mixed|version:{__version__}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
