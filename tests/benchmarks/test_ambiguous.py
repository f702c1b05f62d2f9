"""The taggers on the ambiguous words: a few updates of two of them, and how shares are told."""

from __future__ import annotations

import ambiguous
import pytest


def test_who_counts_has_half_of_them(tmp_path, capsys):
    file = tmp_path / "found.md"
    ambiguous.main(["--steps", "2", "--only", "each word's commonest tag", "LSTM", "--output", str(file)])
    rows = [line for line in file.read_text().splitlines() if line.startswith("|")]
    assert rows[2] == "| each word's commonest tag | 50.0 | 50.0 | 50.0 | 50.0 | 50.0 |"
    assert rows[3].startswith("| LSTM |")
    assert rows[2] in capsys.readouterr().out


def test_every_distance_is_in_a_band():
    for distance in ambiguous.DISTANCES:
        assert sum(low <= distance <= high for low, high in ambiguous.BANDS) == 1
    assert "| x | 100.0 | 75.0 |" in ambiguous.table({"x": {1: 1.0, 4: 0.5, 5: 1.0}})
    with pytest.raises(SystemExit):
        ambiguous.main(["--only", "nobody"])
