"""The model card: front matter that parses, Markdown that stays whole."""

from __future__ import annotations

import ast
import re

import pytest
import yaml

from seqloom.reporting.model_card import card, fenced, is_ours, plain, tick
from seqloom.reporting.pages.run_page import report
from tests.reporting.html_pages import Page
from tests.reporting.runs import CONFIG, bare, hostile, imported, record, whole


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
    assert "**3 broken lines of the data left out.**" in text
    assert "chosen; on new data expect a little less" in text
    assert "/home/me" not in text  # a card is published
    assert is_ours(text)
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        ast.parse(block)


def test_vocabularies_are_counted_as_in_the_report():
    text = card(whole())
    assert "- source tokens: `chars`, vocabulary of 10\n- target tokens: `words`, vocabulary of 11\n" in text
    assert "source chars 6,698 5.5 5 8 8 10 target" in Page(report(whole())).text
    # One side alone, of a model that reads text and writes none.
    text = card(whole(config={**CONFIG, "data": {"tokens": "words"}}, data={}, vocabulary={"source": 10}))
    assert "- source tokens: `words`, vocabulary of 10\n\n" in text
    assert "target tokens" not in text


def test_languages_are_told_only_by_the_names_of_parallel_files():
    def of(*names):
        return front(card(whole(config={**CONFIG, "inputs": {"train": list(names), "valid": "5%"}})))

    assert of("data/train.en.gz", "data/train.de.gz")["language"] == ["en", "de"]
    assert of("train.en", "train.de")["pipeline_tag"] == "translation"
    for names in (("a.txt", "b.txt"), ("a.en", "b.de"), ("train.en",), ("x.en", "x.en"), ("x.tsv", "x.de")):
        assert "language" not in of(*names)


@pytest.mark.parametrize(
    ("valid", "shown"),
    [
        ("/home/me/dev.tsv", "dev.tsv"),
        (["/home/me/dev.en", "/home/me/dev.de"], "dev.en, dev.de"),
        ("5%", "5%"),
        (0.05, "0.05"),
        ("fold 1/3", "fold 1/3"),
        ("pinyin:valid", "pinyin:valid"),
    ],
)
def test_what_was_held_out_is_named_without_folders(valid, shown):
    text = card(whole(config={**CONFIG, "inputs": {"train": ["words.tsv"], "valid": valid}}))
    assert f"- validation: `{shown}`, 72 pairs" in text
    assert "/home/me" not in text


def test_a_model_of_a_file_is_named_without_folders():
    text = card(whole(config={**CONFIG, "preset": {"model": "/home/me/mine.yaml", "size": "small"}}))
    assert "A `mine.yaml` model with" in text
    assert "/home/me" not in text


def test_an_imported_run_was_not_trained_here():
    text = card(imported())
    assert "A `marian` model with 248,875 parameters" in text
    assert "imported by Seqloom from `opus-mt`. It was not evaluated here." in text
    assert "seqloom import hf opus-mt" in text
    for false in ("trained on", "/home/me", "longest target", "training: `opus"):
        assert false not in text, false


def test_a_run_that_started_from_another_says_so():
    inputs = {"train": ["words.tsv"], "valid": "5%", "from": "/home/me/runs/first"}
    text = card(whole(config={**CONFIG, "inputs": inputs}))
    assert "trained by Seqloom on `words.tsv` in 1 min 15 s. It started from the weights" in text
    assert "of the run `first`. On 200" in text
    assert "/home/me" not in text
    text = card(imported(train=["words.tsv"], **{"from": "runs/opus"}))
    assert "trained by Seqloom on `words.tsv`. It started from the weights" in text
    assert "longest target" not in text  # the bound is still the one that came with the model


def test_the_longest_target_has_no_specials():
    assert "The longest target in its training data has 18 tokens" in card(whole())  # 20 with <bos> and <eos>


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
