"""Text to numbers and back, one object for each side of the data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from seqloom.data.tokenizers.base_tokenizer import CleanedTokenizer
from seqloom.data.tokenizers.tokenizers import (
    SPECIALS,
    UNK,
    Splitter,
    check_folding,
    make_tokenizer,
    normalize,
    replace_surrogates,
)
from seqloom.errors import SeqloomError


class Codec:
    """A tokenizer and its vocabulary: text to ids and back. Ids 0 to 3 are `SPECIALS`, then tokens by frequency.

    Specials are not in the lookup table: a literal "<eos>" in a text is text.
    """

    def __init__(
        self, kind: str, splitter: Splitter, tokens: list[str], fold: bool | str = False, half_width: bool = False
    ):
        self.kind, self.tokens, self.fold, self.half_width = kind, tokens, fold, half_width
        self.splitter = splitter
        self._ids = {token: number for number, token in enumerate(tokens, len(SPECIALS))}

    @classmethod
    def build(
        cls,
        kind: str,
        texts: Iterable[str],
        *,
        fold: bool | str = False,
        half_width: bool = False,
        max_vocab: int | None = None,
        min_count: int = 1,
    ) -> Codec:
        """Learn the vocabulary from `texts`, read once as a stream.

        `kind` is chars, words, jieba, bytes or bpe:N; `fold` and `half_width`: see `normalize`. `max_vocab` includes
        the four specials; tokens rarer than `min_count` are left out. Others become <unk>.
        """
        splitter, fold = make_tokenizer(kind), check_folding(fold)
        tokens = splitter.learn((normalize(text, fold, half_width) for text in texts), max_vocab, min_count)
        return cls(kind, splitter, tokens, fold, half_width)

    @classmethod
    def from_counts(
        cls,
        kind: str,
        counts: Mapping[str, int],
        *,
        fold: bool | str = False,
        half_width: bool = False,
        max_vocab: int | None = None,
        min_count: int = 1,
    ) -> Codec:
        """As `build`, from token counts; not for bpe, which must be trained."""
        splitter, fold = make_tokenizer(kind), check_folding(fold)
        return cls(kind, splitter, splitter.rank(counts, max_vocab, min_count), fold, half_width)  # pyright: ignore

    def with_cleaning(self, clean: dict[str, Any] | None) -> Codec:
        """The same vocabulary with a `CleanedTokenizer`, whose keywords are `clean`."""
        splitter = self.splitter if clean is None else CleanedTokenizer(self.splitter, **clean, vocabulary=self.tokens)
        return Codec(self.kind, splitter, self.tokens, self.fold, self.half_width)

    @property
    def size(self) -> int:
        """The number of ids, specials included."""
        return len(SPECIALS) + len(self.tokens)

    def normalize(self, text: str) -> str:
        """The text in the normal form of this vocabulary; references are normalized so before scoring."""
        return replace_surrogates(text) if self.kind == "tokenizer" else normalize(text, self.fold, self.half_width)

    def encode(self, text: str) -> list[int]:
        """Ids without <bos> and <eos>."""
        number = self._ids.get
        return [number(token, UNK) for token in self.splitter.split(self.normalize(text))]

    def token_id(self, token: str) -> int:
        """The id of one token."""
        return self._ids.get(token, UNK)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`. Specials are left out, except that an unknown token shows as "<unk>"."""
        shift = len(SPECIALS)
        tokens = [SPECIALS[UNK] if i == UNK else self.tokens[i - shift] for i in ids if i >= UNK]
        return self.splitter.join(tokens)

    def display_tokens(self, text: str) -> list[str]:
        """The tokens of `text` for display, one for each id of `encode`."""
        return [self.splitter.show(token) for token in self.splitter.split(self.normalize(text))]

    def token(self, id: int) -> str:
        """One id for display."""
        return SPECIALS[id] if 0 <= id < len(SPECIALS) else self.splitter.show(self.tokens[id - len(SPECIALS)])

    def to_json(self) -> dict[str, Any]:
        """Everything `from_json` needs, as JSON can hold it."""
        settings = {"kind": self.kind, "fold": self.fold, "half_width": self.half_width}
        return {**settings, "tokens": self.tokens, **self.splitter.to_json()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Codec:
        try:
            kind, fold, tokens = value["kind"], check_folding(value["fold"]), value["tokens"]
            if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
                raise TypeError("its tokens must be a list of texts")
            if kind == "tokenizer" and not isinstance(value.get("tokenizer"), dict):
                raise TypeError("it has no tokenizer")
            splitter = make_tokenizer(kind, tokens, value.get("merges"), value.get("tokenizer"), value.get("clean"))
            return cls(kind, splitter, tokens, fold, value.get("half_width", False))  # not in the first files
        except SeqloomError:
            raise
        except Exception as error:  # the library of tokenizers raises nothing more precise
            message = str(error).partition("\n")[0][:200]
            raise SeqloomError(f"the stored vocabulary is damaged: {type(error).__name__}: {message}") from error


class Vocabularies(Mapping[str, Any]):
    """The vocabularies of prepared data by name: `[name]` gives JSON, as a run keeps it, `opened` the object itself."""

    def __init__(self, **objects: Any) -> None:
        self.objects = objects

    def __getitem__(self, name: str) -> Any:
        value = self.objects[name]
        return value.to_json() if hasattr(value, "to_json") else value

    def __iter__(self) -> Iterator[str]:
        return iter(self.objects)

    def __len__(self) -> int:
        return len(self.objects)


Kind = TypeVar("Kind")


def opened(vocabularies: Mapping[str, Any], name: str, kind: type[Kind]) -> Kind:
    """One of the vocabularies of a run as an object: made from JSON only where they were read from its folder."""
    value = vocabularies.objects[name] if isinstance(vocabularies, Vocabularies) else None
    return value if isinstance(value, kind) else kind.from_json(vocabularies[name])  # pyright: ignore[reportAttributeAccessIssue]
