"""What is known of a run, for pages and cards. What is missing, as in a run of an older Seqloom, is not shown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from statistics import median
from typing import Any, NamedTuple

from seqloom.errors import is_known
from seqloom.language import _
from seqloom.metrics.metric_table import HIGHER, METRICS, Metric
from seqloom.reporting.number_format import finite
from seqloom.reporting.task_words import wording
from seqloom.version import IMPORTED

Record = Mapping[str, Any]  # what a runner's `record` gives


class Learned(NamedTuple):
    """Digests of what a vocabulary learned from the data: two runs of the same settings may have learned others."""

    tokenizer: str  # merges, or an imported tokenizer; the same for all tokenizers that work by rule
    tokens: str  # those it knows, in any order; the same for tokenizers that know all


# A final loss so many times the first one, and so much above it, is a divergence.
WORSE, NOISE = 2.0, 0.5
HELD_OUT = {"test": "Test data", "valid": "Validation data"}


def metric(name: str) -> Metric:
    """One that this version does not know, from an older or newer Seqloom, has its name alone; higher is better."""
    return METRICS[name] if is_known(name, METRICS) else Metric(name, "", HIGHER, "")


def imported(config: Mapping[str, Any]) -> str | None:
    """The folder that a run was imported from; None if anything was trained here, be it from an imported run."""
    inputs = config.get("inputs") or {}
    if (config.get("preset") or {}).get("size") != IMPORTED or inputs.get("from"):
        return None
    return str((inputs.get("train") or ["elsewhere"])[0])


def base_name(path: str) -> str:
    """Without its folders, which readers elsewhere do not have."""
    return PurePath(path).name or path


@dataclass(frozen=True, kw_only=True)
class Facts:
    """One run, as the files of its folder describe it."""

    name: str
    config: Mapping[str, Any]
    history: list[dict[str, Any]] = field(default_factory=list)  # the lines of metrics.jsonl
    environment: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)  # data.json
    records: Mapping[str, Record] = field(default_factory=dict)  # "test" and "valid", in this order
    parameters: int | None = None
    vocabulary: Mapping[str, int] = field(default_factory=dict)  # tokens of "source" and "target", without specials
    learned: Mapping[str, Learned] = field(default_factory=dict)  # the same vocabularies
    command: tuple[str, ...] = ()  # words of the command that repeats it

    @property
    def steps(self) -> list[dict[str, Any]]:
        return [line for line in self.history if "loss" in line and "step" in line]

    @property
    def validations(self) -> list[dict[str, Any]]:
        return [line for line in self.history if isinstance(line.get("valid"), dict) and "step" in line]

    @property
    def skipped_batches(self) -> list[dict[str, Any]]:
        return [line for line in self.history if "skipped" in line]

    @property
    def last_step(self) -> int | None:
        return max((line["step"] for line in self.history if "step" in line), default=None)

    @property
    def best(self) -> dict[str, Any] | None:
        """The validation whose model was kept."""
        return next((line for line in reversed(self.validations) if line.get("best")), None)

    @property
    def averaged(self) -> int | None:
        """How many checkpoints the kept model is the mean of; None if it is a single one."""
        kept = next((line for line in reversed(self.history) if line.get("best")), {})
        return kept.get("average")

    @property
    def averaging(self) -> int | None:
        """The step from which the mean of the weights was scored and kept (averaged SGD)."""
        return next((line["averaging"] for line in self.history if "averaging" in line), None)

    @property
    def seconds(self) -> float | None:
        """Training time without validations, up to the last line of the log."""
        return next((line["seconds"] for line in reversed(self.steps) if "seconds" in line), None)

    @property
    def speed(self) -> float | None:
        """Target tokens per second: the median, since the first lines are slow and machines pause."""
        found = [finite(line.get("tokens_per_second")) for line in self.steps]
        real = [value for value in found if value is not None]
        return median(real) if real else None

    @property
    def model(self) -> str:
        named = self.config.get("preset") or {}
        size = "" if str(named.get("model", "")).endswith((".yaml", ".yml")) else named.get("size", "")
        return f"{named.get('model', 'model')} {'' if size == IMPORTED else size}".strip()

    @property
    def imported(self) -> str | None:
        """The name of the folder it was imported from, if it was not trained here."""
        found = imported(self.config)
        return None if found is None else base_name(found)

    @property
    def start(self) -> str | None:
        """The name of the run whose weights and vocabularies it started from."""
        found = (self.config.get("inputs") or {}).get("from")
        return base_name(str(found)) if found else None

    @property
    def headline(self) -> str:
        """The metric by which the best model was chosen, if it scores predictions."""
        select = (self.config.get("training") or {}).get("select")
        measured = (self.record[1].get("metrics") or {}) if self.record else {}
        if measured and "per" not in measured:
            return str(select) if select in measured else next(iter(measured))
        return str(select) if is_known(select, METRICS) and select not in ("loss", "perplexity") else "per"

    @property
    def record(self) -> tuple[str, Record] | None:
        """The evaluation that the run is compared by: on test data where there is one."""
        return next(((name, self.records[name]) for name in HELD_OUT if name in self.records), None)

    def score(self, name: str) -> float | None:
        """On the data of `record`."""
        return finite((self.record[1].get("metrics") or {}).get(name)) if self.record else None

    def interval(self, name: str) -> tuple[float, float] | None:
        """The 95 % interval of a score, if it is known."""
        found = (self.record[1].get("intervals") or {}).get(name) if self.record else None
        low, high = (finite(end) for end in found) if found else (None, None)
        return None if low is None or high is None else (low, high)

    @property
    def device(self) -> str:
        found = self.record
        return str(found[1].get("device", "")) if found else ""

    def given(self, which: str) -> list[str]:
        """Training or validation data as the user named it; none for an imported model."""
        found = None if self.imported else (self.config.get("inputs") or {}).get(which)
        return [str(one) for one in found] if isinstance(found, list) else [] if found is None else [str(found)]

    def files(self, which: str) -> str:
        return ", ".join(self.given(which))

    def tokenizer(self, side: str) -> str:
        """The name of the tokenizer of a side."""
        options = self.config.get("data") or {}
        return str(options.get(f"{side}_tokens") or (options.get("tokens", "") if side == "source" else ""))

    def size(self, side: str) -> int | None:
        """How many tokens of a side it knows, specials not counted."""
        return self.vocabulary.get(side) or ((self.data.get("vocabulary") or {}).get(side) or {}).get("size")

    @property
    def unit(self) -> str:
        """What the data is made of: pairs, sentences, …"""
        return wording(self.config).unit

    def amount(self, which: str = "train") -> int | None:
        """How many of them it was trained or validated on; of running text, tokens."""
        part = (self.data or {}).get(which) or {}
        counts = (part.get(name) for name in ("pairs", "rows", "texts"))
        return next((count for count in counts if count), (part.get("source") or {}).get("tokens"))


def uniform_loss(facts: Facts) -> float | None:
    """The loss of a uniform prediction, log(number of targets), for tasks that choose one target among others."""
    kind = (facts.config.get("data") or {}).get("target", "label")
    vocabulary = facts.data.get("vocabulary")
    of = vocabulary.get("target") if isinstance(vocabulary, Mapping) else None
    size = finite(of.get("size")) if isinstance(of, Mapping) else None
    if facts.config.get("task") not in ("translate", "classify", "tag") or kind != "label" or size is None or size < 2:
        return None
    return math.log(size)


def diverged(history: list[dict[str, Any]], uniform: float | None = None) -> str | None:
    """A sentence if the training ended worse than it began, or worse than `uniform`, the loss of a uniform prediction;
    else None.

    A rising loss on validation data alone is no sign of it: overfitting has that too, though not before the first
    training loss was logged.
    """
    losses = [line["loss"] for line in history if "loss" in line and "step" in line]
    held = [line["valid"] for line in history if isinstance(line.get("valid"), dict) and "step" in line]
    first, last = (finite(losses[0]), finite(losses[-1])) if losses else (None, None)
    beyond = {name: value for name, value in (held[-1] if held else {}).items() if name in ("loss", "perplexity")}
    beyond = {name: value for name, value in beyond.items() if value == math.inf}
    if losses and last is None:
        reason = _("its updates were skipped at the end because the loss was not finite")
    elif first is not None and last is not None and last > max(WORSE * first, first + NOISE):
        reason = _("the loss is {end} at the end and was {start} at the beginning", end=_four(last), start=_four(first))
    elif uniform is not None and last is not None and last > max(WORSE * uniform, uniform + NOISE):
        reason = _(
            "the final loss ({end}) is worse than that of a uniform prediction ({uniform})",
            end=_four(last),
            uniform=_four(uniform),
        )
    elif uniform is not None and not losses and held and (finite(held[-1].get("loss")) or 0) > WORSE * uniform + NOISE:
        reason = _(
            "the final loss on validation data ({end}) is worse than that of a uniform prediction ({uniform})",
            end=_four(held[-1]["loss"]),
            uniform=_four(uniform),
        )
    elif beyond:
        reason = _("the {metric} on validation data is infinite", metric=_(next(iter(beyond))))
    else:
        return None
    return _("the training diverged: {reason}: try a lower --learning-rate and check the data", reason=reason)


def _four(value: float) -> str:
    return f"{value:,.4g}"


def points(lines: list[dict[str, Any]], key: str) -> list[tuple[Any, Any]]:
    """(step, value) of every line that has both."""
    return [(line["step"], line.get(key)) for line in lines if "step" in line]


def scores(lines: list[dict[str, Any]], name: str) -> list[tuple[Any, Any]]:
    """(step, score) of every validation."""
    return [(line["step"], line["valid"].get(name)) for line in lines if name in line["valid"]]


def measured(runs: Iterable[Facts]) -> list[str]:
    """The metrics of which one of these runs has a score, in the order of their table."""
    scores = [run.record[1].get("metrics") or {} for run in runs if run.record]
    found = {
        name for several in scores for name in several if is_known(name, METRICS) and finite(several[name]) is not None
    }
    return [name for name in METRICS if name in found]
