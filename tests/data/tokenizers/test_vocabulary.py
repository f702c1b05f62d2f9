"""Text → numbers → the same text."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from unicodedata import normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.data.tokenizers.graphemes import _clusters, graphemes
from seqloom.data.tokenizers.tokenizers import BOS, EOS, PAD, SPECIALS, TOKENS, UNK
from seqloom.data.tokenizers.vocabulary import Codec, Vocabularies, opened
from seqloom.errors import SeqloomError

KINDS = ("chars", "words", "bytes", "bpe:300")

CLUSTERS = [
    ["e\u0301", "a"],  # a combining acute
    ["👨‍👩‍👧", "👨‍👩‍👧"],
    ["🇩🇪", "🇫🇷", "🇮"],
    ["👍🏽", "👍", "🏴\U000e0067\U000e0062\U000e007f"],
    ["1\ufe0f\u20e3", "2"],
    ["❤\ufe0f\u200d🔥", "☺\ufe0f"],
    ["न", "म", "स्", "ते"],
    ["你", "好", "。"],
    ["각", "가", "ᄀ나", "ᄀ"],
    ["\u1100\u1161\u11a8", "\u1100\u1161"],  # Hangul not yet composed
    ["가\u11a8", "각\u11a8", "ᅡᆨ"],
    ["\r\n", "\n", "\r", "a"],
    ["a\u200d", "b"],  # a joiner joins pictures only
    ["\u0600١", "ก\u0e33"],  # a sign before its base, a spacing mark after
    ["\u0301", "\u200b", "\u0301"],  # a mark without a base; nothing attaches to a control
    ["葛\U000e0100", "x"],
    ["ש\u05b8\u05c1", "ל"],
    ["\u1000", "\u102b"],  # a Myanmar mark that stands alone
]


@pytest.mark.parametrize("clusters", CLUSTERS, ids=ascii)
def test_graphemes(clusters):
    assert graphemes("".join(clusters)) == clusters


texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40)
tricky = st.text(
    alphabet=st.sampled_from([*"aé1각\r\n", *"e\u0301👨\u200d👩🏽🇩🇪\ufe0f\u20e3न\u094d\u0600\u1100\u1161\u11a8"])
)


@given(texts | tricky)
def test_graphemes_lose_nothing(text):
    clusters = graphemes(text)
    assert "".join(clusters) == text
    assert all(clusters)
    assert clusters == _clusters().findall(text), "the quick way and the full way must agree"


def test_graphemes_agree_with_the_regex_module():
    regex = pytest.importorskip("regex")
    for clusters in CLUSTERS:
        if "स्" not in clusters:  # GB9c is left out on purpose
            assert regex.findall(r"\X", "".join(clusters)) == clusters


@given(st.lists(texts | tricky, min_size=1, max_size=5))
@settings(max_examples=60)
def test_round_trip(many):
    for kind in ("chars", "bytes", "bpe:280"):
        codec = Codec.build(kind, many)
        for text in many:
            ids = codec.encode(text)
            assert UNK not in ids
            assert codec.decode(ids) == normalize("NFC", text)
            assert len(codec.display_tokens(text)) == len(ids)


@given(texts)
@settings(max_examples=60)
def test_bytes_and_bpe_know_every_text(text):
    for codec in (Codec.build("bytes", []), Codec.build("bpe:300", ["hello hello über über 中文 中文"])):
        assert codec.decode(codec.encode(text)) == normalize("NFC", text)


@pytest.mark.parametrize("kind", KINDS)
def test_json_holds_everything(kind):
    codec = Codec.build(kind, ["Hello hello wörld 中文 <eos>"] * 3, fold=True)
    again = Codec.from_json(json.loads(json.dumps(codec.to_json())))
    text = "hello HELLO wörld 文 <eos> neu"
    assert (again.kind, again.size, again.fold) == (codec.kind, codec.size, True)
    assert again.encode(text) == codec.encode(text)
    assert again.display_tokens(text) == codec.display_tokens(text)
    assert again.to_json() == codec.to_json()


@pytest.mark.parametrize("kind", KINDS)
def test_literal_specials_stay_text(kind):
    text = "<pad> <bos> <eos> <unk>"
    codec = Codec.build(kind, [text] * 5)
    ids = codec.encode(text)
    assert min(ids) >= len(SPECIALS)
    assert codec.decode(ids) == text


def test_specials():
    codec = Codec.build("words", ["a b"])
    a, b = codec.encode("a b")
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert [codec.token(i) for i in range(codec.size)] == [*SPECIALS, "a", "b"]
    assert codec.decode([BOS, a, UNK, b, EOS, PAD]) == "a <unk> b"
    assert codec.encode("a c b") == [a, UNK, b]
    for kind in ("bytes", "bpe:300"):
        other = Codec.build(kind, ["a"])
        [letter] = other.encode("a")
        assert other.decode([BOS, letter, UNK, letter, EOS]) == "a<unk>a"


def test_vocabulary_order():
    """Falling frequency, ties by the token, whatever the order of the lines."""
    for lines in (["d b b a", "c c c a"], ["c c c a", "d b b a"]):
        assert Codec.build("words", lines).tokens == ["c", "a", "b", "d"]


def test_limits():
    lines = ["c c c a a b b d"]
    assert Codec.build("words", lines, max_vocab=6).tokens == ["c", "a"]
    assert Codec.build("words", lines, max_vocab=6).size == 6
    assert Codec.build("words", lines, min_count=2).tokens == ["c", "a", "b"]
    assert Codec.build("words", lines, min_count=4).encode("c") == [UNK]


def test_fold():
    codec = Codec.build("words", ["Straße STRASSE"], fold=True)
    assert codec.tokens == ["strasse"]
    assert codec.decode(codec.encode("STRAẞE")) == "strasse"
    assert Codec.build("words", ["A a"]).tokens == ["A", "a"]


def test_lower_case_keeps_what_case_folding_does_not():
    codec = Codec.build("words", ["Straße STRASSE"], fold="lower")
    assert codec.tokens == ["strasse", "straße"]
    assert codec.decode(codec.encode("STRAẞE")) == "straße"
    assert codec.normalize("ΟΔΟΣ É") == "οδος é"
    again = Codec.from_json(json.loads(json.dumps(codec.to_json())))
    assert (again.fold, again.normalize("Weiß")) == ("lower", "weiß")
    assert Codec.build("words", ["Weiß"], fold="casefold").tokens == Codec.build("words", ["Weiß"], fold=True).tokens
    with pytest.raises(SeqloomError, match="unknown value of lowercase 'lowr'; did you mean 'lower'"):
        Codec.build("words", ["a"], fold="lowr")


def test_composed_and_decomposed_are_one():
    codec = Codec.build("chars", ["é"])
    assert codec.encode("e\u0301") == codec.encode("é") == [4]


def test_pieces_are_readable():
    codec = Codec.build("bpe:300", ["the cat the cat 中文 中文"] * 5)
    assert codec.display_tokens("the cat 中文") == ["the", " cat", " 中文"]
    assert Codec.build("bytes", []).display_tokens("aé\n") == ["a", "<0xC3>", "<0xA9>", "<0x0A>"]
    cut_short = Codec.build("bytes", []).encode("aé")[:-1]
    assert Codec.build("bytes", []).decode(cut_short) == "a\ufffd"


def test_half_a_surrogate_pair_does_no_harm():
    for kind in KINDS:
        codec = Codec.build(kind, ["a \ud83d"])
        assert codec.decode(codec.encode("a \ud83d")) == "a \ufffd"


def test_bpe_has_the_size_asked_for():
    lines = [f"{a}{b}{a} {b}{b}{a}" for a in "abcdefgh" for b in "qrstuv"] * 2
    codec = Codec.build("bpe:290", lines)
    assert codec.size == 290
    assert max(i for line in lines for i in codec.encode(line)) < 290


def test_bpe_is_the_same_in_every_process():
    code = (
        "from seqloom.data.tokenizers.vocabulary import Codec; import hashlib, json;"
        "lines = [f'{a}{b} {b}{a}{c}' for a in 'abcdef' for b in 'uvwxyz' for c in 'éß中'] * 2;"
        "value = json.dumps(Codec.build('bpe:400', lines).to_json());"
        "print(hashlib.sha256(value.encode()).hexdigest())"
    )
    sums = {subprocess.check_output([sys.executable, "-c", code]) for _ in range(2)}
    assert len(sums) == 1


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("chras", "unknown kind of tokens 'chras'; did you mean 'chars'"),
        ("bpe", "'bpe': bpe needs the size of its vocabulary, as in bpe:4000"),
        ("bpe:abc", "'bpe:abc': bpe needs the size"),
        ("bpe:-5", "'bpe:-5': bpe needs the size"),
        ("bpe:0", "'bpe:0': the size of the vocabulary goes from 260"),
        ("bpe:99999999999", "to 1,000,000"),
        ("chars:3", "chars takes no size"),
    ],
)
def test_unknown_kinds(kind, message):
    with pytest.raises(SeqloomError, match=message):
        Codec.build(kind, ["a"])


def test_damaged_json():
    with pytest.raises(SeqloomError, match="damaged"):
        Codec.from_json({"kind": "chars"})


def test_every_splitter_names_its_source():
    for name, kind in TOKENS.items():
        assert kind.__doc__, name
    assert "Sennrich" in str(TOKENS["bpe"].__doc__)
    assert unicodedata.unidata_version >= "14"


def test_vocabularies_are_json_to_files_and_objects_within_a_process():
    codec = Codec.build("chars", ["ab"])
    held = Vocabularies(source=codec, lines={"labels": []})
    assert dict(held) == {"source": codec.to_json(), "lines": {"labels": []}}
    assert opened(held, "source", Codec) is codec
    assert opened(dict(held), "source", Codec).tokens == codec.tokens
