"""The sections of every evaluation."""

from __future__ import annotations

from typing import Any

from seqloom.reporting.sections.evaluation import score_table
from seqloom.reporting.task_words import wording

WORDS = wording({"task": "translate", "data": {}})


def test_the_word_error_rate_of_pronunciations_is_that_of_papers():
    """The share of words with any error; `wer`, which is `per` again, has no row beside it."""
    metrics = {"per": 12.5, "wer": 12.5, "exact_match": 40.0}
    record: dict[str, Any] = {"metrics": metrics, "intervals": {}, "pronunciations": True}
    table = str(score_table(record, WORDS))
    assert table.count("word error rate") == 1
    assert "60.00 %" in table
    assert "words with any error" in table
    plain = str(score_table({"metrics": metrics}, WORDS))
    assert plain.count("word error rate") == 1
    assert "60.00 %" not in plain
