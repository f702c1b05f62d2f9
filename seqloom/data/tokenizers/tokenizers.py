"""Ways to cut text into tokens, and to put it together again.

Each class has `learn` (the vocabulary from texts), `split`, `join` (its inverse) and `show` (a token for display).
They all receive text that went through `normalize`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from seqloom.data.tokenizers.base_tokenizer import (
    BOS,
    EOS,
    PAD,
    SPECIALS,
    UNK,
    CleanedTokenizer,
    Label,
    Labels,
    Splitter,
    Terms,
    VocabularyTokenizer,
)
from seqloom.data.tokenizers.graphemes import graphemes
from seqloom.data.tokenizers.pretrained import PretrainedTokenizer
from seqloom.errors import SeqloomError, known, shown

__all__ = ["BOS", "EOS", "FOLDS", "PAD", "SPECIALS", "TOKENS", "UNK", "Splitter"]
__all__ += ["check_folding", "fold_case", "make_tokenizer", "normalization_suffix", "normalize", "replace_surrogates"]

# Full-width forms, as Unicode marks them <wide>: those of ASCII, U+FF01 to U+FF5E, a few signs, and the blank U+3000.
FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {
    code: int(unicodedata.decomposition(chr(code)).removeprefix("<wide> "), 16)
    for code in (0x3000, 0xFF5F, 0xFF60, *range(0xFFE0, 0xFFE7))
}


FOLDS = ("lower", "casefold")


def check_folding(fold: bool | str) -> bool | str:
    """`fold` after a check. Runs and recipes of earlier versions have True, which means "casefold"."""
    if isinstance(fold, str):
        known(fold, FOLDS, "value of lowercase")
    return fold


def fold_case(text: str, fold: bool | str) -> str:
    """`fold` "lower": lower case, as papers score (ß stays); "casefold" or True: Unicode case folding (Unicode 3.13,
    "Default Caseless Matching"), where ß becomes ss; False: unchanged."""
    return text.lower() if fold == "lower" else text.casefold() if fold else text


def normalization_suffix(fold: bool | str, half_width: bool = False) -> str:
    """The end of a score's signature: how predictions and references were normalized before scoring."""
    case = "" if not fold else "|lowercase" if fold == "lower" else "|folded"
    return f"{case}{'|half-width' if half_width else ''}"


def normalize(text: str, fold: bool | str = False, half_width: bool = False) -> str:
    """NFC, so that é has one form however it was typed; `fold`: see `fold_case`.

    With `half_width` full-width forms become plain: Ａ１，￥ → A1,¥ and U+3000 a blank. Of NFKC nothing else:
    half-width katakana, ligatures, circled numbers, traditional and simplified characters stay as they are.
    """
    if text.isascii():
        return fold_case(text, fold)
    if half_width:
        text = text.translate(FULL_WIDTH)
    text = unicodedata.normalize("NFC", replace_surrogates(text))
    return unicodedata.normalize("NFC", fold_case(text, fold)) if fold else text


