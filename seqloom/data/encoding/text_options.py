"""How texts become numbers, whatever the task: the settings that all kinds of source and target share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqloom.data.files.columns import Reading
from seqloom.data.formats.pairs import MAX_LENGTH
from seqloom.data.tokenizers.tokenizers import folding
from seqloom.errors import known


@dataclass(frozen=True, kw_only=True)
class Numbering(Reading):
    """`fold`: lose the difference of upper and lower case: "lower" (ß stays ß) or "casefold" (ß is ss; so is true).
    `half_width`: full-width letters, digits and signs become plain ones. `max_vocab`: ids a side at most, the four
    specials included. `min_count`: rarer tokens become <unk>.
    `max_length`: tokens a side at most, specials not counted; of longer texts `cut` says which end is dropped: "tail"
    (the beginning stays) or "head" (the end stays). The others are those of `Reading`.
    """

    fold: bool | str = False
    half_width: bool = False
    max_vocab: int | None = None
    min_count: int = 1
    max_length: int | None = None
    cut: str = "tail"

    def __post_init__(self) -> None:
        known(self.cut, ("head", "tail"), "end to cut")
        folding(self.fold)
        super().__post_init__()

    def kind(self, side: str) -> str:
        """The tokens of a side, as `tokens.make` takes them."""
        raise NotImplementedError

    @property
    def ways(self) -> dict[str, Any]:
        """As `normal` takes them."""
        return {"fold": self.fold, "half_width": self.half_width}

    def limits(self, side: str) -> dict[str, Any]:
        """As `Codec.build` takes them."""
        return {**self.ways, "max_vocab": self.max_vocab, "min_count": self.min_count}

    def most(self, side: str) -> int | None:
        """Tokens of a text at most."""
        return self.max_length

    def clean(self, side: str) -> dict[str, Any] | None:
        """The keywords of `Cleaned`; None: texts stay as they are."""
        return None

    @property
    def longest(self) -> int | None:
        """Characters a side at most: where nothing is cut, a line of a megabyte would end the training."""
        return MAX_LENGTH if self.max_length is None else None
