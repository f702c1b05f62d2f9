"""What reports and cards call a task and its data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Wording(NamedTuple):
    does: str  # "a model that …"
    pipeline: str  # as model hubs name the task
    kind: str  # a tag for model hubs
    unit: str  # what its data is made of
    label: str  # what its loss is counted by
    tokens: bool = False  # whether it guesses tokens, which are cut as the settings of the data say
    right: str = "answers that are right"  # what accuracy counts

    def loss(self, numbers: bool) -> str:
        """What a loss is in; that of guessed `numbers` is no probability."""
        return f"{'squared error' if numbers else 'nats'} a {self.label}"


WORDING = {
    "translate": Wording(
        "turns a source text into a target text",
        "text2text-generation",
        "sequence-to-sequence",
        "pairs",
        "target token",
        tokens=True,
    ),
    "classify": Wording(
        "guesses the label of a text",
        "text-classification",
        "text-classification",
        "texts",
        "text",
        right="texts whose label is right; where there are several, all of them",
    ),
    "table": Wording(
        "guesses a column of a table from the others",
        "tabular-classification",
        "tabular-classification",
        "rows",
        "row",
        right="rows whose class is right",
    ),
    "tag": Wording(
        "gives every word of a sentence its tag",
        "token-classification",
        "tagging",
        "sentences",
        "word",
        right="words whose tag is right",
    ),
    "generate": Wording("goes on from a prompt", "text-generation", "language-model", "tokens", "token", tokens=True),
    "mask": Wording(
        "fills in hidden tokens of a text",
        "fill-mask",
        "masked-language-model",
        "texts",
        "hidden token",
        tokens=True,
        right="hidden tokens that were guessed",
    ),
    "vectors": Wording(
        "has a vector for every word", "feature-extraction", "word-vectors", "texts", "pair", tokens=True
    ),
}


def wording(config: Mapping[str, Any]) -> Wording:
    """Of a run's task; what is not known yet is called a translation."""
    return WORDING.get(str(config.get("task", "translate")), WORDING["translate"])
