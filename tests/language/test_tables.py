"""The tables of translations: whole, without leftovers, and with the same values in both languages."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from seqloom.language import LANGUAGES
from tests.language import strings

FOLDER = Path(strings.PACKAGE) / "language"
OPTIONAL = {"{a}"}  # an English article
OTHERS = [name for name in LANGUAGES if name != "en"]
CHINESE = re.compile(r"[\u4e00-\u9fff]")
SAME = {"BLEU", "chrF", "R²", " ", ", ", ": "}  # no words to translate
LISTS = re.compile(r"[a-zA-Z0-9 ,.:-]+")  # of names that are typed: punctuation alone differs


@pytest.fixture(params=OTHERS)
def table(request) -> dict[str, dict[str, str]]:
    return json.loads((FOLDER / f"{request.param}.json").read_text(encoding="utf-8"))


def test_every_language_has_a_table():
    assert {file.stem for file in FOLDER.glob("*.json")} == set(OTHERS)


SECTIONS = {"help": strings.help_strings, "pages": lambda: strings.page_strings() - strings.help_strings()}


@pytest.mark.parametrize("section", SECTIONS)
def test_every_string_has_an_entry_and_every_entry_a_string(table, section):
    entries, needed = table[section].keys(), SECTIONS[section]()
    lacking, unused = sorted(needed - entries), sorted(entries - needed)
    assert not lacking, "without translation:\n" + "\n".join(lacking)
    assert not unused, "no longer used:\n" + "\n".join(unused)


def test_entries_are_sorted_and_stand_in_one_section(table):
    for entries in table.values():
        assert list(entries) == sorted(entries)
    assert not table["help"].keys() & table["pages"].keys()


def test_placeholders_are_the_same(table):
    for entries in table.values():
        for english, other in entries.items():
            before, after = (re.findall(r"\{[a-z]*\}", text) for text in (english, other))
            assert set(after) <= set(before), english
            assert set(before) - set(after) <= OPTIONAL, english
            assert len(after) == len(set(after)), english


def test_options_commands_and_files_are_the_same(table):
    """What a reader types is not translated."""
    typed = re.compile(r"--[a-z][a-z-]+|\b[a-z]+\.[a-z]{2,}\b|\$[A-Z_]+|(?<=seqloom )[a-z]+")
    for english, other in table["help"].items():
        assert set(typed.findall(english)) <= set(typed.findall(other)), english


def test_chinese_is_chinese():
    entries = json.loads((FOLDER / "zh.json").read_text(encoding="utf-8"))
    for english, other in (pair for section in entries.values() for pair in section.items()):
        words = re.sub(r"\{[a-z]*\}", "", english)
        assert english in SAME or CHINESE.search(other) or len(words) < 8 or LISTS.fullmatch(english), english
        assert not re.search(r"[\u4e00-\u9fff][,;:?!(]|[,;?!)][\u4e00-\u9fff]", other), f"half-width sign: {other}"
        assert "您" not in other
        assert "猜" not in other
