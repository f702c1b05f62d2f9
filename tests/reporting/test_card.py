"""The model card: front matter that parses, Markdown that stays whole."""

from __future__ import annotations

import ast
import re

import pytest
import yaml

from seqloom.reporting.card import card, fenced, is_ours, plain, tick
from tests.reporting.runs import CONFIG, bare, hostile, record, whole


def front(text: str) -> dict:
    _, matter, _ = text.split("---\n", 2)
    return yaml.safe_load(matter)


def test_a_whole_card():
    text = card(whole())
    matter = front(text)
    assert matter["library_name"] == "seqloom"
    assert matter["pipeline_tag"] == "text2text-generation"
    assert not {"license", "language"} & matter.keys()
    result = matter["model-index"][0]["results"][0]
    assert result["dataset"] == {"name": "words.tsv", "type": "custom", "split": "validation"}
    assert {"type": "per", "name": "token error rate", "value": 12.5, "verified": False} in result["metrics"]
    assert matter["metrics"] == ["per", "exact_match", "perplexity"]  # bleu was not a number
    assert "| token error rate | 12.50 % | 11.50 … 13.50 | `per\\|refs:closest` |" in text
    assert "echo good | seqloom predict words" in text
    assert "**3 broken lines of the data were left out**" in text
    assert "chosen; on new data expect a little less" in text
    assert "/home/me" not in text  # a card is published
    assert is_ours(text)
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        ast.parse(block)


def test_languages_are_told_only_by_the_names_of_parallel_files():
    def of(*names):
        return front(card(whole(config={**CONFIG, "inputs": {"train": list(names), "valid": "5%"}})))

    assert of("data/train.en.gz", "data/train.de.gz")["language"] == ["en", "de"]
    assert of("train.en", "train.de")["pipeline_tag"] == "translation"
    for names in (("a.txt", "b.txt"), ("a.en", "b.de"), ("train.en",), ("x.en", "x.en"), ("x.tsv", "x.de")):
        assert "language" not in of(*names)


@pytest.mark.parametrize("facts", [bare(), whole(records={}), whole(data={}), whole(records={"test": record(["A"])})])
def test_what_is_missing_is_not_told(facts):
    text = card(facts)
    assert front(text)["library_name"] == "seqloom"
    assert "None" not in text.replace("None: nothing was held out", "")


def test_hostile_text_breaks_neither_yaml_nor_markdown():
    text = card(hostile())
    matter = front(text)
    assert "<script>alert(1)</script>" in matter["model-index"][0]["name"]
    assert matter["tags"] == ["seqloom", "sequence-to-sequence"]
    body = text.split("---\n", 2)[2]
    headings = [line for line in body.splitlines() if line.startswith("#")]
    assert [line for line in headings if line.startswith("## ")] == headings[1:]
    assert len(headings) == 6
    assert headings[0].startswith("# \\<script\\>")
    outside = re.sub(r"(?s)(`+)(?!`).*?(?<!`)\1(?!`)", "", body)
    assert "<script" not in outside.replace("\\<script", "")
    assert "\x00" not in text


def test_spans_and_blocks():
    assert tick("a") == "`a`"
    assert tick("a`b``c") == "``` a`b``c ```"
    assert tick(" \n") == ""
    assert fenced("````", "") == "`````\n````\n`````"
    assert plain("a_b\n*c*") == "a\\_b \\*c\\*"
