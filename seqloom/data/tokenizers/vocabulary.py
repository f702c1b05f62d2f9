"""Text to numbers and back, one object for each side of the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from seqloom.data.tokenizers.base_tokenizer import Cleaned
from seqloom.data.tokenizers.tokenizers import SPECIALS, UNK, Splitter, folding, make, normalize, whole
from seqloom.errors import SeqloomError


class Codec:
    """A way to cut text and a numbered vocabulary. Ids 0 to 3 are `SPECIALS`, then the tokens, most frequent first.

    The specials stand outside the table that text is looked up in: a literal "<eos>" in a user's text is text.
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
        """Learn the vocabulary from `texts`, which are read once and not kept.

        `kind` is chars, words, jieba, bytes or bpe:N; `fold` and `half_width` are those of `normal`. `max_vocab` counts
        the four specials too; `min_count` leaves out what is rarer. What was left out becomes <unk>.
        """
        splitter, fold = make(kind), folding(fold)
        tokens = splitter.learn((normalize(text, fold, half_width) for text in texts), max_vocab, min_count)
        return cls(kind, splitter, tokens, fold, half_width)

    @classmethod
    def of_counts(
        cls,
        kind: str,
        counts: Mapping[str, int],
        *,
        fold: bool | str = False,
        half_width: bool = False,
        max_vocab: int | None = None,
        min_count: int = 1,
    ) -> Codec:
        """As `build`, from how often each token was seen; not for bpe, whose tokens must be trained."""
        splitter, fold = make(kind), folding(fold)
        return cls(kind, splitter, splitter.rank(counts, max_vocab, min_count), fold, half_width)  # pyright: ignore

    def cleaned(self, clean: dict[str, Any] | None) -> Codec:
        """The same vocabulary behind `tokens.Cleaned`, whose keywords are `clean`."""
        splitter = self.splitter if clean is None else Cleaned(self.splitter, **clean, vocabulary=self.tokens)
        return Codec(self.kind, splitter, self.tokens, self.fold, self.half_width)

    @property
    def size(self) -> int:
        """How many ids there are, specials included."""
        return len(SPECIALS) + len(self.tokens)

    def normalize(self, text: str) -> str:
        """The text as this codec gives it back: what predictions are compared with must have been through it too."""
        return whole(text) if self.kind == "tokenizer" else normalize(text, self.fold, self.half_width)

    def encode(self, text: str) -> list[int]:
        """Ids without <bos> and <eos>."""
        number = self._ids.get
        return [number(token, UNK) for token in self.splitter.split(self.normalize(text))]

    def number(self, token: str) -> int:
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
        ways = {"kind": self.kind, "fold": self.fold, "half_width": self.half_width}
        return {**ways, "tokens": self.tokens, **self.splitter.to_json()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Codec:
        try:
            kind, fold, tokens = value["kind"], folding(value["fold"]), value["tokens"]
            if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
                raise TypeError("its tokens must be a list of texts")
            if kind == "tokenizer" and not isinstance(value.get("tokenizer"), dict):
                raise TypeError("it has no tokenizer")
            splitter = make(kind, tokens, value.get("merges"), value.get("tokenizer"), value.get("clean"))
            return cls(kind, splitter, tokens, fold, value.get("half_width", False))  # not in the first files
        except SeqloomError:
            raise
        except Exception as error:  # the library of tokenizers raises nothing more precise
            message = str(error).partition("\n")[0][:200]
            raise SeqloomError(f"the stored vocabulary is damaged: {type(error).__name__}: {message}") from error
