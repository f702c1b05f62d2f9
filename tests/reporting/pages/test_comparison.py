"""Several runs on one page."""

from __future__ import annotations

from dataclasses import replace

from seqloom.reporting.pages.comparison import GroupResult, compare
from seqloom.reporting.run_facts import Learned
from tests.reporting.html_pages import Page, safe
from tests.reporting.runs import CONFIG, bare, hostile, imported, record, whole


def other(**changes):
    config = {**CONFIG, "training": {**CONFIG["training"], "learning_rate": 0.1}}
    return whole("other", **{"config": config, "records": {"valid": record(["AA", "B", "CH"], 20.0)}, **changes})


def test_of_two_that_are_equal_none_is_ahead():
    page = Page(compare([whole(), other(records={"valid": record(["AA", "B", "CH"], 12.5)})]))
    assert "words and other have the same token error rate, 12.50 %." in page.text
    assert "next is" not in page.text


def test_two_runs_side_by_side():
    page = Page(compare([whole(), other()]))
    safe(page)
    assert "words has the lowest token error rate, 12.50 %; next is other with 20.00 %." in page.text
    assert "do not overlap" in page.text
    assert "<strong>12.50 %</strong>" in page.source
    assert "training.learning_rate 0.004 0.1" in page.text
    assert "training.seed" not in page.text
    assert "different" not in page.text
    assert page.source.count('class="line s1"') == 6
    assert page.text.count("confidence") == 8  # three shared sources and one best, of two runs each
    assert len(page.pictures()) == 7


def test_only_what_is_searched_for_says_how():
    labels = {key: value for key, value in record(["A", "B"], 20.0).items() if key != "search"}
    page = Page(compare([whole(), other(records={"valid": labels})]))
    asked = page.text.partition("sources scored ")[2].split()
    assert asked[:5] == ["200", "validation,", "greedy", "200", "validation"], "a label is not searched for"
    assert asked[5] != "greedy"


def test_an_ensemble_says_what_its_members_reach_together():
    page = Page(compare([whole(), other()], GroupResult(record=record(["AA", "B"], 11.25))))
    safe(page)
    assert page.text.index("All together") < page.text.index("has the lowest")
    assert "token error rate 11.25 %" in page.text
    assert "2 members" in page.text
    assert "member words has the lowest" in page.text
    page = Page(compare([whole(), other()], GroupResult()))
    safe(page)
    assert "All together The runs were not scored together: seqloom evaluate does that." in page.text


def test_folds_have_a_mean_and_are_not_ranked():
    found = record(["X", "Y"], fingerprint="g")
    page = Page(compare([whole(), other(records={"valid": found})], GroupResult(folds={"per": (12.5, 1.75)})))
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


def test_a_score_that_one_lacks_is_a_dash():
    lacking = record(["AA", "B", "CH"], 20.0)
    del lacking["metrics"]["exact_match"]
    text = Page(compare([whole(), other(records={"valid": lacking})])).text
    assert "60.00 % 55.00 … 65.00 –" in text
    assert "– %" not in text


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


def cut(name: str, value: float, data: dict, right: float = 60.0, **changes):
    """A run whose data was cut otherwise; it was asked the same."""
    found = record(["AA", "B", "CH"], value)
    found["metrics"] |= {"exact_match": right}
    return whole(name, config={**CONFIG, "data": data, **changes}, records={"valid": found})


def test_scores_by_the_token_are_not_ranked_where_tokens_differ():
    runs = [cut("phonemes", 12.5, {"target_tokens": "words"}), cut("letters", 6.25, {"target_tokens": "chars"}, 70.0)]
    page = Page(compare(runs))
    safe(page)
    told = "They tokenize targets differently: token error rate and perplexity cannot be compared."
    assert page.text.count(told) == 1
    assert "letters has the highest share of exact matches, 70.00 %; next is phonemes with 60.00 %" in page.text
    assert "lowest" not in page.text.replace("lower is better", "")
    assert "<strong>70.00 %</strong>" in page.source
    for number in ("6.25 %", "1.50"):
        assert number in page.text
        assert f"<strong>{number}</strong>" not in page.source
    assert "all right, % (higher is better)" in page.text  # bars and curves go by what can be compared
    assert "token error rate, %" not in page.text


def test_a_setting_of_the_source_or_one_not_known_makes_no_difference():
    for one, other in (({"source_tokens": "chars"}, {"source_tokens": "words"}), ({"target_tokens": "words"}, {})):
        page = Page(compare([cut("one", 12.5, one), cut("other", 20.0, other)]))
        assert "one has the lowest token error rate" in page.text
        assert "cannot be compared" not in page.text


def test_other_unknown_tokens_spoil_only_what_is_likely():
    data = {"target_tokens": "words", "min_count": 1}
    page = Page(compare([cut("one", 12.5, data), cut("other", 20.0, {**data, "min_count": 3})]))
    assert "Their vocabularies hold different tokens: perplexity cannot be compared." in page.text
    assert "one has the lowest token error rate" in page.text


def test_nothing_is_ranked_where_texts_are_normalised_differently():
    page = Page(compare([cut("one", 12.5, {"lowercase": False}), cut("other", 20.0, {"lowercase": "lower"})]))
    assert "They normalize texts differently before scoring: token error rate, all right and" in page.text
    assert "next is" not in page.text
    assert "%</strong>" not in page.source


def test_of_labels_it_does_not_matter_how_texts_are_cut():
    runs = [cut(kind, value, {"tokens": kind}, task="classify") for kind, value in (("words", 12.5), ("chars", 20.0))]
    assert "words has the lowest token error rate" in Page(compare(runs)).text
    hidden = [cut(kind, 12.5, {"tokens": kind}, task="mask") for kind in ("words", "chars")]
    assert "They tokenize texts differently: perplexity cannot" in Page(compare(hidden)).text


def test_the_same_settings_may_have_learned_other_tokens():
    runs = [cut("one", 12.5, {"target_tokens": "bpe:500"}), cut("other", 6.25, {"target_tokens": "bpe:500"}, 70.0)]

    def told(*learned: Learned, side: str = "target", whole: GroupResult | None = None) -> str:
        return Page(
            compare([replace(run, learned={side: one}) for run, one in zip(runs, learned, strict=True)], whole)
        ).text

    same, merged, known = Learned("a", "t"), Learned("b", "t"), Learned("a", "u")
    assert "other has the lowest token error rate, 6.25 %" in told(same, same)
    text = told(same, merged)
    assert (
        "Their tokenizers were learned from different texts: token error rate and perplexity cannot be compared."
        in text
    )
    assert "other has the highest share of exact matches, 70.00 %" in text
    text = told(same, known, side="source")
    assert "Their vocabularies hold different tokens: perplexity cannot be compared." in text
    assert "other has the lowest token error rate, 6.25 %" in text
    assert "token error rate, % (lower is better)" in told(same, merged, whole=GroupResult(folds={"per": (9.4, 4.4)}))
    by_rule = [cut("one", 12.5, {"target_tokens": "words"}), cut("other", 6.25, {"target_tokens": "chars"})]
    text = Page(
        compare([replace(run, learned={"target": one}) for run, one in zip(by_rule, (same, known), strict=True)])
    ).text
    assert "tokens unknown" not in text, "that they are cut by other rules is said, and enough"
