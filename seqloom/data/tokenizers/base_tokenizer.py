"""Tokenizers that need no training: their base, special tokens, and those of labels and raw text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain, product
from typing import Any, Protocol

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
PAD, BOS, EOS, UNK = range(4)
TERM = re.compile(r"</?\w+ ?/?>|\w+(?:['’-]\w+)*|[^\w\s]")
MAX_REPAIRS = 6  # runs of repeated letters in a word, each of which may become one letter or two
_REPEATED = re.compile(r"([^\W\d_])\1{2,}")


class Splitter(Protocol):
    def learn(self, texts: Iterable[str], max_vocab: int | None, min_count: int) -> list[str]: ...
    def split(self, text: str) -> list[str]: ...
    def join(self, tokens: list[str]) -> str: ...
    def show(self, token: str) -> str: ...
    def to_json(self) -> dict[str, Any]: ...


class VocabularyTokenizer:
    """A tokenizer without training: its vocabulary is the tokens of the texts, most frequent first."""

    def split(self, text: str) -> list[str]:
        raise NotImplementedError

    def learn(self, texts: Iterable[str], max_vocab: int | None, min_count: int) -> list[str]:
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(self.split(text))
        return self.rank(counts, max_vocab, min_count)

    def rank(self, counts: Mapping[str, int], max_vocab: int | None, min_count: int) -> list[str]:
        """The vocabulary from token counts."""
        # Ties are broken by the token itself: ids do not depend on the order of the lines.
        ranked = sorted((-count, token) for token, count in counts.items() if count >= min_count)
        room = None if max_vocab is None else max_vocab - len(SPECIALS)
        return [token for _, token in ranked[:room]]

    def show(self, token: str) -> str:
        return token

    def to_json(self) -> dict[str, Any]:
        return {}


class Terms(VocabularyTokenizer):
    """Words and single punctuation marks, for raw text.

    A word is letters and digits, with apostrophes and hyphens inside; a tag such as <br /> is one token. A simple
    form of the Penn Treebank rules (Marcus et al. 1993); joined with one blank.
    """

    def split(self, text: str) -> list[str]:
        return TERM.findall(text)

    def join(self, tokens: list[str]) -> str:
        return " ".join(tokens)


class Label(VocabularyTokenizer):
    """The whole text is one token: a class name (Fisher 1936). Neither lowercased nor normalized in width."""

    def split(self, text: str) -> list[str]:
        return [" ".join(text.split())]

    def join(self, tokens: list[str]) -> str:
        return " ".join(tokens)


class Labels(VocabularyTokenizer):
    """Several labels in one text, separated by `sign`, sorted and without duplicates (Tsoumakas & Katakis 2007).
    Empty labels are ignored."""

    def __init__(self, sign: str):
        self.sign = sign

    def split(self, text: str) -> list[str]:
        return sorted({label for part in text.split(self.sign) if (label := " ".join(part.split()))})

    def join(self, tokens: list[str]) -> str:
        return self.sign.join(tokens)


class CleanedTokenizer(VocabularyTokenizer):
    """Wraps a tokenizer: repairs repeated letters, removes stop words.

    `repair` true: three or more of a letter become two: "gooood" is "good", "soooo" is "soo" (Go et al. 2009, section
    2.3). "known", for words only: they become two or one, whichever gives the more frequent word of `vocabulary`, so
    that "baaad" is "bad"; two where neither is known. Without a vocabulary words are not repaired. `stop_words` match
    in any case.
    """

    def __init__(
        self,
        inner: Splitter,
        stop_words: Iterable[str] = (),
        repair: bool | str = False,
        vocabulary: Iterable[str] | None = None,
    ):
        self.inner, self.repair = inner, repair
        self.stop_words = frozenset(word.casefold() for word in stop_words)
        self.ranks = None if vocabulary is None else {token: rank for rank, token in enumerate(vocabulary)}

    def split(self, text: str) -> list[str]:
        if self.repair == "known":
            tokens = self.inner.split(text)
            tokens = (
                tokens
                if self.ranks is None or not _REPEATED.search(text)
                else [self.repair_token(one) for one in tokens]
            )
        else:
            tokens = self.inner.split(_REPEATED.sub(r"\1\1", text) if self.repair else text)
        return [token for token in tokens if token.casefold() not in self.stop_words]

    def repair_token(self, token: str) -> str:
        """A token with its repeated letters reduced."""
        if self.repair != "known" or not _REPEATED.search(token):
            return token
        first, *rest = _REPEATED.split(token)  # alternating: text between, repeated letter
        letters, ranks = rest[::2], self.ranks or {}
        choices = [(2 * letter, letter) for letter in letters[:MAX_REPAIRS]]
        choices += [(2 * letter,) for letter in letters[MAX_REPAIRS:]]
        forms = [first + "".join(chain(*zip(choice, rest[1::2], strict=True))) for choice in product(*choices)]
        return min((form for form in forms if form in ranks), key=ranks.__getitem__, default=forms[0])

    def repair_counts(self, counts: Mapping[str, int]) -> Counter[str]:
        """Token counts after repair with the tokens that need no repair as vocabulary."""
        plain = [token for token in self.rank(counts, None, 1) if not _REPEATED.search(token)]
        repairer = CleanedTokenizer(self.inner, self.stop_words, self.repair, plain)
        repaired = Counter[str]()
        for token, count in counts.items():
            repaired[repairer.repair_token(token)] += count
        return repaired

    def join(self, tokens: list[str]) -> str:
        return self.inner.join(tokens)

    def to_json(self) -> dict[str, Any]:
        return {"clean": {"stop_words": sorted(self.stop_words), "repair": self.repair}}
