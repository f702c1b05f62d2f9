"""The settings that everybody may be run with, and the short probe that finds which of them serves best at a work.

Ours and every peer are asked alike, work by work and precision by precision: one knob after the other is turned, the
others as they were best so far. What was tried stands in the results, with its figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from environments import AbsentError
from targets import Entrant, Work
from workers import Worker

Settings = dict[str, Any]
LEAST = 0.5  # seconds that a trial's turn lasts at least
PATIENCE = 150.0  # seconds that a trial may take, with compiling
NAMES = ("threads", "workers", "compute", "compiled", "flags")  # of the knobs
FLAGS = ("", "CT2_USE_MKL=1", "CT2_FORCE_CPU_ISA=AVX512", "CT2_USE_MKL=1 CT2_FORCE_CPU_ISA=AVX512")


@dataclass(frozen=True)
class Trial:
    settings: Settings
    seconds: float | None  # a pass over the batches
    absent: str | None = None


def alternatives(entrant: Entrant, cores: int) -> list[list[Settings]]:
    """What each of an entrant's knobs may be, the usual first."""
    one: Settings = {"threads": 1, "workers": 1}
    knobs = {
        "threads": [{**one, "threads": cores}, one],
        "workers": [{**one, "threads": cores}, one, {**one, "workers": cores}],
        "compute": [{"compute": "bfloat16"}, {"compute": "autocast"}],
        "compiled": [{"compiled": False}, {"compiled": True}],
        "flags": [{"flags": flags} for flags in FLAGS],
    }
    return [knobs[name] for name in entrant.knobs]


def probe(knobs: list[list[Settings]], timed: Callable[[Settings], float]) -> tuple[Settings, list[Trial]]:
    """The settings that took the least time, and all that were tried. `timed` raises AbsentError where one cannot run;
    where none can, so does this."""
    best: Settings = {name: value for knob in knobs for name, value in knob[0].items()}
    trials = [_trial(best, timed)]
    least = trials[0].seconds or math.inf
    for knob in knobs:
        start = best
        for value in knob:
            settings = {**start, **value}
            if any(settings == trial.settings for trial in trials):
                continue
            trials.append(_trial(settings, timed))
            if (seconds := trials[-1].seconds) is not None and seconds < least:
                best, least = settings, seconds
    if least == math.inf:
        raise AbsentError(trials[0].absent or "did not run")
    return best, trials


def _trial(settings: Settings, timed: Callable[[Settings], float]) -> Trial:
    try:
        return Trial(settings, timed(settings))
    except AbsentError as error:
        return Trial(settings, None, str(error))


def tried(worker: Worker, name: str, order: Settings, least: float, patience: float) -> float:
    """Seconds a pass, once everything is warm: of the shorter of two turns, or of one that is long by itself."""
    asked = min(patience, PATIENCE)
    try:
        worker.ask(asked, do="make", name=name, order=order)
        for _ in range(1 + order["compiled"]):
            seconds = worker.ask(asked, do="go", name=name, passes=1)["seconds"]
        passes = max(1, math.ceil(least / max(seconds, 1e-9)))
        turns = 1 if seconds > 2 * least else 2
        return min(worker.ask(asked, do="go", name=name, passes=passes)["seconds"] / passes for _ in range(turns))
    finally:
        if worker.process.poll() is None:
            worker.ask(60, do="drop", name=name)


def said(entrant: Entrant, settings: Settings) -> str:
    """Settings as the tables print them: `2 × 1 thread, bf16 by autocast, compiled, CT2_USE_MKL=1`."""
    all_of = {**dict(entrant.differs), **settings}
    threads, workers = all_of.get("threads"), all_of.get("workers", 1)
    words = [f"{threads} thread{'s' * (threads > 1)}"] if threads else []
    if workers > 1:
        words = [f"{workers} × {words[0]}"]
    words += [all_of["compute"].replace("autocast", "bf16 by autocast")] if all_of.get("compute") else []
    words += ["compiled"] if all_of.get("compiled") else []
    words += [all_of["flags"]] if all_of.get("flags") else []
    return ", ".join(words)


def checked(work: Work, holds: dict[str, int], order: Settings, told: Settings) -> None:
    """AbsentError where somebody did other work than the others: other words or tokens, a part of the model that does
    not learn, another precision or other threads than the table is going to say."""
    wanted = {"rows": holds["words"], "tokens": holds["tokens"], "threads": order["threads"]}
    wanted["workers"] = order["workers"]
    if told["precision"] is not None:
        wanted["precision"] = order["precision"]
    if work.kind != "decode":
        wanted["learns"] = told["parameters"]
    wrong = [f"{name} {told[name]} rather than {value}" for name, value in wanted.items() if told[name] != value]
    if wrong:
        raise AbsentError("did other work: " + "; ".join(wrong))
