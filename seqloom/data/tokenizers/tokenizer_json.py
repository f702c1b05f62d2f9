"""A codec as a `tokenizer.json`, for the tokenizers library and all that builds on it.

It gives the same ids as our codec, with few exceptions. A text that holds "<pad>", "<bos>" or "<eos>" literally is
text to us and a special token to the library. Letters that only one of the two Unicode versions knows are normalized
by one only; a Σ separated from its word by more than eight marks may be lowercased differently.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from typing import Any

from seqloom.data.tokenizers.base_tokenizer import CleanedTokenizer
from seqloom.data.tokenizers.graphemes import cluster_pattern
from seqloom.data.tokenizers.pretrained import PretrainedTokenizer, prepend_tokens
from seqloom.data.tokenizers.tokenizers import BOS, EOS, FULL_WIDTH, PAD, SPECIALS, UNK, byte_alphabet
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.errors import SeqloomError, known

TEMPLATES = {"source": "{text} {eos}", "target": "{bos} {text} {eos}", "labels": "{text} {eos}"}


def tokenizer_json(codec: Codec, side: str = "source", shift: int = 0) -> dict[str, Any]:
    """The tokenizer: `side` "source" ends a text with <eos>, "target" puts <bos> before it too, "labels" is a target
    without. `shift` is added to every id. An imported tokenizer keeps its own template, ended by our <eos>."""
    from tokenizers import AddedToken, Tokenizer, models, normalizers, processors

    kind = codec.kind.partition(":")[0]
    if kind == "jieba":
        raise SeqloomError(
            "jieba words cannot be written as a tokenizer.json: they are cut by a dictionary of their own"
        )
    if kind in ("terms", "label", "labels") or isinstance(codec.splitter, CleanedTokenizer):
        how = "stop words or repaired letters" if isinstance(codec.splitter, CleanedTokenizer) else kind
        raise SeqloomError(f"{how} cannot be written as a tokenizer.json: the library has no such rule")
    names = special_names(codec)
    if isinstance(codec.splitter, PretrainedTokenizer):
        assert codec.splitter.tokenizer is not None
        return prepend_tokens(codec.splitter.tokenizer, names, shift, (codec.splitter.end, EOS + shift))
    spelt = [_letter(token) for token in codec.tokens] if kind == "bytes" else codec.tokens
    vocabulary = {token: number for number, token in enumerate([*names, *spelt], shift)}
    model: Any = models.WordLevel(vocabulary, unk_token=names[UNK])
    if kind in ("bytes", "bpe"):
        merges = [(left, right) for left, right in codec.to_json().get("merges", [])]
        model = models.BPE(vocab=vocabulary, merges=merges)
    made: Any = Tokenizer(model)
    widths = FULL_WIDTH.items() if codec.half_width else ()
    narrowed = [normalizers.Replace(chr(wide), chr(plain)) for wide, plain in widths]
    made.normalizer = normalizers.Sequence([*narrowed, *_normalizers(codec.fold)])
    made.pre_tokenizer, made.decoder = _pre_tokenizer_and_decoder(kind)
    template = TEMPLATES[known(side, TEMPLATES, "side")].format(text="$A", bos=names[BOS], eos=names[EOS])
    ends = [(names[number], number + shift) for number in (BOS, EOS) if names[number] in template]
    made.post_processor = processors.TemplateProcessing(single=template, special_tokens=ends)
    # <unk> is not special: decoding shows it, as our codec does.
    made.add_special_tokens([AddedToken(names[number], special=True, normalized=False) for number in (PAD, BOS, EOS)])
    return json.loads(made.to_str())


def special_names(codec: Codec) -> list[str]:
    """Names for our four; with more brackets where the text has a token of that name, as some corpora have <unk>."""
    taken, names = set(codec.tokens), []
    for name in SPECIALS:
        while name in taken:
            name = f"<{name}>"
        names.append(name)
    return names


def _pre_tokenizer_and_decoder(kind: str) -> tuple[Any, Any]:
    from tokenizers import Regex, decoders, pre_tokenizers

    if kind == "chars":
        pattern = re.sub(r"\\U([0-9a-f]{8})", lambda found: f"\\x{{{int(found[1], 16):x}}}", cluster_pattern())
        return pre_tokenizers.Split(Regex(pattern), "isolated"), decoders.Fuse()
    if kind == "words":  # no decoder: tokens are joined with one blank
        blanks = "".join(f"\\x{{{code:x}}}" for code in range(sys.maxunicode) if chr(code).isspace())
        return pre_tokenizers.Split(Regex(f"[{blanks}]+"), "removed"), None
    # BPE splits into words first, as in its training; single bytes do not.
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind == "bpe"), decoders.ByteLevel()


def _normalizers(fold: bool | str) -> list[Any]:
    """NFC; with `fold` "lower" as str.lower, else as str.casefold: lower case, and what folding does beyond it (ß to
    ss, Cherokee to capitals)."""
    from tokenizers import Regex, normalizers

    if not fold:
        return [normalizers.NFC()]
    if fold == "lower":
        sigma = normalizers.Replace(Regex(_final_sigma()), "ς")
        return [normalizers.NFC(), sigma, normalizers.Lowercase(), normalizers.NFC()]
    letters = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) != "Cs"]
    beyond = [(letter, letter.casefold()) for letter in letters if letter.casefold() != letter.lower()]
    kept = [letter for letter in letters if letter.casefold() == letter != letter.lower()]
    before = [normalizers.Replace(letter, folded) for letter, folded in beyond if letter not in kept]
    after = [normalizers.Replace(letter.lower(), letter) for letter in kept]
    return [normalizers.NFC(), *before, normalizers.Lowercase(), *after, normalizers.NFC()]


def _final_sigma(marks: int = 8) -> str:
    """The Σ that ends a word (Unicode 3.13, table 3-17): a letter with case stands before it and none behind, marks
    between them not counted; before it at most so many, as what a pattern looks back at has an end. Their Lowercase
    goes letter by letter."""
    mark, letter = r"\p{Case_Ignorable}", r"[\p{Cased}&&[^\p{Case_Ignorable}]]"
    before = "|".join(f"{letter}{mark}{{{count}}}" for count in range(marks + 1))
    return f"(?<={before})Σ(?!{mark}*{letter})"


def _letter(byte: str) -> str:
    """The printable character that stands for a byte."""
    return next(letter for letter, number in byte_alphabet().items() if number == ord(byte))
