"""The results as Markdown: what was wanted and what was reached, everybody's figures, curves, who was absent."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from racing import Lane, Race, ratios
from wanted import OURS, Claim

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


def glance(races: Sequence[Race], families: Sequence[str] = tuple(FAMILIES)) -> list[str]:
    """A row a claim: our figure, the best of each family of peers (in full precision, where we run that too), the must
    and the aim beside what was reached."""
    there = [name for name in families if any(_family(race, name) for race in races)]
    rows = []
    for race in races:
        best = {name: min(_family(race, name), key=lambda lane: lane.median, default=None) for name in there}
        peers = [figure(race, lane.median) if lane else NONE for lane in best.values()]
        for claim in race.work.claims:
            ours = race.lane(claim.ours)
            mine = figure(race, ours.median) if ours else NONE
            title = race.work.title + claim.ours.removeprefix(OURS).replace(" ", ", ")
            rows.append([title, race.work.unit, mine, *peers, *judged(race, claim)])
    return table(["work", "unit", OURS, *there, "reached", "must", "aim", "verdict"], rows, 2)


def judged(race: Race, claim: Claim) -> tuple[str, str, str, str]:
    """What was reached, the must, the aim, and whether they hold."""
    must = _reached(race, claim, claim.against)
    aim = _reached(race, claim, claim.against if claim.aim_against is None else claim.aim_against)
    falling = race.work.falling and claim.against is None
    verdict = _verdict(must, claim.must, falling)
    ours = race.lane(claim.ours)
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
    ours = race.lane(claim.ours)
    if ours is None:
        return None
    if against is None:
        return race.rate(ours.median)
    fastest = min(race.peers(against), key=lambda lane: lane.median, default=None)
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
    """A row an entrant; those that could not run say why. Ratios are of like precision."""
    head = ["work", "who", "figure", "unit", "slowest–fastest round", "seqloom ÷ who", "round by round"]
    head += ["parameters", "beside ours", "loss", "memory"]
    rows = [_lane(race, lane) for race in races for lane in race.lanes]
    return table(head, rows, 2)


def _lane(race: Race, lane: Lane) -> list[str]:
    name = [race.work.title, lane.entrant.label]
    if not lane.seconds:
        why = (lane.absent or "did not run").replace("|", "/")
        return [*name, f"absent: {why}", *[""] * 8]
    ours, ratio, pairs = like(race, lane), "", ""
    if ours is not None and lane is not ours:
        each = ratios(ours, lane)
        ratio, pairs = f"{lane.median / ours.median:.2f}", f"{min(each):.2f}–{max(each):.2f}"
    spread = f"{figure(race, max(lane.seconds))}–{figure(race, min(lane.seconds))}"
    beside = _beside(lane.parameters, ours.parameters) if ours else ""
    loss = f"{lane.losses[0]:.2f} → {lane.losses[1]:.2f}" if lane.losses else ""
    memory = f"{lane.memory:.1f} GB" if lane.memory else ""
    figures = [figure(race, lane.median), race.work.unit, spread, ratio, pairs]
    return [*name, *figures, f"{lane.parameters:,}", beside, loss, memory]


def like(race: Race, lane: Lane) -> Lane | None:
    """Ours to set beside it: in half precision where a peer runs in that and we in both."""
    half = race.lane(f"{OURS} bf16") if lane.entrant.label.endswith(" bf16") and lane.entrant.peer != OURS else None
    return half or race.lane(OURS)


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


def _family(race: Race, name: str) -> list[Lane]:
    return [lane for lane in race.peers() if lane.entrant.peer == FAMILIES[name]]
