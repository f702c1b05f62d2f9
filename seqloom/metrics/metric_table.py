"""METRICS: all scores in one literal table, with title, unit, direction and what they score.

Free of torch and numpy, so that settings and the command line can read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from seqloom.errors import SeqloomError, known

LOWER, HIGHER = "lower", "higher"
# The modules of the functions, by what they score.
HOMES = {
    "texts": "seqloom.metrics.text.text_metrics",
    "labels": "seqloom.metrics.classification",
    "numbers": "seqloom.metrics.classification",
    "tags": "seqloom.metrics.span_f1",
}


@dataclass(frozen=True)
class Metric:
    title: str
    unit: str
    better: str  # "lower" or "higher"
    about: str
    of: tuple[str, ...] = ()  # what its functions score, see HOMES; empty: it is a form of the loss
    places: int = 2  # digits after the point that are worth reading
    selects: bool = False  # whether the best model may be chosen by it

    def __post_init__(self) -> None:
        if self.better not in (LOWER, HIGHER):
            raise SeqloomError(
                f"metric {self.title!r} needs a direction: better is lower or higher, not {self.better!r}"
            )

    @property
    def lower(self) -> bool:
        return self.better == LOWER


METRICS = {
    "per": Metric(
        "token error rate", "%", LOWER, "edits a target token, against the closest reference", ("texts",), selects=True
    ),
    "cer": Metric("character error rate", "%", LOWER, "edits a character", ("texts",), selects=True),
    "wer": Metric("word error rate", "%", LOWER, "edits a word, words being split at blanks", ("texts",), selects=True),
    "exact_match": Metric(
        "all right", "%", HIGHER, "predictions that equal one of their references", ("texts",), selects=True
    ),
    "bleu": Metric("BLEU", "", HIGHER, "n-grams of words, by sacreBLEU; made for sentences", ("texts",), selects=True),
    "chrf": Metric("chrF", "", HIGHER, "n-grams of characters, by sacreBLEU", ("texts",), selects=True),
    # The task says what the accuracy counts: words, rows, tokens.
    "accuracy": Metric("accuracy", "%", HIGHER, "", ("labels", "tags"), selects=True),
    "f1": Metric(
        "span F1",
        "%",
        HIGHER,
        "harmonic mean of precision and recall over spans, as conlleval reads them",
        ("tags",),
        selects=True,
    ),
    "precision": Metric("span precision", "%", HIGHER, "written spans that are right", ("tags",)),
    "recall": Metric("span recall", "%", HIGHER, "wanted spans that were found", ("tags",)),
    "f1_strict": Metric("strict span F1", "%", HIGHER, "only spans written as the scheme says", ("tags",)),
    "sentence_accuracy": Metric("sentences all right", "%", HIGHER, "sentences with no wrong tag", ("tags",)),
    "perplexity": Metric(
        "perplexity", "", LOWER, "among so many equally likely tokens the model chooses", selects=True
    ),
    "macro_f1": Metric(
        "macro F1",
        "%",
        HIGHER,
        "the mean over labels of precision and recall taken together",
        ("labels",),
        selects=True,
    ),
    "micro_f1": Metric(
        "micro F1",
        "%",
        HIGHER,
        "precision and recall taken together, over all labels at once",
        ("labels",),
        selects=True,
    ),
    "calibration_error": Metric(
        "calibration error", "%", LOWER, "how far confidence and accuracy lie apart", ("labels",)
    ),
    "mse": Metric("mean squared error", "", LOWER, "in squared units of the numbers", ("numbers",), selects=True),
    "mae": Metric("mean absolute error", "", LOWER, "in units of the numbers", ("numbers",), selects=True),
    "r2": Metric("R²", "", HIGHER, "1: exact; 0: no better than always the mean", ("numbers",), selects=True),
    "loss": Metric("loss", "", LOWER, "how unlikely the model finds what is right, in nats", places=3, selects=True),
    "bits_per_character": Metric(
        "bits a character", "", LOWER, "the loss by the character, whatever the tokens", places=3
    ),
}
SELECT = tuple(name for name, metric in METRICS.items() if metric.selects)


def _of(*kinds: str) -> tuple[str, ...]:
    return tuple(name for name, metric in METRICS.items() if set(kinds) & set(metric.of))


# The metrics of each task, in the order in which they are shown. Those of language models are forms of the loss.
TASK_METRICS: dict[str, tuple[str, ...]] = {
    "translate": _of("texts"),
    "classify": _of("labels", "numbers"),
    "table": _of("labels", "numbers"),
    "tag": _of("tags"),
    "generate": ("loss", "perplexity", "bits_per_character"),
    "mask": ("accuracy", "perplexity", "loss"),
    "vectors": ("loss",),
}


def lower_is_better(name: str) -> bool:
    """Whether lower is better; an unknown score is refused."""
    return METRICS[known(name, METRICS, "metric")].lower


def functions(kind: str, home: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """The functions that score this `kind`, by name, from the globals of their module."""
    return {name: home[name] for name, metric in METRICS.items() if kind in metric.of}
