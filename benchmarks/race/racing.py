"""One race: for all entrants the best settings are probed, all make their model and warm up, then they run in turns."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from environments import AbsentError
from probing import Settings, Trial, alternatives, checked, probe, tried
from targets import ANY, OURS, Entrant, Work
from workers import Worker

PAUSE = 0.25  # seconds between turns: threads of the one before spin for a while, waiting for work
PASSES = 200  # over the batches a turn, at most


@dataclass
class Lane:
    """What one entrant did: seconds a pass over the batches, by rounds; or why it did nothing."""

    entrant: Entrant
    settings: Settings = field(default_factory=dict)  # at which it is raced
    trials: list[Trial] = field(default_factory=list)
    parameters: int = 0
    passes: int = 1
    seconds: list[float] = field(default_factory=list)
    losses: tuple[float, float] | None = None  # a token's, mean of the first pass and of the last
    memory: float | None = None  # GB at most, on a GPU
    absent: str | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass
class Race:
    work: Work
    holds: dict[str, int]  # of a pass: words, tokens, batches
    lanes: list[Lane]
    curves: dict[str, list[float]] = field(default_factory=dict)

    def rate(self, seconds: float) -> float:
        """In the work's unit."""
        if self.work.unit == "ms a word":
            return 1000 * seconds / self.holds["words"]
        if self.work.unit == "ms a step":
            return 1000 * seconds / (self.holds["batches"] * self.work.steps)
        return self.holds["words" if self.work.unit == "words/s" else "tokens"] / seconds

    def ran(self) -> list[Lane]:
        return [lane for lane in self.lanes if lane.seconds]

    def lane(self, label: str) -> Lane | None:
        return next((lane for lane in self.ran() if lane.entrant.label == label), None)

    def ours(self, precision: str, compiled: bool = False) -> Lane | None:
        """Our column of this precision, or our best; compiled, where that is a column by itself."""
        found = [lane for lane in self.ran() if lane.entrant.peer == OURS and _of(lane, precision)]
        return _best([lane for lane in found if dict(lane.entrant.differs).get("compiled", False) == compiled])

    def peers(self, precision: str = ANY, begins: str = "") -> list[Lane]:
        """Those beside us that ran, in one precision or any, by the beginning of their label."""
        others = [lane for lane in self.ran() if lane.entrant.peer != OURS and _of(lane, precision)]
        return [lane for lane in others if lane.entrant.label.startswith(begins)]

    def fastest(self, precision: str = ANY, begins: str = "") -> Lane | None:
        return _best(self.peers(precision, begins))


def _of(lane: Lane, precision: str) -> bool:
    return precision in (ANY, lane.entrant.precision)


def _best(lanes: list[Lane]) -> Lane | None:
    return min(lanes, key=lambda lane: lane.median, default=None)


def ratios(ours: Lane, theirs: Lane) -> list[float]:
    """How many times as fast we were, round by round; only whole rounds count."""
    return [a / b for a, b in zip(theirs.seconds, ours.seconds, strict=False)]


class Pace(NamedTuple):
    rounds: int  # at most
    turn: float  # seconds a turn should last at least, so that single hiccups do not count
    until: float  # when to start no further round, by time.monotonic; we always run one
    grace: float = 3600.0  # seconds after that for which an answer is waited for
    least: float | None = None  # seconds of a probe's turn; None: nothing is probed


Field = Callable[[str], Worker]  # by the peer's name, flags of its process behind it; raises AbsentError


def order(
    work: Work, entrant: Entrant, batches: Path, where: dict[str, Any], settings: Settings | None = None
) -> dict[str, Any]:
    """All that a worker must know."""
    plain = {"precision": "fp32", "compiled": False, "compute": "", "workers": 1}
    own = {"kind": work.kind, "model": work.model, "steps": work.steps, "beam": work.beam}
    own |= {"variant": entrant.variant, "batches": str(batches)}
    return {**own, **plain, **where, **dict(entrant.differs), **(settings or {})}


def race(work: Work, batches: Path, holds: dict[str, int], workers: Field, where: dict[str, Any], pace: Pace) -> Race:
    """`holds`: what a pass over the batches holds; `where`: the device and the threads."""
    done = Race(work, holds, [Lane(entrant) for entrant in work.entrants])
    for lane in done.lanes:
        with _guarded(lane):
            if time.monotonic() > pace.until and lane.entrant.peer != OURS:
                raise AbsentError("no time was left")
            if pace.least is not None and lane.entrant.knobs:
                _probe(lane, work, batches, workers, where, pace)
    for lane in _turns(done.lanes, 0):
        with _guarded(lane):
            _ready(lane, done, _worker(lane, workers), order(work, lane.entrant, batches, where, lane.settings), pace)
    for turn in range(pace.rounds):
        if turn and time.monotonic() > pace.until:
            break
        for lane in _turns(done.lanes, turn):
            with _guarded(lane):
                _go(lane, _worker(lane, workers), work, pace)
    for lane in done.lanes:
        with suppress(AbsentError):
            _worker(lane, workers).ask(60, do="drop", name=lane.entrant.label)
    return done


