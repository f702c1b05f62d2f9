"""Sections of a tagger's report: what is known is drawn, what is missing is not, and text stays text."""

from __future__ import annotations

from seqloom.reporting.sections.tags import sections
from tests.reporting.runs import HOSTILE


def record(text: str) -> dict:
    kind = {"name": text, "precision": 50.0, "recall": None, "f1": 40.0, "wanted": 3, "written": 4}
    place = {"before": [text], "word": text, "after": [], "wanted": text, "written": "B", "unknown": True}
    return {
        "kinds": [kind],
        "unknown_words": {"words": 7, "accuracy": 71.4, "interval": [50.0, 90.0]},
        "known_words": {"words": 0, "accuracy": None, "interval": [None, None]},
        "contexts": [{**place, "confidence": None}],
    }


def test_what_is_known_is_drawn():
    drawn = "".join(sections(record("NOUN")))
    for text in ("Tags", "NOUN", "not in the training data", "71.40", "50.00 … 90.00", "Errors in context"):
        assert text in drawn
    assert ">in the training data" not in drawn
    assert "Types of spans" in "".join(sections({**record("PER"), "spans": True}))


def test_what_is_missing_is_not_drawn():
    assert "".join(sections({})) == ""


def test_text_stays_text():
    for text in HOSTILE:
        drawn = "".join(sections(record(text)))
        assert "<script" not in drawn
        assert "\x00" not in drawn
        assert drawn.count("<table") == 3
