"""What is known of a run. Whatever is missing, as in a run of an older Seqloom, is simply not shown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from statistics import median
from typing import Any, NamedTuple

from seqloom.metrics.metric_table import HIGHER, METRICS, Metric
from seqloom.reporting.number_format import finite
from seqloom.reporting.task_words import wording
from seqloom.version import IMPORTED

Record = Mapping[str, Any]  # what a runner's `record` gives


class Learned(NamedTuple):
    """What a vocabulary took from the data, told by digests: two runs of the same settings may have learned others."""

    cutting: str  # how texts are cut: merges, an imported tokenizer; the same for what is cut by rule
    tokens: str  # those it knows, in whatever order; the same for what knows all


WORSE, NOISE = 2.0, 0.5  # a loss at the end so many times the first one, and so much above it, is no accident
HELD_OUT = {"test": "Test data", "valid": "Validation data"}


def metric(name: str) -> Metric:
    """What an older or a newer Seqloom counted has its name alone, and is no worse for being larger."""
    return METRICS.get(name) or Metric(name, "", HIGHER, "")


def imported(config: Mapping[str, Any]) -> str | None:
    """The folder that a run was imported from; None if anything was trained here, be it from an imported run."""
    inputs = config.get("inputs") or {}
    if (config.get("preset") or {}).get("size") != IMPORTED or inputs.get("from"):
        return None
    return str((inputs.get("train") or ["elsewhere"])[0])


def base_name(path: str) -> str:
    """Without its folders, which nobody else has."""
    return PurePath(path).name or path


@dataclass(frozen=True, kw_only=True)
class Facts:
    """One run, as the files of its folder tell it."""

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
        """Of training, validations not counted, as far as it was logged."""
        return next((line["seconds"] for line in reversed(self.steps) if "seconds" in line), None)

    @property
    def speed(self) -> float | None:
        """Target tokens a second: the median, for the first lines are slow and machines hiccup."""
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
        """The name of the run whose weights and vocabularies it began with."""
        found = (self.config.get("inputs") or {}).get("from")
        return base_name(str(found)) if found else None

    @property
    def headline(self) -> str:
        """The metric by which the best model was chosen, if it scores predictions."""
        select = (self.config.get("training") or {}).get("select")
        measured = (self.record[1].get("metrics") or {}) if self.record else {}
        if measured and "per" not in measured:
            return str(select) if select in measured else next(iter(measured))
        return select if select in METRICS and select not in ("loss", "perplexity") else "per"

    @property
    def record(self) -> tuple[str, Record] | None:
        """The evaluation to be judged by: on test data where there is one."""
        return next(((name, self.records[name]) for name in HELD_OUT if name in self.records), None)

    def score(self, name: str) -> float | None:
        """On the data to be judged by."""
        return finite((self.record[1].get("metrics") or {}).get(name)) if self.record else None

    def interval(self, name: str) -> tuple[float, float] | None:
        """95 % of it, if it is known."""
        found = (self.record[1].get("intervals") or {}).get(name) if self.record else None
        low, high = (finite(end) for end in found) if found else (None, None)
        return None if low is None or high is None else (low, high)

    @property
    def device(self) -> str:
        found = self.record
        return str(found[1].get("device", "")) if found else ""

    def given(self, which: str) -> list[str]:
        """What was trained on or held out, as the user named it; what an imported model learned from is not known."""
        found = None if self.imported else (self.config.get("inputs") or {}).get(which)
        return [str(one) for one in found] if isinstance(found, list) else [] if found is None else [str(found)]

    def files(self, which: str) -> str:
        return ", ".join(self.given(which))

    def cut(self, side: str) -> str:
        """How the texts of a side become tokens."""
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


def blind(facts: Facts) -> float | None:
    """The loss of who takes all targets for equally likely, of tasks whose loss is that of one target among others."""
    kind = (facts.config.get("data") or {}).get("target", "label")
    vocabulary = facts.data.get("vocabulary")
    of = vocabulary.get("target") if isinstance(vocabulary, Mapping) else None
    size = finite(of.get("size")) if isinstance(of, Mapping) else None
    if facts.config.get("task") not in ("translate", "classify", "tag") or kind != "label" or size is None or size < 2:
        return None
    return math.log(size)


def diverged(history: list[dict[str, Any]], blind: float | None = None) -> str | None:
    """What to say of a training whose end is worse than its beginning, or than guessing blindly, so that its model is
    worth little; else None. `blind`: the loss of that.

    A loss on validation data that only rises is no sign of it: a model that learns by heart has that too, though not
    before a loss was logged.
    """
    losses = [line["loss"] for line in history if "loss" in line and "step" in line]
    held = [line["valid"] for line in history if isinstance(line.get("valid"), dict) and "step" in line]
    first, last = (finite(losses[0]), finite(losses[-1])) if losses else (None, None)
    beyond = {name: value for name, value in (held[-1] if held else {}).items() if name in ("loss", "perplexity")}
    beyond = {name: value for name, value in beyond.items() if value == math.inf}
    if losses and last is None:
        told = "its updates were skipped at the end, for the loss was not finite"
    elif first is not None and last is not None and last > max(WORSE * first, first + NOISE):
        told = f"the loss is {last:,.4g} at the end and was {first:,.4g} at the beginning"
    elif blind is not None and last is not None and last > max(WORSE * blind, blind + NOISE):
        told = f"the final loss ({last:,.4g}) is worse than that of guessing ({blind:,.4g})"
    elif blind is not None and not losses and held and (finite(held[-1].get("loss")) or 0) > WORSE * blind + NOISE:
        end = f"{held[-1]['loss']:,.4g}"
        told = f"the final loss on validation data ({end}) is worse than that of guessing ({blind:,.4g})"
    elif beyond:
        told = f"the {next(iter(beyond))} on validation data is infinite"
    else:
        return None
    return f"the training diverged: {told}: try a lower --rate and check the data"


def points(lines: list[dict[str, Any]], key: str) -> list[tuple[Any, Any]]:
    """(step, value) of every line that has both."""
    return [(line["step"], line.get(key)) for line in lines if "step" in line]


def scores(lines: list[dict[str, Any]], name: str) -> list[tuple[Any, Any]]:
    """(step, score) of every validation."""
    return [(line["step"], line["valid"].get(name)) for line in lines if name in line["valid"]]
