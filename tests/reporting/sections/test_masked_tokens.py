"""Hidden tokens and words that are alike, as a report shows them."""

from __future__ import annotations

from seqloom.reporting.sections.masked_tokens import sections


def test_guesses_stand_beside_what_was_hidden():
    shown = {"tokens": ["the", "<b>", "sat"], "guesses": [[1, [["cat", 0.75], ["dog", 0.2]]]]}
    page = "".join(map(str, sections({"masks": [shown]})))
    assert "the ▁▁ sat" in page
    assert "&lt;b&gt;" in page
    assert "cat" in page
    assert "75 %" in page
    assert "alike" not in page


def test_words_stand_beside_those_like_them():
    page = "".join(map(str, sections({"alike": [["cat", [["dog", 0.9]]]]})))
    assert "dog" in page
    assert "0.90" in page


def test_other_records_have_none_of_it():
    assert not "".join(map(str, sections({"metrics": {"per": 1.0}})))