def curve(
    work: Work, entrant: Entrant, batches: Path, workers: Field, where: dict[str, Any], seconds: float
) -> list[float]:
    """The loss of every step over one pass, from the beginning."""
    worker, name = workers(entrant.peer), f"curve of {entrant.label}"  # of losses, which no setting changes
    worker.ask(seconds, do="make", name=name, order=order(work, entrant, batches, where))
    losses = worker.ask(seconds, do="go", name=name, passes=1)["losses"]
    worker.ask(60, do="drop", name=name)
    return losses


def warmed(work: Work, batches: Path, workers: Field, where: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """One pass of everybody who may be compiled, which leaves the programs on the disk: whom, and how it went."""
    for one in (one for one in work.entrants if "compiled" in one.knobs):
        asked = order(work, one, batches, where, {"compiled": True})
        try:
            worker = workers(one.peer)
            worker.ask(3600, do="make", name=one.label, order=asked)
            seconds = worker.ask(3600, do="go", name=one.label, passes=1)["seconds"]
            worker.ask(60, do="drop", name=one.label)
        except AbsentError as error:
            yield one.label, str(error)
        else:
            yield one.label, f"{seconds:.0f} s"


def _worker(lane: Lane, workers: Field, settings: Settings | None = None) -> Worker:
    """Its process: flags are of a process, so there is one for each set of them."""
    flags = (lane.settings if settings is None else settings).get("flags", "")
    return workers(f"{lane.entrant.peer} {flags}".strip())


def _probe(lane: Lane, work: Work, batches: Path, workers: Field, where: dict[str, Any], pace: Pace) -> None:
    def timed(settings: Settings) -> float:
        asked = order(work, lane.entrant, batches, where, settings)
        return tried(_worker(lane, workers, settings), lane.entrant.label, asked, pace.least or 0.0, _patience(pace))

    lane.settings, lane.trials = probe(alternatives(lane.entrant, where["threads"]), timed)


def _ready(lane: Lane, race: Race, worker: Worker, order: dict[str, Any], pace: Pace) -> None:
    """Make the model; two passes to warm up, of which the first is looked at and the second says how long one takes."""
    left, name = _patience(pace), lane.entrant.label
    lane.parameters = worker.ask(left, do="make", name=name, order=order)["parameters"]
    checked(race.work, race.holds, order, {"parameters": lane.parameters, **worker.ask(left, do="check", name=name)})
    for _ in range(1 + order["compiled"]):
        seconds = worker.ask(left, do="go", name=name, passes=1)["seconds"]
    lane.passes = max(1, min(PASSES, math.ceil(pace.turn / max(seconds, 1e-9))))


def _go(lane: Lane, worker: Worker, work: Work, pace: Pace) -> None:
    time.sleep(PAUSE)
    told = worker.ask(_patience(pace), do="go", name=lane.entrant.label, passes=lane.passes)
    if work.kind == "decode" and told["lengths"] != [work.steps]:
        raise AbsentError(f"wrote {told['lengths']} tokens a sentence rather than {work.steps}")
    if "losses" in told:
        first, last = (statistics.fmean(part) for part in _ends(told["losses"], lane.passes))
        lane.losses = (lane.losses[0] if lane.losses else first, last)
    lane.memory = max(lane.memory or 0.0, told["memory"]) if "memory" in told else None
    lane.seconds.append(told["seconds"] / lane.passes)


def _ends(losses: list[float], passes: int) -> tuple[list[float], list[float]]:
    size = len(losses) // passes
    return losses[:size], losses[-size:]


def _turns(lanes: list[Lane], turn: int) -> Iterator[Lane]:
    """Forwards, then backwards: what drifts over a round favours nobody."""
    present = [lane for lane in lanes if lane.absent is None]
    return iter(present if turn % 2 == 0 else present[::-1])


def _patience(pace: Pace) -> float:
    """A slow peer may end its turn after the time is up; a stuck one is not waited for."""
    return min(max(pace.until - time.monotonic(), 0.0) + pace.grace, 3600.0)


@contextmanager
def _guarded(lane: Lane) -> Iterator[None]:
    """One that fails is out, with the reason; the others run on."""
    try:
        yield
    except AbsentError as error:
        lane.absent, lane.seconds = str(error), []
