"""Splitters that need no training: what they have in common, and those of labels and of raw text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain, product
from typing import Any, Protocol

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
PAD, BOS, EOS, UNK = range(4)
TERM = re.compile(r"</?\w+ ?/?>|\w+(?:['’-]\w+)*|[^\w\s]")
MENDED = 6  # repeated letters of a word of which each may be one or two
_REPEATED = re.compile(r"([^\W\d_])\1{2,}")


class Splitter(Protocol):
    def learn(self, texts: Iterable[str], max_vocab: int | None, min_count: int) -> list[str]: ...
    def split(self, text: str) -> list[str]: ...
    def join(self, tokens: list[str]) -> str: ...
    def show(self, token: str) -> str: ...
    def to_json(self) -> dict[str, Any]: ...


class VocabularyTokenizer:
    """A splitter that needs no training: its vocabulary is what was seen, the most frequent first."""

    def split(self, text: str) -> list[str]:
        raise NotImplementedError

    def learn(self, texts: Iterable[str], max_vocab: int | None, min_count: int) -> list[str]:
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(self.split(text))
        return self.rank(counts, max_vocab, min_count)

    def rank(self, counts: Mapping[str, int], max_vocab: int | None, min_count: int) -> list[str]:
        """The vocabulary from how often each token was seen."""
        # Ties go by the token itself, so that the order of the lines does not number the vocabulary.
        ranked = sorted((-count, token) for token, count in counts.items() if count >= min_count)
        room = None if max_vocab is None else max_vocab - len(SPECIALS)
        return [token for _, token in ranked[:room]]

    def show(self, token: str) -> str:
        return token

    def to_json(self) -> dict[str, Any]:
        return {}


class Terms(VocabularyTokenizer):
    """Words, and every other sign by itself: for raw text, where a full stop stands close to its word.

    Letters and digits run together, with apostrophes and hyphens within; a tag such as <br /> is one token. A plain
    form of the rules of the Penn Treebank (Marcus et al. 1993); joined with one blank.
    """

    def split(self, text: str) -> list[str]:
        return TERM.findall(text)

    def join(self, tokens: list[str]) -> str:
        return " ".join(tokens)


class Label(VocabularyTokenizer):
    """The whole text is one token: the name of a class (Fisher 1936). Case and width are never lost."""

    def split(self, text: str) -> list[str]:
        return [" ".join(text.split())]

    def join(self, tokens: list[str]) -> str:
        return " ".join(tokens)


class Labels(VocabularyTokenizer):
    """Several labels in one text with a `sign` between, in the order of their text and each once (Tsoumakas & Katakis
    2007). The sign alone is no label at all."""

    def __init__(self, sign: str):
        self.sign = sign

    def split(self, text: str) -> list[str]:
        return sorted({label for part in text.split(self.sign) if (label := " ".join(part.split()))})

    def join(self, tokens: list[str]) -> str:
        return self.sign.join(tokens)


class Cleaned(VocabularyTokenizer):
    """Another splitter, with text mended before it and tokens left out behind it.

    `repair`: three and more of a letter become two, so that "gooood" is "good" (Go et al. 2009, section 2.3); which of
    them are too many is not asked, so "soooo" is "soo", the same in training and prediction. "known", of words alone:
    they become two or one, whichever is the commoner word of the `vocabulary`, the commonest first, so that "baaad" is
    "bad"; two where neither is known. While there is no vocabulary yet, words stay as they are. `stop_words` are left
    out in any case.
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
                tokens if self.ranks is None or not _REPEATED.search(text) else [self.mended(one) for one in tokens]
            )
        else:
            tokens = self.inner.split(_REPEATED.sub(r"\1\1", text) if self.repair else text)
        return [token for token in tokens if token.casefold() not in self.stop_words]

    def mended(self, token: str) -> str:
        """A token without too many of a letter."""
        if self.repair != "known" or not _REPEATED.search(token):
            return token
        first, *rest = _REPEATED.split(token)  # what stands between, and each repeated letter
        letters, ranks = rest[::2], self.ranks or {}
        ways = product(
            *((2 * letter, letter) for letter in letters[:MENDED]), *((2 * one,) for one in letters[MENDED:])
        )
        forms = [first + "".join(chain(*zip(way, rest[1::2], strict=True))) for way in ways]
        return min((form for form in forms if form in ranks), key=ranks.__getitem__, default=forms[0])

    def merged(self, counts: Mapping[str, int]) -> Counter[str]:
        """How often each token comes once all are mended by those that need no mending."""
        plain = [token for token in self.rank(counts, None, 1) if not _REPEATED.search(token)]
        knowing = Cleaned(self.inner, self.stop_words, self.repair, plain)
        found = Counter[str]()
        for token, count in counts.items():
            found[knowing.mended(token)] += count
        return found

    def join(self, tokens: list[str]) -> str:
        return self.inner.join(tokens)

    def to_json(self) -> dict[str, Any]:
        return {"clean": {"stop_words": sorted(self.stop_words), "repair": self.repair}}
