"""What each ingredient gave: differences on the same examples, and who is compared with whom."""

from __future__ import annotations

import gzip
import json

import ablations
import pytest
from published import ROWS

RIGHT = [(f"{number}", (f"a b {number}",)) for number in range(40)]
BASE, OTHER = "cmudict-attention, no agreement", "cmudict-attention, one layer"


@pytest.fixture
def outcomes(monkeypatch, tmp_path):
    """The base errs in the first eight words, the other in the first sixteen: it is worse by 20 % of the words."""
    monkeypatch.setattr("scoring.examples", lambda name: RIGHT)

    def told(row: str, wrong: int) -> dict:
        guesses = ["a b x" if place < wrong else right for place, (_, [right]) in enumerate(RIGHT)]
        return {"key": f"{row.replace(', ', '-')}-7", "task": "translate", "predictions": guesses}

    file = tmp_path / "papers.jsonl.gz"
    lines = [told(BASE, 8), told(OTHER, 16), told("multi30k-transformer, rotary", 0)]
    file.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    return file


def test_a_difference_and_its_interval_are_of_the_same_examples(outcomes, capsys):
    ablations.main([str(outcomes), "--base", BASE])
    head, _, first, *others = capsys.readouterr().out.splitlines()
    assert "PER" in head
    assert "WER" in head
    assert first == f"| {BASE} | 6.67 | | 20.00 | |"
    assert len(others) == 1  # the row of another recipe is not compared
    assert others[0].startswith("| one layer | 13.33 | +6.67 (+")
    assert "| 40.00 | +20.00 (+" in others[0]


def test_equal_answers_do_not_differ(outcomes):
    told = ablations.read([outcomes], ablations.pieces_of(ROWS))[BASE]
    same = ablations.measured(told, "per")
    assert ablations.difference(same, same) == (same.score, 0, 0, 0)


def test_a_base_without_answers_is_refused(outcomes, capsys):
    with pytest.raises(SystemExit):
        ablations.main([str(outcomes), "--base", "imdb"])
    assert "no answers of 'imdb'; there are those of: " in capsys.readouterr().err
