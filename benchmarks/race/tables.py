"""The results as Markdown: what was wanted and what was reached, everybody's figures, curves, who was absent."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from probing import Trial, said
from racing import Lane, Race, ratios
from targets import ANY, OURS, Claim

FAMILIES = {
    "plain torch": "plain",
    "Hugging Face": "huggingface",
    "x-transformers": "xtransformers",
    "yoyodyne": "yoyodyne",
    "eole": "eole",
    "CTranslate2": "ctranslate2",
}
NONE = "–"
ALIKE = 0.01  # by which share numbers of parameters may differ


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """The first `left` columns are words, the others numbers."""
    align = ["---"] * left + ["---:"] * (len(head) - left)
    return [f"| {' | '.join(cells)} |" for cells in (head, align, *rows)]


def brief(races: Sequence[Race]) -> list[str]:
    """A row a work: by how much ours is faster than the fastest peer in the same precision, and our best than theirs
    of any, with both named where they are not alike; below 1 we lose."""
    names = ("fp32", "bf16", ANY)
    rows = [[race.work.title, *(_brief(race, name) for name in names)] for race in races]
    return table(["work", "fp32 beside fp32", "bf16 beside bf16", "best of any precision"], rows)


def _brief(race: Race, precision: str) -> str:
    ours, theirs = race.ours(precision), race.fastest(precision)
    if ours is None or theirs is None:
        return NONE
    both = f"{theirs.entrant.label}"
    if precision == ANY:
        both = f"{ours.entrant.precision} beside {theirs.entrant.label}"
    return f"{theirs.median / ours.median:.2f} ({both})"


def glance(races: Sequence[Race], families: Sequence[str] = tuple(FAMILIES)) -> list[str]:
    """A row a claim: our figure, the best of each family of peers in the same precision, the must and the aim beside
    what was reached."""
    there = [name for name in families if any(_family(race, name, ANY) for race in races)]
    rows = []
    for race in races:
        for claim in race.work.claims:
            best = [
                min(_family(race, name, claim.precision), key=lambda lane: lane.median, default=None) for name in there
            ]
            ours = race.ours(claim.precision, claim.compiled)
            figures = [figure(race, lane.median) if lane else NONE for lane in (ours, *best)]
            title = f"{race.work.title}, {_kind(claim)}"
            rows.append([title, race.work.unit, *figures, *judged(race, claim)])
    return table(["work", "unit", OURS, *there, "reached", "must", "aim", "verdict"], rows, 2)


def _kind(claim: Claim) -> str:
    name = "any precision" if claim.precision == ANY else claim.precision
    return f"{name}, compiled" if claim.compiled else name


def judged(race: Race, claim: Claim) -> tuple[str, str, str, str]:
    """What was reached, the must, the aim, and whether they hold."""
    must = _reached(race, claim, claim.against)
    aim = _reached(race, claim, claim.against if claim.aim_against is None else claim.aim_against)
    falling = race.work.falling and claim.against is None
    verdict = _verdict(must, claim.must, falling)
    ours = race.ours(claim.precision, claim.compiled)
    if ours and ours.memory and race.work.memory and ours.memory > race.work.memory:
        verdict = f"**fails**: {ours.memory:.1f} GB of {race.work.memory:g}"
    elif verdict == "holds" and _verdict(aim, claim.aim, falling) == "holds":
        verdict = "holds, and the aim"
    own = must if must is not None else aim
    reached = NONE if own is None else f"{own:.2f} ×" if claim.against is not None else _number(own)
    if claim.aim_against is not None and aim is not None:
        reached += f"; {aim:.2f} ×"
    return reached, _wanted(claim, claim.must, falling), _wanted(claim, claim.aim, falling, True), verdict


def _reached(race: Race, claim: Claim, against: str | None) -> float | None:
    ours = race.ours(claim.precision, claim.compiled)
    if ours is None:
        return None
    if against is None:
        return race.rate(ours.median)
    fastest = race.fastest(claim.precision, against)
    return None if fastest is None else fastest.median / ours.median


def _verdict(reached: float | None, wanted: float | None, falling: bool) -> str:
    if wanted is None or reached is None:
        return "not measured"
    return "holds" if (reached <= wanted if falling else reached >= wanted) else "**fails**"


def _wanted(claim: Claim, value: float | None, falling: bool, aim: bool = False) -> str:
    if value is None:
        return NONE
    if claim.against is None:
        return f"≤ {_number(value)}" if falling else f"≥ {_number(value)}"
    whom = claim.aim_against if aim and claim.aim_against is not None else claim.against
    names = {"": "the fastest", "Hugging": "Hugging Face", "CTranslate2 float": "CTranslate2 float32"}
    return f"≥ {value:g} × {names.get(whom, whom)}"


def everybody(races: Sequence[Race]) -> list[str]:
    """A row an entrant, with the settings that were found best for it; those that could not run say why. Ratios are of
    like precision; int8, which we have not, stands beside our best."""
    head = ["work", "who", "settings", "figure", "unit", "slowest–fastest round", "seqloom ÷ who", "round by round"]
    head += ["parameters", "beside ours", "loss", "memory"]
    rows = [_lane(race, lane) for race in races for lane in race.lanes]
    return table(head, rows, 3)


def _lane(race: Race, lane: Lane) -> list[str]:
    name = [race.work.title, lane.entrant.label]
    if not lane.seconds:
        why = (lane.absent or "did not run").replace("|", "/")
        return [*name, f"absent: {why}", *[""] * 9]
    ours, ratio, pairs = like(race, lane), "", ""
    if ours is not None and lane is not ours:
        each = ratios(ours, lane)
        ratio, pairs = f"{lane.median / ours.median:.2f}", f"{min(each):.2f}–{max(each):.2f}"
    spread = f"{figure(race, max(lane.seconds))}–{figure(race, min(lane.seconds))}"
    beside = _beside(lane.parameters, ours.parameters) if ours else ""
    loss = f"{lane.losses[0]:.2f} → {lane.losses[1]:.2f}" if lane.losses else ""
    memory = f"{lane.memory:.1f} GB" if lane.memory else ""
    figures = [figure(race, lane.median), race.work.unit, spread, ratio, pairs]
    return [*name, said(lane.entrant, lane.settings), *figures, f"{lane.parameters:,}", beside, loss, memory]


def like(race: Race, lane: Lane) -> Lane | None:
    """Ours to set beside a peer: in its precision, or our best where we have not that. Beside our own: full."""
    if lane.entrant.peer == OURS:
        return race.lane(OURS)
    return race.ours(lane.entrant.precision) or race.ours(ANY)


def settings(races: Sequence[Race]) -> list[str]:
    """Every setting that was tried, with its figure; the one that was raced first."""
    rows = []
    for race in races:
        for lane in (lane for lane in race.lanes if lane.trials):
            trials = sorted(lane.trials, key=lambda trial: trial.settings != lane.settings)
            told = [f"{said(lane.entrant, one.settings)}: {_tried(race, one)}" for one in trials]
            rows.append([race.work.title, lane.entrant.label, race.work.unit, "; ".join(told).replace("|", "/")])
    return table(["work", "who", "unit", "tried, the best first"], rows, 4) if rows else ["Nothing was probed."]


def _tried(race: Race, trial: Trial) -> str:
    return f"absent ({trial.absent})" if trial.seconds is None else figure(race, trial.seconds)


def _beside(theirs: int, ours: int) -> str:
    share = theirs / ours - 1
    return f"{share:+.2%}" + (" (not alike)" if abs(share) > ALIKE else "")


def figure(race: Race, seconds: float) -> str:
    return _number(race.rate(seconds))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def curves(races: Sequence[Race], points: int = 8) -> list[str]:
    """The losses of our two precisions beside each other, each the mean of the steps since the line before."""
    lines = []
    for race in (race for race in races if race.curves):
        steps = min(map(len, race.curves.values()))
        ends = sorted({max(1, steps * n // points) for n in range(1, points + 1)})
        rows = []
        for start, end in zip([0, *ends], ends, strict=False):
            means = {name: statistics.fmean(values[start:end]) for name, values in race.curves.items()}
            apart = means.get(f"{OURS} bf16", math.nan) - means.get(OURS, math.nan)
            rows.append([f"{start + 1}–{end}", *(f"{mean:.4f}" for mean in means.values()), f"{apart:+.4f}"])
        head = ["steps", *race.curves, f"{OURS}: bf16 − fp32"]
        lines += [f"### {race.work.title}: mean loss", "", *table(head, rows), ""]
    return lines


def absent(reasons: dict[str, str]) -> list[str]:
    return [f"- {name}: {reason}" for name, reason in reasons.items()] or ["- nobody"]


def _family(race: Race, name: str, precision: str) -> list[Lane]:
    return [lane for lane in race.peers(precision) if lane.entrant.peer == FAMILIES[name]]
