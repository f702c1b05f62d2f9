"""Every example runs, for two steps, and is short."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

DATA = {"table.py": "houses"}  # where words and their sounds will not do
EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_example(file, pairs, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [str(file), DATA.get(file.name, str(pairs)), "2"])
    runpy.run_path(str(file), run_name="__main__")
    assert "best validation" in capsys.readouterr().out
    assert len(file.read_text().splitlines()) < 100
