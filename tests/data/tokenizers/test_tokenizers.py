"""Chinese words, and full-width forms made plain."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.data.prepare.pairs import DataOptions, prepare_pairs
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.tokenizers import tokenizers
from seqloom.data.tokenizers.tokenizers import UNK, make_tokenizer, normalize
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.errors import SeqloomError

anything = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40)
mixed = st.text(
    alphabet=st.sampled_from([*"我们在北京大学学习自然语言处理，。！ab 12.5\u3000\t\n\u0301Ａ１ｶﾞ𠮷👨\u200d👩"]),
    max_size=40,
)


@pytest.fixture
def no_rjieba(monkeypatch):
    monkeypatch.setitem(sys.modules, "rjieba", None)
    tokenizers._jieba_cut.cache_clear()
    yield
    tokenizers._jieba_cut.cache_clear()


def test_jieba_cuts_words():
    pytest.importorskip("rjieba")
    assert make_tokenizer("jieba").split("我来到北京清华大学，version 2.0") == [
        *("我", "来到", "北京", "清华大学", "，"),
        *("version", " ", "2.0"),
    ]


@given(anything | mixed, st.booleans(), st.booleans())
@settings(max_examples=200)
def test_joined_words_are_the_text_again(text, fold, half_width):
    pytest.importorskip("rjieba")
    splitter, plain = make_tokenizer("jieba"), normalize(text, fold, half_width)
    assert splitter.join(splitter.split(plain)) == plain
    assert all(splitter.split(plain))


def test_a_codec_of_chinese_words():
    pytest.importorskip("rjieba")
    codec = Codec.build("jieba", ["我来到北京 清华大学", "我喜欢北京"])
    assert codec.decode(codec.encode("我喜欢 北京")) == "我喜欢 北京"
    assert codec.display_tokens("我喜欢北京") == ["我", "喜欢", "北京"]
    assert codec.decode([*codec.encode("我喜欢"), UNK]) == "我喜欢<unk>"
    assert Codec.from_json(json.loads(json.dumps(codec.to_json()))).encode("我来到北京") == codec.encode("我来到北京")


def test_writing_needs_no_rjieba_reading_names_the_extra(no_rjieba, tmp_path):
    codec = Codec.from_json({"kind": "jieba", "fold": False, "tokens": ["北京", "你好"]})
    assert codec.decode([5, 4]) == "你好北京"
    with pytest.raises(SeqloomError, match=r"pip install 'seqloom\[zh\]'"):
        codec.encode("你好")
    (tmp_path / "pairs.tsv").write_text("ni hao\t你好\n" * 9)
    with pytest.raises(SeqloomError, match=r"seqloom\[zh\]"):
        prepare_pairs(
            PrepareRequest(
                [str(tmp_path / "pairs.tsv")], 0.0, DataOptions(target_tokens="jieba"), seed=1, cache=tmp_path
            )
        )


def test_jieba_takes_no_size():
    with pytest.raises(SeqloomError, match="jieba takes no size"):
        make_tokenizer("jieba:3")


def test_full_width_forms_become_plain():
    ascii_forms = "".join(map(chr, range(0xFF01, 0xFF5F)))
    assert normalize(ascii_forms, half_width=True) == "".join(map(chr, range(0x21, 0x7F)))
    assert normalize("Ａ１\u3000￥５，ｅ\u0301", half_width=True) == "A1 ¥5,é"
    assert normalize("ＡＢｃ", fold=True, half_width=True) == "abc"
    assert normalize("Ａ１\u3000") == "Ａ１\u3000", "only if it was asked for"


@pytest.mark.parametrize("text", ["臺灣 台湾", "發髮 发", "ﾃﾞｰﾀ", "①㈱ﬁ²½…", "「」。、", "㎏℃"], ids=ascii)
def test_nothing_else_of_nfkc_is_done(text):
    """Traditional and simplified characters are different characters; half-width katakana stay half-width."""
    assert normalize(text, half_width=True) == text


@given(anything | mixed)
def test_only_what_unicode_calls_wide_changes(text):
    plain = normalize(text, half_width=True)
    assert normalize(plain, half_width=True) == plain
    wide = [unicodedata.decomposition(letter).startswith("<wide>") for letter in unicodedata.normalize("NFC", text)]
    assert any(wide) == (plain != normalize(text))


def test_width_is_part_of_the_codec():
    codec = Codec.build("chars", ["Ａ１，"], half_width=True)
    assert codec.tokens == [",", "1", "A"]
    again = Codec.from_json(json.loads(json.dumps(codec.to_json())))
    assert again.half_width
    assert again.encode("Ａ1") == codec.encode("A１")
    older = {name: value for name, value in codec.to_json().items() if name != "half_width"}
    assert not Codec.from_json(older).half_width


def test_sources_of_two_widths_are_never_on_both_sides(tmp_path):
    file = tmp_path / "widths.tsv"
    wide = {number: "".join(chr(ord(digit) + 0xFEE0) for digit in str(number)) for number in range(200)}
    file.write_text("".join(f"{number}\tx\n{text}\tx\n" for number, text in wide.items()))
    ready = prepare_pairs(PrepareRequest([str(file)], 0.3, DataOptions(half_width=True), seed=3, cache=tmp_path))
    held = [example.source for example in ready.validation_examples()]
    assert len(held) > 20
    assert all(held.count(str(number)) == held.count(text) for number, text in wide.items())


def test_each_width_has_its_own_cache(tmp_path):
    (tmp_path / "a.tsv").write_text("Ａ\tb\n")
    ready = [
        prepare_pairs(
            PrepareRequest([str(tmp_path / "a.tsv")], 0.0, DataOptions(half_width=half), seed=1, cache=tmp_path)
        )
        for half in (False, True)
    ]
    assert [one.source.tokens for one in ready] == [["Ａ"], ["A"]]


def test_several_labels_need_a_sign_between_them():
    assert make_tokenizer("labels:|").split("b|a| b") == ["a", "b"]
    with pytest.raises(SeqloomError, match=r"tokens 'labels': name the sign between several labels, as in labels:\|"):
        make_tokenizer("labels")
