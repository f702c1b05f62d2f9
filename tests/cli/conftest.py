"""Commands run in this process, and what a wrong input must give."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import pytest

from seqloom import language
from seqloom.cli import help_language
from seqloom.cli.main import run as main


@pytest.fixture(autouse=True, scope="session")
def trees() -> None:
    """The tree of commands is made once for each language, as a process makes it once."""
    made = help_language.command

    @cache
    def tree(app: Any, name: str) -> Any:
        return made(app)

    pytest.MonkeyPatch().setattr(help_language, "command", lambda app: tree(app, language.language()))


@pytest.fixture
def seqloom(monkeypatch, capsys):
    """Run a command in this process: (exit status, stdout, stderr)."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["seqloom", *map(str, arguments)])
        status = 0
        try:
            main()
        except SystemExit as left:
            status = int(left.code or 0)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def one_line(result: tuple[int, str, str], *parts: str) -> None:
    """A wrong input gets one clear line, a non-zero exit and no traceback."""
    status, out, err = result
    assert status != 0
    assert err.startswith("seqloom: ")
    assert err.count("\n") == 1, err
    assert "Traceback" not in err + out
    for part in parts:
        assert part in err