def replace_surrogates(text: str) -> str:
    """Lone surrogates, which JSON may contain and UTF-8 cannot encode, become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = re.sub("[\ud800-\udfff]", "\ufffd", text)
    return text


class Chars(VocabularyTokenizer):
    """User-perceived characters: extended grapheme clusters.

    Unicode Standard Annex #29, "Unicode Text Segmentation", rules GB3 to GB13. Left out: GB9c (Unicode 15.1), which
    would keep whole Indic conjuncts together and give those scripts a long tail of rare tokens.
    """

    def split(self, text: str) -> list[str]:
        return graphemes(text)

    def join(self, tokens: list[str]) -> str:
        return "".join(tokens)


class Words(VocabularyTokenizer):
    """Split at white space; joined with one blank. For text that is tokenized already, or phonemes.

    One vector a word, as in Bengio et al. 2003, "A Neural Probabilistic Language Model".
    """

    def split(self, text: str) -> list[str]:
        return text.split()

    def join(self, tokens: list[str]) -> str:
        return " ".join(tokens)


class Jieba(VocabularyTokenizer):
    """Chinese words, by the likeliest path through a dictionary; unseen ones by a hidden Markov model over characters.

    The algorithm of jieba (Sun 2012) as rjieba runs it. Runs of other letters or digits stay whole;
    every blank and punctuation mark is a token, so that tokens are joined without anything between.
    """

    def split(self, text: str) -> list[str]:
        return _jieba_cut()(text)

    def join(self, tokens: list[str]) -> str:
        return "".join(tokens)


class Bytes:
    """The 256 bytes of UTF-8: nothing is ever unknown, at the price of longer sequences.

    Xue et al. 2022, "ByT5: Towards a Token-Free Future with Pre-trained Byte-to-Byte Models". `max_vocab` and
    `min_count` do not apply. A token is the character whose code point is the byte.
    """

    def learn(self, texts: Iterable[str], max_vocab: int | None, min_count: int) -> list[str]:
        return [chr(byte) for byte in range(256)]

    def rank(self, counts: Mapping[str, int], max_vocab: int | None, min_count: int) -> list[str]:
        return self.learn((), max_vocab, min_count)

    def split(self, text: str) -> list[str]:
        return list(text.encode().decode("latin-1"))

    def join(self, tokens: list[str]) -> str:
        return b"".join(_raw(token, ord) for token in tokens).decode("utf-8", "replace")

    def show(self, token: str) -> str:
        return _readable(_raw(token, ord))

    def to_json(self) -> dict[str, Any]:
        return {}


class Bpe:
    """Byte pair encoding over the bytes of UTF-8: the most frequent pair becomes a token, again and again.

    Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units"; over bytes as in Radford et
    al. 2019. `size` is the whole vocabulary, specials included; a small text may fill less. Pairs seen fewer than
    max(2, `min_count`) times are not merged; `max_vocab` does not apply. Ids follow the order of the merges.
    """

    min_size = len(SPECIALS) + 256

    def __init__(self, size: int, tokens: list[str] | None = None, merges: list[Any] | None = None):
        from tokenizers import Tokenizer, models, pre_tokenizers

        self.size = size
        vocabulary = None if tokens is None else {token: number for number, token in enumerate(tokens)}
        pairs = None if merges is None else [(left, right) for left, right in merges]
        self.model = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
        # No special token is ever registered, so a literal "<eos>" in the text stays text.
        self.model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore

    def learn(self, texts: Iterable[str], max_vocab: int | None, min_count: int) -> list[str]:
        from tokenizers import trainers

        trainer = trainers.BpeTrainer(
            vocab_size=self.size - len(SPECIALS),
            min_frequency=max(2, min_count),
            initial_alphabet=sorted(byte_alphabet()),
            show_progress=False,
        )
        self.model.train_from_iterator(texts, trainer)
        vocabulary = self.model.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)

    def split(self, text: str) -> list[str]:
        return self.model.encode(text, add_special_tokens=False).tokens

    def join(self, tokens: list[str]) -> str:
        return b"".join(_raw(token, byte_alphabet().__getitem__) for token in tokens).decode("utf-8", "replace")

    def show(self, token: str) -> str:
        return _readable(_raw(token, byte_alphabet().__getitem__))

    def to_json(self) -> dict[str, Any]:
        import json

        return {"merges": json.loads(self.model.to_str())["model"]["merges"]}


TOKENS: dict[str, type] = {
    "chars": Chars,
    "words": Words,
    "terms": Terms,
    "jieba": Jieba,
    "bytes": Bytes,
    "bpe": Bpe,
    "tokenizer": PretrainedTokenizer,
    "label": Label,
    "labels": Labels,
}
NOT_SELECTABLE = ("tokenizer", "label", "labels")  # of imported models, or of targets


def make_tokenizer(
    kind: str,
    tokens: list[str] | None = None,
    merges: list[Any] | None = None,
    tokenizer: dict[str, Any] | None = None,
    clean: dict[str, Any] | None = None,
) -> Splitter:
    """The splitter called `kind`, as `bytes` or `bpe:4000`. A trained one is given its `tokens` and `merges`, an
    imported one its `tokenizer`; `clean`: the keywords of Cleaned."""
    if clean:
        return CleanedTokenizer(make_tokenizer(kind, tokens, merges, tokenizer), **clean, vocabulary=tokens)
    name, colon, size = str(kind).partition(":")
    known(
        name,
        TOKENS if name in NOT_SELECTABLE else [one for one in TOKENS if one not in NOT_SELECTABLE],
        "kind of tokens",
    )
    if name == "labels":
        if not size:
            raise SeqloomError(f"tokens {shown(kind)}: name the sign between several labels, as in labels:|")
        return Labels(size)
    if name != "bpe":
        if colon:
            raise SeqloomError(f"tokens {shown(kind)}: {name} takes no size; only bpe does, as in bpe:4000")
        return PretrainedTokenizer(tokenizer) if name == "tokenizer" else TOKENS[name]()
    if not (size.isascii() and size.isdigit()):
        raise SeqloomError(f"tokens {shown(kind)}: bpe needs the size of its vocabulary, as in bpe:4000")
    if not Bpe.min_size <= int(size[:10]) <= 1_000_000:
        limits = f"from {Bpe.min_size} (256 bytes and {len(SPECIALS)} special tokens) to 1,000,000"
        raise SeqloomError(f"tokens {shown(kind)}: the size of the vocabulary goes {limits}, as in bpe:4000")
    return Bpe(int(size), tokens, merges)


@cache
def _jieba_cut() -> Callable[[str], list[str]]:
    """Imported when text is split: joining needs no package."""
    try:
        from rjieba import cut
    except ImportError as error:
        raise SeqloomError("jieba tokens need rjieba: pip install 'seqloom[zh]'") from error
    return cut


def _raw(token: str, byte: Callable[[str], int]) -> bytes:
    """The bytes of a token; "<unk>" in a prediction stands for itself."""
    return token.encode() if token == SPECIALS[UNK] else bytes(map(byte, token))


def _readable(raw: bytes) -> str:
    """As text where it decodes; else, as for part of a character, byte by byte."""
    text = raw.decode("utf-8", "replace")
    if text.isprintable() and "\ufffd" not in text:
        return text
    return "".join(f"<0x{byte:02X}>" for byte in raw)


@cache
def byte_alphabet() -> dict[str, int]:
    """The printable character by which byte-level BPE writes each byte (Radford et al. 2019, encoder.py)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + place): byte for place, byte in enumerate(others)}
