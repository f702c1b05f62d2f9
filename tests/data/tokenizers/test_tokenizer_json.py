"""A codec's tokenizer.json gives the codec's ids and texts, whatever the text."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from seqloom.data.tokenizers.pretrained import prepend_tokens
from seqloom.data.tokenizers.tokenizer_json import special_names, tokenizer_json
from seqloom.data.tokenizers.tokenizers import BOS, EOS, SPECIALS, make_tokenizer
from seqloom.data.tokenizers.vocabulary import Codec

CORPUS = [
    "hello world, this is a test; the the the hello hello world",
    "e\u0301tude ça va 각각 👨‍👩‍👧 🇩🇪🇫🇷 नमस्ते क्षि 中文 日本語 กำ",
    "tabs\tand\nlines\r\nand\u2028more\x1cof\x85it\xa0here\u3000there",
    "ΑΣΣ ας ß ﬁ İ ı ǅ Ꭰꭰ ſ ͅ ŉ և",
] * 3
KINDS = ["chars", "words", "bytes", "bpe:300"]
texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40)
nasty = st.text(
    alphabet=st.sampled_from(
        [
            *"aé1각\r\n \t<>ßſςΣİıǅﬁᏸꭰᎠ",
            *"e\u0301👨\u200d👩🏽🇩🇪\ufe0f\u20e3न\u094d\u0600\u1100\u1161\u11a8\u0e33\u102b\u00a9",
            *"\u3030\u00ad\u200b\u2028\x1c\x85\xa0\u3000\u0300\u0315\u0345\u0dcf\u1b35",
        ]
    ),
    max_size=30,
)


@pytest.fixture(scope="module", params=[(kind, fold) for kind in KINDS for fold in (False, True, "lower")], ids=str)
def pair(request):
    kind, fold = request.param
    codec = Codec.build(kind, CORPUS, fold=fold)
    return codec, Tokenizer.from_str(json.dumps(tokenizer_json(codec, "target")))


@settings(max_examples=150, deadline=None)
@given(text=st.one_of(texts, nasty, st.sampled_from(CORPUS)))
def test_the_same_ids_and_the_same_text(pair, text):
    assume(not any(name in text for name in SPECIALS))  # theirs reads a special token there
    codec, tokenizer = pair
    ids = [BOS, *codec.encode(text), EOS]
    assert tokenizer.encode(text).ids == ids
    assert tokenizer.decode(ids) == codec.decode(ids)


@settings(max_examples=400, deadline=None)
@given(text=st.one_of(texts, nasty))
def test_the_same_cuts(text):
    """Also between characters that are in no vocabulary, of which all have one id."""
    for kind in ("chars", "words"):
        codec, tokenizer = CUT[kind]
        normal = tokenizer.normalizer.normalize_str(text)
        assert [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal)] == codec.display_tokens(text)


CUT = {
    kind: (codec, Tokenizer.from_str(json.dumps(tokenizer_json(codec))))
    for kind in ("chars", "words")
    for codec in [Codec.build(kind, CORPUS)]
}


@pytest.mark.parametrize("fold", [True, "lower"])
def test_every_character_is_folded_alike(fold):
    codec = Codec.build("chars", ["a"], fold=fold)
    normalizer = Tokenizer.from_str(json.dumps(tokenizer_json(codec))).normalizer
    known = [chr(c) for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)) not in ("Cs", "Cn")]
    some = [letter for letter in known if letter.lower() != letter or letter.casefold() != letter]
    assert len(some) > 1400
    assert [normalizer.normalize_str(letter) for letter in some] == [codec.normalize(letter) for letter in some]


def test_templates():
    codec = Codec.build("words", ["a b"])
    read = {
        side: Tokenizer.from_str(json.dumps(tokenizer_json(codec, side))) for side in ("source", "target", "labels")
    }
    a, b = codec.encode("a b")
    assert read["source"].encode("a b").ids == read["labels"].encode("a b").ids == [a, b, EOS]
    assert read["target"].encode("a b").ids == [BOS, a, b, EOS]
    shifted = Tokenizer.from_str(json.dumps(tokenizer_json(codec, "target", shift=100)))
    assert shifted.encode("a x").ids == [101, 100 + a, 103, 102]


def test_a_corpus_with_tokens_that_look_special():
    codec = Codec.build("words", ["the <unk> of <pad>"])
    assert special_names(codec) == ["<<pad>>", "<bos>", "<eos>", "<<unk>>"]
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_json(codec)))
    for text in ("the <unk> of <pad>", "nobody <unk>"):
        assert tokenizer.encode(text).ids == [*codec.encode(text), EOS]


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrapped_tokenizer_is_the_codec_again(kind):
    """As an imported model has it, and renumbered as an exported one has it."""
    codec = Codec.build(kind, CORPUS)
    stored = tokenizer_json(codec)
    names = {number: token for token, number in Tokenizer.from_str(json.dumps(stored)).get_vocab().items()}
    wrapped = Codec("tokenizer", make_tokenizer("tokenizer", tokenizer=stored), [names[n] for n in range(codec.size)])
    wrapped = Codec.from_json(json.loads(json.dumps(wrapped.to_json())))
    again = Tokenizer.from_str(json.dumps(tokenizer_json(wrapped, shift=1000)))
    for text in CORPUS:
        ids = codec.encode(text)
        assert wrapped.encode(text) == [number + 4 for number in ids]
        assert wrapped.decode(wrapped.encode(text)) == codec.decode(ids)
        assert again.encode(text).ids == [*(number + 1004 for number in ids), 1000 + EOS]
        assert again.decode([*(number + 1004 for number in ids), 1000 + EOS]) == codec.decode(ids)


def test_a_unigram_tokenizer_is_renumbered():
    from tokenizers import models, pre_tokenizers, processors

    pieces = [("<unk>", 0.0), ("▁a", -1.0), ("b", -2.0), ("▁", -3.0), ("</s>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["</s>", "<extra>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 4)])
    stored = json.loads(tokenizer.to_str())
    moved = Tokenizer.from_str(json.dumps(prepend_tokens(stored, list("ABCD"), 3, (4, 5))))
    for text in ("ab b a", "a z b", "<extra> ab"):
        ids = tokenizer.encode(text).ids
        assert moved.encode(text).ids == [*(number + 7 for number in ids[:-1]), 5]
