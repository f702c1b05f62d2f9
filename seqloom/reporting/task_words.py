"""What reports and cards call a task and its data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Wording(NamedTuple):
    does: str  # "a model that …": a clause
    pipeline: str  # as model hubs name the task
    kind: str  # a tag for model hubs
    unit: str  # what its data is made of
    label: str  # what its loss is divided by
    tokens: bool = False  # whether it predicts tokens, which depend on the settings of the data
    right: str = "predictions that are correct"  # what accuracy counts

    def loss(self, numbers: bool) -> str:
        """The unit of the loss; `numbers`: the targets are numbers, so that it is no log-probability."""
        return f"{'squared error' if numbers else 'nats'} per {self.label}"

    @property
    def labels(self) -> str:
        return f"{self.label}s"


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
        "predicts the label of a text",
        "text-classification",
        "text-classification",
        "texts",
        "text",
        right="texts whose label is correct; where there are several, all of them",
    ),
    "table": Wording(
        "predicts a column of a table from the others",
        "tabular-classification",
        "tabular-classification",
        "rows",
        "row",
        right="rows whose class is correct",
    ),
    "tag": Wording(
        "gives every word of a sentence its tag",
        "token-classification",
        "tagging",
        "sentences",
        "word",
        right="words whose tag is correct",
    ),
    "generate": Wording("continues a prompt", "text-generation", "language-model", "tokens", "token", tokens=True),
    "mask": Wording(
        "fills in masked tokens of a text",
        "fill-mask",
        "masked-language-model",
        "texts",
        "masked token",
        tokens=True,
        right="masked tokens that were predicted correctly",
    ),
    "vectors": Wording(
        "has a vector for every word", "feature-extraction", "word-vectors", "texts", "pair", tokens=True
    ),
}


def wording(config: Mapping[str, Any]) -> Wording:
    """The words of a run's task; those of `translate` for a task that this version does not know."""
    return WORDING.get(str(config.get("task", "translate")), WORDING["translate"])
