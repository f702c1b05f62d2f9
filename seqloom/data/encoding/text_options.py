"""Settings for tokens and ids, shared by the `data` sections of all tasks.

A dataclass lists the fields of its last base first, so the order of bases is the order of keys in config.yaml:
`class TableOptions(CutTextOptions, TokenOptions, TableColumns)` has columns, tokens, then the limits of texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqloom.data.files.columns import ReadOptions
from seqloom.data.formats.pairs import MAX_LENGTH
from seqloom.data.tokenizers.tokenizers import check_folding, make_tokenizer
from seqloom.errors import known


@dataclass(frozen=True, kw_only=True)
class TokenOptions(ReadOptions):
    """`tokens`: what texts are split into: chars, words, terms, jieba, bytes or bpe:N."""

    tokens: str = "words"

    def __post_init__(self) -> None:
        make_tokenizer(self.tokens)
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class TextOptions(ReadOptions):
    """`lowercase`: "lower" (ß stays ß; so is true) or "casefold" (Unicode's case folding: ß becomes ss).
    `half_width`: full-width letters, digits and signs become plain ones. `max_vocab`: most ids, the four specials
    included. `min_count`: rarer tokens become <unk>. For the others see `ReadOptions`.
    """

    lowercase: bool | str = False
    half_width: bool = False
    max_vocab: int | None = None
    min_count: int = 1

    def __post_init__(self) -> None:
        check_folding(self.fold)
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
    """`max_length`: most tokens of a text, without specials; `truncate`: which end of longer texts is dropped, "tail"
    (the beginning stays) or "head" (the end stays)."""

    max_length: int | None = None
    truncate: str = "tail"

    def __post_init__(self) -> None:
        known(self.truncate, ("head", "tail"), "value of truncate")
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class TwoSideOptions(CutTextOptions):
    """For data with a source and a target; each side has its own tokens, limits and vocabulary."""

    def tokens_of(self, side: str) -> str:
        """The tokens of a side, as `make_tokenizer` takes them."""
        raise NotImplementedError

    def vocabulary_of(self, side: str) -> dict[str, Any]:
        """The keywords of `Codec.build` for a side."""
        return self.vocabulary

    def max_length_of(self, side: str) -> int | None:
        """Most tokens of a text of a side."""
        return self.max_length

    def cleaning_of(self, side: str) -> dict[str, Any] | None:
        """The keywords of `CleanedTokenizer`; None: texts stay as they are."""
        return None

    @property
    def max_characters(self) -> int | None:
        """Most characters of a side. Limited where nothing is truncated: a huge line would exhaust the memory."""
        return MAX_LENGTH if self.max_length is None else None
