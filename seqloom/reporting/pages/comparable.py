"""Which scores of several runs count the same thing, so that they can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from seqloom.reporting.run_facts import METRICS, Facts, metric
from seqloom.reporting.task_words import wording


class Reason(NamedTuple):
    settings: tuple[str, ...]  # of the data, that must be the same in all runs
    told: str  # where they are not
    scores: tuple[str, ...]  # that then count different things


LIKELY = ("accuracy", "perplexity", "loss")
CUTTING = (
    Reason(("target_tokens",), "They cut targets into different tokens", ("per", *LIKELY)),
    Reason(("tokens",), "They cut texts into different tokens", LIKELY),
)
# What is rare is <unk>, which is easily guessed.
UNKNOWN = Reason(("max_vocab", "min_count"), "They leave different tokens unknown", (*LIKELY, "bits_per_character"))
LEARNED = Reason((), "They learned from different texts how to cut tokens", ("per", *LIKELY))
REASONS = (
    *CUTTING,
    UNKNOWN,
    Reason(("masked", "window", "negatives"), "They choose differently what is to be guessed", LIKELY),
    Reason(("fold", "half_width"), "They normalise texts differently before these are compared", tuple(METRICS)),
)


def unlike(runs: Sequence[Facts]) -> dict[str, list[str]]:
    """Why some scores of these runs cannot be compared, and which of those that they have.

    Labels and tags are given with the data, however it is cut; a setting that is not known is no difference.
    """
    if not all(wording(run.config).tokens for run in runs):
        return {}
    scored = [name for name in METRICS if any(run.score(name) is not None for run in runs)]
    reasons = [*(one for one in REASONS if _differ(runs, one)), *_learned(runs)]
    found = {one.told: [name for name in scored if name in one.scores] for one in reasons}
    return {told: names for told, names in found.items() if names}


def _differ(runs: Sequence[Facts], reason: Reason) -> bool:
    every = [run.config.get("data") or {} for run in runs]
    return any(len({repr(data[name]) for data in every if name in data}) > 1 for name in reason.settings)


def _learned(runs: Sequence[Facts]) -> list[Reason]:
    """What settings do not tell: the same ones learn other vocabularies from other data. Where texts are cut by another
    rule, vocabularies are another in any case."""
    if any(_differ(runs, one) for one in CUTTING):
        return []
    guessed = "target" if any("target" in run.learned for run in runs) else "source"
    found = [run.learned[guessed] for run in runs if guessed in run.learned]
    if len({one.cutting for one in found}) > 1:
        return [LEARNED]
    return [UNKNOWN] if len({one.tokens for one in found}) > 1 else []


def why(runs: Sequence[Facts]) -> list[str]:
    """The same in sentences."""
    return [f"{told}: {_listed(names)} cannot be compared." for told, names in unlike(runs).items()]


def _listed(names: Sequence[str]) -> str:
    *first, last = (metric(name).title for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def comparable(runs: Sequence[Facts], name: str) -> bool:
    return not any(name in names for names in unlike(runs).values())


def judged_by(runs: Sequence[Facts]) -> str | None:
    """The score that the runs are compared by: the one they were chosen by, else another that counts the same in all
    of them, if there is one."""
    if comparable(runs, runs[0].headline):
        return runs[0].headline
    wanted = (*(run.headline for run in runs), "exact_match", *METRICS)
    every = (name for name in wanted if all(run.score(name) is not None for run in runs))
    return next((name for name in every if comparable(runs, name)), None)
