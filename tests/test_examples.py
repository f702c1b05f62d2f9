"""Every example runs, for two steps, and is short."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.tagging import sentences, write_tags

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_example(file, pairs, tmp_path, monkeypatch, capsys):
    data = write_tags(tmp_path / "words.tsv", sentences(80)) if file.name == "tag.py" else pairs
    data = "houses" if file.name == "table.py" else data
    monkeypatch.setattr("sys.argv", [str(file), str(data), "2"])
    runpy.run_path(str(file), run_name="__main__")
    printed = {"rnn_by_hand.py": "largest difference from autograd", "own_cell.py": "UgrnnCell: recalls"}
    wanted = printed.get(file.name, "best validation")
    assert wanted in capsys.readouterr().out
    assert len(file.read_text().splitlines()) < 100
