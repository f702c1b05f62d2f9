"""Several runs on one page."""

from __future__ import annotations

from seqloom.reporting.compare import Whole, compare
from tests.reporting.pages import Page, safe
from tests.reporting.runs import CONFIG, bare, hostile, imported, record, whole


def other(**changes):
    config = {**CONFIG, "training": {**CONFIG["training"], "rate": 0.1}}
    return whole("other", **{"config": config, "records": {"valid": record(["AA", "B", "CH"], 20.0)}, **changes})


def test_two_runs_side_by_side():
    page = Page(compare([whole(), other()]))
    safe(page)
    assert "words has the lowest token error rate, 12.50 %; next is other with 20.00 %." in page.text
    assert "do not overlap" in page.text
    assert "<strong>12.50 %</strong>" in page.source
    assert "training.rate 0.004 0.1" in page.text
    assert "training.seed" not in page.text
    assert "different" not in page.text
    assert page.source.count('class="line s1"') == 6
    assert page.text.count("confidence") == 8  # three shared sources and one best, of two runs each
    assert len(page.pictures()) == 7


def test_an_ensemble_says_what_its_members_reach_together():
    page = Page(compare([whole(), other()], Whole(record=record(["AA", "B"], 11.25))))
    safe(page)
    assert page.text.index("All together") < page.text.index("has the lowest")
    assert "token error rate 11.25 %" in page.text
    assert "2 members" in page.text
    assert "member words has the lowest" in page.text


def test_folds_have_a_mean_and_are_not_ranked():
    found = record(["X", "Y"], fingerprint="g")
    page = Page(compare([whole(), other(records={"valid": found})], Whole(folds={"per": (12.5, 1.75)})))
    safe(page)
    assert "token error rate 12.50 ± 1.75" in page.text
    assert "2 folds" in page.text
    for said in ("cannot be compared", "lowest", "The same examples"):
        assert said not in page.text


def test_a_small_lead_is_called_one():
    text = Page(compare([whole(), other(records={"valid": record(["AA", "B", "CH"], 13.0)})])).text
    assert "intervals overlap" in text


def test_different_data_is_said_and_nothing_is_ranked():
    found = record(["X", "Y"], fingerprint="g")
    config = {**CONFIG, "inputs": {"train": ["more.tsv"], "valid": "5%"}}
    page = Page(compare([whole(), other(config=config, records={"valid": found})]))
    assert "scored on different held-out data" in page.text
    assert "trained on different data" in page.text
    assert "lowest" not in page.text
    assert "%</strong>" not in page.source


def test_what_an_imported_run_was_trained_on_is_not_known():
    text = Page(compare([whole(), imported()])).text
    assert "training data words.tsv –" in text
    assert "trained on different data" not in text


def test_runs_are_compared_on_what_all_have():
    both = {"test": record(["AA", "B"], 50.0, "t"), "valid": record(["AA", "B"], 10.0)}
    text = Page(compare([whole(records=both), other()])).text
    assert "lowest token error rate, 10.00 %" in text
    assert "50.00 %" not in text


def test_bare_and_hostile_runs():
    for runs in (
        [bare(), whole()],
        [bare(), bare()],
        [hostile(), hostile(), whole()],
        [whole(str(n)) for n in range(11)],
    ):
        page = Page(compare(runs))
        safe(page)
        page.pictures()
    assert "No evaluation: old" in Page(compare([bare(), whole()])).text
