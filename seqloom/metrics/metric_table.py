"""METRICS: all scores in one literal table, with title, unit, direction and the functions that compute them.

Free of torch and numpy, so that settings and the command line can read it. All else that is known of metrics (which a
task has, by which the best model may be chosen, what reports show) follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seqloom.build import Functions
from seqloom.errors import SeqloomError, is_known, known

LOWER, HIGHER = "lower", "higher"
# What the functions score, and what they get: `Examples`, `LabelPredictions`, `NumberPredictions`, `TagSequences`. All
# give a `CorpusScore`.
KINDS = ("texts", "labels", "numbers", "tags")
TEXTS, LABELS, TAGS = "seqloom.metrics.text.text_metrics", "seqloom.metrics.classification", "seqloom.metrics.span_f1"


@dataclass(frozen=True)
class Metric:
    title: str
    unit: str
    better: str  # "lower" or "higher"
    about: str
    # Kind (see KINDS) -> the function, as "module:function"; none: it is a form of the loss.
    of: Mapping[str, str | Callable[..., Any]] = field(default_factory=dict)
    places: int = 2  # digits after the point that are worth reading
    selects: bool = False  # whether the best model may be chosen by it
    spans: bool = False  # of tags: only where they mark spans

    def __post_init__(self) -> None:
        if self.better not in (LOWER, HIGHER):
            raise SeqloomError(
                f"metric {self.title!r} needs a direction: better is lower or higher, not {self.better!r}"
            )
        for kind in self.of:
            known(kind, KINDS, f"kind of metric {self.title!r}")

    @property
    def lower(self) -> bool:
        return self.better == LOWER


METRICS = {
    "per": Metric(
        "token error rate",
        "%",
        LOWER,
        "edits a target token, against the closest reference",
        {"texts": f"{TEXTS}:per"},
        selects=True,
    ),
    "cer": Metric("character error rate", "%", LOWER, "edits a character", {"texts": f"{TEXTS}:cer"}, selects=True),
    "wer": Metric(
        "word error rate",
        "%",
        LOWER,
        "edits a word, words being split at blanks",
        {"texts": f"{TEXTS}:wer"},
        selects=True,
    ),
    "exact_match": Metric(
        "all right",
        "%",
        HIGHER,
        "predictions that equal one of their references",
        {"texts": f"{TEXTS}:exact_match"},
        selects=True,
    ),
    "bleu": Metric(
        "BLEU",
        "",
        HIGHER,
        "n-grams of words, by sacreBLEU; made for sentences",
        {"texts": f"{TEXTS}:bleu"},
        selects=True,
    ),
    "chrf": Metric("chrF", "", HIGHER, "n-grams of characters, by sacreBLEU", {"texts": f"{TEXTS}:chrf"}, selects=True),
    # The task says what the accuracy counts: words, rows, tokens.
    "accuracy": Metric(
        "accuracy", "%", HIGHER, "", {"labels": f"{LABELS}:accuracy", "tags": f"{TAGS}:accuracy"}, selects=True
    ),
    "f1": Metric(
        "span F1",
        "%",
        HIGHER,
        "harmonic mean of precision and recall over spans, as conlleval reads them",
        {"tags": f"{TAGS}:f1"},
        selects=True,
        spans=True,
    ),
    "precision": Metric(
        "span precision", "%", HIGHER, "written spans that are right", {"tags": f"{TAGS}:precision"}, spans=True
    ),
    "recall": Metric(
        "span recall", "%", HIGHER, "wanted spans that were found", {"tags": f"{TAGS}:recall"}, spans=True
    ),
    "f1_strict": Metric(
        "strict span F1",
        "%",
        HIGHER,
        "only spans written as the scheme says",
        {"tags": f"{TAGS}:f1_strict"},
        spans=True,
    ),
    "sentence_accuracy": Metric(
        "sentences all right", "%", HIGHER, "sentences with no wrong tag", {"tags": f"{TAGS}:sentence_accuracy"}
    ),
    "perplexity": Metric(
        "perplexity", "", LOWER, "among so many equally likely tokens the model chooses", selects=True
    ),
    "macro_f1": Metric(
        "macro F1",
        "%",
        HIGHER,
        "the mean over labels of precision and recall taken together",
        {"labels": f"{LABELS}:macro_f1"},
        selects=True,
    ),
    "micro_f1": Metric(
        "micro F1",
        "%",
        HIGHER,
        "precision and recall taken together, over all labels at once",
        {"labels": f"{LABELS}:micro_f1"},
        selects=True,
    ),
    "calibration_error": Metric(
        "calibration error",
        "%",
        LOWER,
        "how far confidence and accuracy lie apart",
        {"labels": f"{LABELS}:calibration_error"},
    ),
    "mse": Metric(
        "mean squared error", "", LOWER, "in squared units of the numbers", {"numbers": f"{LABELS}:mse"}, selects=True
    ),
    "mae": Metric(
        "mean absolute error", "", LOWER, "in units of the numbers", {"numbers": f"{LABELS}:mae"}, selects=True
    ),
    "r2": Metric(
        "R²", "", HIGHER, "1: exact; 0: no better than always the mean", {"numbers": f"{LABELS}:r2"}, selects=True
    ),
    "loss": Metric("loss", "", LOWER, "how unlikely the model finds what is right, in nats", places=3, selects=True),
    "bits_per_character": Metric(
        "bits a character", "", LOWER, "the loss by the character, whatever the tokens", places=3
    ),
}
# What the functions of a task's metrics score. The metrics of language models are forms of the loss.
SCORED = {
    "translate": ("texts",),
    "classify": ("labels", "numbers"),
    "table": ("labels", "numbers"),
    "tag": ("tags",),
}
LOSSES = {
    "generate": ("loss", "perplexity", "bits_per_character"),
    "mask": ("accuracy", "perplexity", "loss"),
    "vectors": ("loss",),
}


def task_metrics(task: str) -> tuple[str, ...]:
    """The metrics of a task, in the order in which they are shown."""
    kinds = {*SCORED.get(task, ())}
    return LOSSES.get(task) or tuple(name for name, metric in METRICS.items() if kinds & metric.of.keys())


def selectable() -> tuple[str, ...]:
    """The metrics that the best model may be chosen by."""
    return tuple(name for name, metric in METRICS.items() if metric.selects)


def check_select(name: str) -> None:
    """Refuse a score that the best model cannot be chosen by."""
    if not (is_known(name, METRICS) and METRICS[name].selects):
        known(name, selectable(), "score to select by")


def lower_is_better(name: str) -> bool:
    """Whether lower is better; an unknown score is refused."""
    return METRICS[known(name, METRICS, "metric")].lower


def functions(kind: str) -> Functions[Metric]:
    """The functions that score this `kind`, by the names of their metrics."""
    return Functions(METRICS, lambda metric: metric.of.get(kind))


def metric_names(asked: Sequence[str] | None, table: Mapping[str, Any]) -> list[str]:
    """The metrics that were asked for, once each; None: all of the table."""
    names = [*table] if asked is None else [*dict.fromkeys(asked)]
    for name in names:
        if not is_known(name, METRICS) or name not in table:
            known(name, table, "metric")
    return names
