"""The toys on the path of this process, and everything as before afterwards."""

from __future__ import annotations

import importlib
import random
import sys

import pytest

from seqloom import plugins
from tests.cli.conftest import seqloom  # noqa: F401
from tests.plugins.toys import MODULE, write_package


def forget() -> None:
    """As in a new process: no plug-in in any table, no module of the package."""
    for kind, name in plugins._loaded:
        home, _, table = plugins.TABLES[kind].partition(":")
        getattr(sys.modules[home], table).pop(name, None)
    plugins._loaded.clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == MODULE]:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def site(tmp_path, monkeypatch):
    """The folder of the installed package."""
    folder = tmp_path / "site"
    write_package(folder)
    monkeypatch.syspath_prepend(str(folder))
    forget()
    yield folder
    forget()


@pytest.fixture
def labelled(tmp_path):
    """Texts with a label, which are pairs too."""
    draw, file = random.Random(1), tmp_path / "labelled.tsv"
    words = ("good", "bad", "fine", "poor", "day", "night")
    lines = (f"{draw.choice(words)} {draw.choice(words)} {number}\t{draw.choice('ab')}\n" for number in range(60))
    file.write_text("".join(lines), encoding="utf-8")
    return file
