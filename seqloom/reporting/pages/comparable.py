"""Which scores of several runs measure the same thing, so that they can be compared."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from seqloom.language import _
from seqloom.reporting.run_facts import METRICS, Facts, measured, metric
from seqloom.reporting.task_words import wording


class Reason(NamedTuple):
    settings: tuple[str, ...]  # data settings that must be the same in all runs
    text: str  # what is wrong where they differ
    scores: Collection[str]  # that cannot be compared then


LIKELIHOODS = ("accuracy", "perplexity", "loss")
TOKENIZED = (
    Reason(("target_tokens",), "They tokenize targets differently", ("per", *LIKELIHOODS)),
    Reason(("tokens",), "They tokenize texts differently", LIKELIHOODS),
)
# Rare tokens are <unk>, which is easily predicted.
UNKNOWN = Reason(
    ("max_vocab", "min_count"), "Their vocabularies hold different tokens", (*LIKELIHOODS, "bits_per_character")
)
LEARNED = Reason((), "Their tokenizers were learned from different texts", ("per", *LIKELIHOODS))
REASONS = (
    *TOKENIZED,
    UNKNOWN,
    Reason(("mask_rate", "window", "negatives"), "They choose differently which tokens to predict", LIKELIHOODS),
    Reason(("lowercase", "half_width"), "They normalize texts differently before scoring", METRICS),
)


def incomparable(runs: Sequence[Facts]) -> dict[str, list[str]]:
    """Reasons why some scores of these runs cannot be compared, each with the names of those scores.

    Labels and tags are the same whatever the tokenizer; a setting that is not known is no difference.
    """
    if not all(wording(run.config).tokens for run in runs):
        return {}
    scored = measured(runs)
    reasons = [*(reason for reason in REASONS if _differ(runs, reason)), *_learned(runs)]
    found = {reason.text: [name for name in scored if name in reason.scores] for reason in reasons}
    return {text: names for text, names in found.items() if names}


def _differ(runs: Sequence[Facts], reason: Reason) -> bool:
    every = [run.config.get("data") or {} for run in runs]
    return any(len({repr(data[name]) for data in every if name in data}) > 1 for name in reason.settings)


def _learned(runs: Sequence[Facts]) -> list[Reason]:
    """Differences that settings do not show: the same settings learn other vocabularies from other data. With another
    tokenizer the vocabulary differs in any case."""
    if any(_differ(runs, one) for one in TOKENIZED):
        return []
    predicted = "target" if any("target" in run.learned for run in runs) else "source"
    found = [run.learned[predicted] for run in runs if predicted in run.learned]
    if len({one.tokenizer for one in found}) > 1:
        return [LEARNED]
    return [UNKNOWN] if len({one.tokens for one in found}) > 1 else []


def reasons(runs: Sequence[Facts]) -> list[str]:
    """The same in sentences."""
    return [
        _("{reason}: {metrics} cannot be compared.", reason=_(text), metrics=_listed(names))
        for text, names in incomparable(runs).items()
    ]


def _listed(names: Sequence[str]) -> str:
    *first, last = (_(metric(name).title) for name in names)
    return _("{first} and {last}", first=_(", ").join(first), last=last) if first else last


def comparable(runs: Sequence[Facts], name: str) -> bool:
    return not any(name in names for names in incomparable(runs).values())


def ranking_metric(runs: Sequence[Facts]) -> str | None:
    """The score that the runs are ranked by: the one they were selected by, else another that is comparable in all of
    them, if there is one."""
    if comparable(runs, runs[0].headline):
        return runs[0].headline
    wanted = (*(run.headline for run in runs), "exact_match", *measured(runs))
    every = (name for name in wanted if all(run.score(name) is not None for run in runs))
    return next((name for name in every if comparable(runs, name)), None)
