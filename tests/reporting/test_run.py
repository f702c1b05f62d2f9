"""The page of one run: what it says, that nothing in it runs, and that what is missing is not missed."""

from __future__ import annotations

import pytest

from seqloom.reporting.page import POLICY
from seqloom.reporting.run import report
from tests.reporting.pages import Page, safe
from tests.reporting.runs import HISTORY, HOSTILE, bare, hostile, record, whole


def test_a_whole_report():
    page = Page(report(whole()))
    safe(page)
    assert page.source.startswith("<!doctype html>")
    assert ("html", "lang", "en") in page.attributes
    assert ("meta", "content", POLICY) in page.attributes
    assert ("meta", "charset", "utf-8") in page.attributes
    for part in (
        "A gru-attention tiny model with 248,875 parameters",
        "trained on 1,234 pairs of words.tsv for 30 updates (1 min 15 s of training)",
        "On 200 held-out validation sources its token error rate is 12.50 % (95 % interval 11.50 … 13.50).",
        "per|refs:closest",
        "3 lines of the data were broken and left out.",
        "words.tsv:7: expected <source>TAB<target>",
        "1 update was skipped, for the loss or gradient was not finite: step 12.",
        "200 distinct sources of 700, chosen by a hash, greedy; 400 a second on cpu.",
        "seqloom train translate /home/me/words.tsv",
        "other references: another",
        "held out 60 of 1,294 pairs",
    ):
        assert part in page.text, part
    assert page.text.index("were broken") < page.text.index("signature")  # where nobody can miss it
    assert len(page.pictures()) == 8  # five curves, lengths, attention, confusion


def test_unlike_tokens_are_marked_and_only_they():
    page = report(whole())
    assert '<span class="pair unlike"><bdi>AA</bdi><bdi>B</bdi></span>' in page
    assert '<span class="pair"><bdi>A</bdi></span>' in page  # of an example that is all right


@pytest.mark.parametrize("facts", [bare(), whole(records={}), whole(data={}), whole(history=[]), whole(environment={})])
def test_what_is_missing_is_not_shown(facts):
    page = Page(report(facts))
    safe(page)
    page.pictures()
    assert "None" not in page.text
    assert "nan" not in page.text.replace("finance", "")


def test_without_held_out_data_it_says_so():
    steps = [line for line in HISTORY if "loss" in line]
    text = Page(report(whole(records={}, history=steps))).text
    assert "Nothing was held out, so there is no score" in text


def test_a_run_without_a_record_shows_what_training_measured():
    text = Page(report(whole(records={}))).text
    assert "On validation its token error rate is 40.00 %." in text
    assert "no evaluation record" in text


def test_the_test_stands_above_the_validation():
    page = Page(report(whole(records={"valid": record(["A", "B"], 5.0), "test": record(["A", "B"], 9.0)})))
    assert "On 200 test sources its token error rate is 9.00 %" in page.text
    page = Page(report(whole(records={"test": record(["A", "B"], 9.0), "valid": record(["A", "B"], 5.0)})))
    assert page.ids.index("scores-on-test-data") < page.ids.index("scores-on-valid-data")


def test_columns_of_which_nothing_is_known_are_left_out():
    text = Page(report(whole(data={}))).text
    assert "distinct sources –" not in text
    assert "median" not in text
    assert "vocabulary" in text


def test_no_text_of_a_stranger_becomes_markup():
    page = Page(report(hostile()))
    safe(page)
    assert page.pictures()
    for text in HOSTILE[:4]:
        assert text in " ".join(page.texts), text
    assert "nul␀esc␛" in page.text
    assert all(value == "en" for tag, name, value in page.attributes if name == "lang")
    # What runs from right to left stands in an element of its own.
    turned = {tag for tag, text in page.inside if "‮" in text}
    assert turned <= {"bdi", "text", "title"}
