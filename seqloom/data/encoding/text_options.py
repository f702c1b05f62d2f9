"""How text becomes tokens and ids: the settings that the `data` sections of all tasks share.

A dataclass lists the fields of its last base first. So the bases below say in which order the keys of a config.yaml
stand: `class TableOptions(CutTextOptions, TokenOptions, TableColumns)` has columns, tokens, then what bounds the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqloom.data.files.columns import Reading
from seqloom.data.formats.pairs import MAX_LENGTH
from seqloom.data.tokenizers.tokenizers import folding, make
from seqloom.errors import known


@dataclass(frozen=True, kw_only=True)
class TokenOptions(Reading):
    """`tokens`: what texts are cut into: chars, words, terms, jieba, bytes or bpe:N."""

    tokens: str = "words"

    def __post_init__(self) -> None:
        make(self.tokens)
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class TextOptions(Reading):
    """`lowercase`: "lower" (ß stays ß; so is true) or "casefold" (Unicode's case folding: ß becomes ss).
    `half_width`: full-width letters, digits and signs become plain ones. `max_vocab`: ids at most, the four specials
    included. `min_count`: rarer tokens become <unk>. The others are those of `Reading`.
    """

    lowercase: bool | str = False
    half_width: bool = False
    max_vocab: int | None = None
    min_count: int = 1

    def __post_init__(self) -> None:
        folding(self.fold)
        super().__post_init__()

    @property
    def normalization(self) -> dict[str, Any]:
        """The keywords of `normalize`."""
        return {"fold": self.fold, "half_width": self.half_width}

    @property
    def vocabulary(self) -> dict[str, Any]:
        """The keywords of `Codec.build`."""
        return {**self.normalization, "max_vocab": self.max_vocab, "min_count": self.min_count}


@dataclass(frozen=True, kw_only=True)
class CutTextOptions(TextOptions):
    """`max_length`: tokens of a text at most, specials not counted; of longer texts `truncate` says which end is
    dropped: "tail" (the beginning stays) or "head" (the end stays)."""

    max_length: int | None = None
    truncate: str = "tail"

    def __post_init__(self) -> None:
        known(self.truncate, ("head", "tail"), "end to cut")
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class TwoSideOptions(CutTextOptions):
    """Of data with a source and a target, whatever the target is; lengths and vocabularies are bounded a side."""

    def kind(self, side: str) -> str:
        """The tokens of a side, as `tokens.make` takes them."""
        raise NotImplementedError

    def vocabulary_of(self, side: str) -> dict[str, Any]:
        """The keywords of `Codec.build` for a side."""
        return self.vocabulary

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
