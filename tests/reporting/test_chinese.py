"""Pages and cards in Chinese: no fixed English string is left, and their structure is that of the English ones."""

from __future__ import annotations

import re

import pytest

from seqloom.language import using
from seqloom.reporting.model_card import card, front_matter, is_ours
from seqloom.reporting.pages.comparison import GroupResult, compare
from seqloom.reporting.pages.run_page import report
from tests.language.strings import page_strings
from tests.reporting.html_pages import Page, safe
from tests.reporting.runs import CONFIG, bare, hostile, imported, record, whole

# Names, units and what the data of `whole` holds.
NAMES = {"Seqloom", "GRU", "tiny", "translate", "words", "words.tsv", "seqloom", "BLEU", "cpu", "PER", "valid", "chars"}
NAMES |= {
    "config.yaml",
    "evaluate",
    "attention",
    "GPU",
    "python",
    "torch",
    "cores",
    "sacreBLEU",
    "conlleval",
    "learning",
}
NAMES |= {"rate", "training.ema", "training.log", "every", "valid", "marian", "opus", "old", "model", "other", "number"}
OURS = {"code", "pre", "bdi", "style", "title"}  # elements of what is typed or came with the data


def zh(draw, *arguments) -> str:
    with using("zh"):
        return draw(*arguments)


def english_left(page: Page, *more: str) -> list[str]:
    """Texts of a page with a Latin word that is no name."""
    found, names = [], NAMES | set(more)
    for place, text in page.inside:
        words = re.findall(r"[A-Za-z][A-Za-z.]{2,}", text)
        if place not in OURS and not set(words) <= names:
            found.append(text)
    labels = [value for _, name, value in page.attributes if name in ("aria-label", "title")]
    return found + [label for label in labels if not set(re.findall("[A-Za-z]{3,}", label)) <= names]


RUNS = {
    "whole": lambda: whole(data={**whole().data, "notes": []}),
    "bare": bare,
    "imported": imported,
    "scored": lambda: whole(records={"test": record(["AA", "B"]), "valid": record(["AA"])}),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_report_in_chinese_has_no_english_text(run):
    text = zh(report, run())
    assert '<html lang="zh-CN">' in text
    page = Page(text)
    safe(page)
    assert not english_left(page)
    assert sorted(Page(report(run())).tags) == sorted(page.tags)


def test_a_comparison_in_chinese_has_no_english_text():
    other = whole("other", records={"valid": record(["AA", "B"], 30.0)})
    for runs, group in (([whole(), other], None), ([whole(), other], GroupResult(folds={"per": (12.5, 1.75)}))):
        page = Page(zh(compare, runs, group))
        assert not english_left(page, "gru")


@pytest.mark.parametrize("task", ["classify", "table", "tag", "generate", "mask", "vectors"])
def test_words_of_every_task(task):
    found = {"metrics": {"accuracy": 90.0, "loss": 1.0}, "count": 10, "unit": "examples"}
    facts = whole(config={**CONFIG, "task": task}, records={"valid": found}, data={})
    assert not english_left(Page(zh(report, facts)), task)


def test_sections_of_other_records():
    found = {
        "metrics": {"accuracy": 90.0, "calibration_error": 2.0},
        "count": 10,
        "by_label": [{"label": "x", "precision": 1.0, "recall": 2.0, "f1": 3.0, "wanted": 4, "guessed": 5}],
        "label_confusion": {
            "labels": ["x", "y"],
            "table": [[1, 2], [3, 4]],
            "right": 5,
            "wrong": 5,
            "unknown": 1,
            "pairs": [["x", "y", 2]],
        },
        "calibration": [{"confidence": 0.5, "accuracy": 0.4}, {"confidence": 0.9, "accuracy": 0.8}],
        "error_by_length": [{"shortest": 1, "longest": 3, "count": 9, "error": 3.0, "interval": [1.0, 5.0]}],
        "looked": [{"wanted": "x", "prediction": "y", "tokens": ["a", "b"], "weights": [0.2, 0.8]}],
        "kinds": [{"name": "x", "precision": 1.0, "recall": 2.0, "f1": 3.0, "wanted": 4, "written": 5}],
        "known_words": {"accuracy": 99.0, "interval": [98.0, 99.5], "words": 100},
        "contexts": [{"word": "x", "wanted": "A", "written": "B", "confidence": 0.5, "before": ["a"], "after": []}],
        "places": {"along": "line", "parts": [{"from": 0, "to": 1, "nats": 2.0}, {"from": 2, "to": 3, "nats": 1.0}]},
        "samples": [{"prompt": "a", "text": "b", "temperature": 0.8, "label": "x"}, {"prompt": "", "text": "c"}],
        "novelty": {"sampled": 100, "new": 90, "distinct": 95, "text": "of 100 …"},
        "masks": [{"tokens": ["a", "b"], "guesses": [[0, [["a", 0.9]]]]}],
        "alike": [["a", [["b", 0.5]]]],
        "importance": {"columns": [{"column": "x", "fall": 3.0, "deviation": 1.0}], "rows": 50, "metric": "accuracy"},
        "scatter": {"points": [[1.0, 2.0], [2.0, 2.5]], "target": "y"},
        "weights": {"outputs": [{"output": "y", "bias": 1.0, "values": [["x", 0.5, 0.1]]}], "texts": True},
    }
    columns = {"columns": [{"name": "x", "kind": "number", "missing": 1, "mean": 2.0, "deviation": 1.0}]}
    history = [{"step": 5, "sample": "x"}]
    facts = whole(config={**CONFIG, "task": "classify"}, records={"valid": found}, data=columns, history=history)
    assert not english_left(Page(zh(report, facts)), "classify")


def test_a_card_in_chinese():
    text = zh(card, whole())
    assert "## 成绩" in text
    assert is_ours(text)
    assert front_matter(whole()) == zh(front_matter, whole())  # model hubs read English
    body = text.split("---\n", 2)[2]
    for english in page_strings():
        assert "{" in english or len(english.split()) < 3 or english not in body, english


def test_hostile_texts_are_as_harmless_in_chinese():
    for text in (zh(report, hostile()), zh(compare, [whole(), hostile()])):
        safe(Page(text))
    assert is_ours(zh(card, hostile()))


def test_axes_and_legends_of_charts_are_chinese():
    page = Page(zh(report, whole()))
    labels = " ".join(" ".join(picture.itertext()) for picture in page.pictures())
    assert "步" in labels
    assert "裁剪前的范数" in labels or "学习率" in labels
