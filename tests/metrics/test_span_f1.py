"""Scores of tags against seqeval where it is installed, and against numbers worked by hand."""

from __future__ import annotations

import random

import pytest

from seqloom.data.encoding.tag_schemes import Span, spans, strict_spans
from seqloom.errors import SeqloomError
from seqloom.metrics.span_f1 import TagSequences, by_type, score_tags

LETTERS = {"bio": "BI", "iob1": "BI", "bioes": "BIES", "bilou": "BILU"}


def drawn(scheme: str, sentences: int = 300, seed: int = 3) -> TagSequences:
    """Tags at random: mostly broken. Predictions share about half with the references."""
    draw = random.Random(seed)
    every = ["O", *(f"{letter}-{kind}" for letter in LETTERS[scheme] for kind in ("PER", "LOC-X"))]
    references = [draw.choices(every, k=draw.randint(1, 9)) for _ in range(sentences)]
    predictions = [[tag if draw.random() < 0.6 else draw.choice(every) for tag in row] for row in references]
    return TagSequences(predictions, references, scheme)


@pytest.mark.parametrize("scheme", ["bio", "iob1", "bioes"])
def test_scores_equal_seqeval(scheme):
    seqeval = pytest.importorskip("seqeval.metrics")
    tagged = drawn(scheme)
    found = score_tags(tagged, samples=0).metrics
    truths, guesses = [list(map(list, rows)) for rows in (tagged.references, tagged.predictions)]
    assert found["accuracy"] == pytest.approx(100 * seqeval.accuracy_score(truths, guesses))
    for name in ("precision", "recall", "f1"):
        assert found[name] == pytest.approx(100 * getattr(seqeval, f"{name}_score")(truths, guesses))
    report = seqeval.classification_report(truths, guesses, output_dict=True)
    for kind in by_type(tagged):
        wanted = report[kind.name]
        assert kind.f1 == pytest.approx(100 * wanted["f1-score"]), kind
        assert (kind.precision, kind.recall) == pytest.approx((100 * wanted["precision"], 100 * wanted["recall"]))
        assert kind.wanted == wanted["support"]


@pytest.mark.parametrize(("scheme", "theirs"), [("bio", "IOB2"), ("bioes", "IOBES"), ("bilou", "BILOU")])
def test_strict_scores_equal_seqeval(scheme, theirs):
    pytest.importorskip("seqeval")
    from seqeval import scheme as schemes
    from seqeval.metrics import f1_score

    for seed in range(5):
        tagged = drawn(scheme, seed=seed)
        truths, guesses = [list(map(list, rows)) for rows in (tagged.references, tagged.predictions)]
        wanted = f1_score(truths, guesses, mode="strict", scheme=getattr(schemes, theirs))
        assert score_tags(tagged, ["f1_strict"], samples=0).metrics["f1_strict"] == pytest.approx(100 * wanted)


@pytest.mark.parametrize(("scheme", "letters"), [("bmes", "MS"), ("bmewo", "MW")])
def test_schemes_that_seqeval_does_not_know_are_bioes_with_other_letters(scheme, letters):
    pytest.importorskip("seqeval")
    from seqeval import scheme as schemes
    from seqeval.metrics import f1_score

    for seed in range(3):
        known = drawn("bioes", seed=seed)
        other = str.maketrans("IS", letters)
        sides = known.predictions, known.references
        renamed = [[[tag[:1].translate(other) + tag[1:] for tag in row] for row in rows] for rows in sides]
        found = score_tags(TagSequences(*renamed, scheme), samples=0).metrics
        truths, guesses = [list(map(list, rows)) for rows in (known.references, known.predictions)]
        assert found["f1"] == pytest.approx(100 * f1_score(truths, guesses))
        strict = f1_score(truths, guesses, mode="strict", scheme=schemes.IOBES)
        assert found["f1_strict"] == pytest.approx(100 * strict)


def test_spans_of_chinese_names_by_hand():
    """One of two wanted spans is found, and one is written too much."""
    tagged = TagSequences(
        [["B-NAME", "M-NAME", "E-NAME", "O", "S-ORG"]], [["B-NAME", "M-NAME", "E-NAME", "S-ORG", "O"]], "bmes"
    )
    found = score_tags(tagged, samples=0).metrics
    assert (found["f1"], found["f1_strict"], found["accuracy"]) == (50.0, 50.0, 60.0)


def test_spans_by_hand():
    assert list(spans(["B-A", "I-A", "O", "B-B", "B-B"])) == [Span("A", 0, 1), Span("B", 3, 3), Span("B", 4, 4)]
    assert list(spans(["I-A", "I-B", "E-B", "S-B"])) == [Span("A", 0, 0), Span("B", 1, 2), Span("B", 3, 3)]
    assert list(strict_spans(["I-A", "I-A", "B-A"], "bio")) == [Span("A", 2, 2)]
    assert list(strict_spans(["B-A", "I-A", "O", "U-X", "L-X"], "bilou")) == [Span("X", 3, 3)]
    assert not list(spans([]))
    assert not list(strict_spans([], "bio"))


def test_scores_by_hand():
    tagged = TagSequences([["B-A", "O", "B-B"], ["O"]], [["B-A", "O", "O"], ["B-B"]], "bio")
    scores = score_tags(tagged)
    assert scores.metrics == {
        "accuracy": 50.0,
        "f1": 50.0,
        "precision": 50.0,
        "recall": 50.0,
        "f1_strict": 50.0,
        "sentence_accuracy": 0.0,
    }
    assert scores.count == 2
    assert all(low <= scores.metrics[name] <= high for name, (low, high) in scores.intervals.items())
    plain = score_tags(TagSequences([["N", "V"]], [["N", "N"]]))
    assert plain.metrics == {"accuracy": 50.0, "sentence_accuracy": 0.0}
    (noun, verb) = by_type(TagSequences([["N", "V"]], [["N", "N"]]))
    assert (noun.precision, noun.recall, noun.wanted, noun.written) == (100.0, 50.0, 2, 1)
    assert (verb.name, verb.f1, verb.written) == ("V", 0.0, 1)


def test_wrong_questions():
    with pytest.raises(SeqloomError, match="these tags mark none"):
        score_tags(TagSequences([["N"]], [["N"]]), ["f1"])
    with pytest.raises(SeqloomError, match="did you mean 'accuracy'"):
        score_tags(TagSequences([["N"]], [["N"]]), ["acuracy"])
    with pytest.raises(SeqloomError, match="sentence 1: 2 tags were written for 1 words"):
        score_tags(TagSequences([["N", "N"]], [["N"]]))
