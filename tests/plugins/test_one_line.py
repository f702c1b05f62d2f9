"""What a new entry touches: as a plug-in no file of Seqloom, else its own file and one line of a table."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import seqloom as package
from seqloom import plugins
from tests.language.strings import page_strings
from tests.plugins.test_plugins import config_of, words
from tests.plugins.toys import MODULE, PACKAGE, TASK_MODULES, TOYS, VERSION, write_facts

ROOT = Path(package.__file__).parent
GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def files(kind: str) -> int:
    """Files of a toy: its module, and those beside it that a task has."""
    return 1 + len(TASK_MODULES) * (kind == "tasks")


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a line that begins with this."""
    text = GUIDE.read_text(encoding="utf-8").partition(f"\n{heading}")[2]
    table = re.search(r"\|(?:.*\n\|)*.*", text)
    assert table
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[0].splitlines()[2:]]


def test_there_is_a_toy_of_every_kind():
    assert TOYS.keys() == plugins.TABLES.keys()


@pytest.fixture
def uninstalled(site):
    """The files of the package, without its entry points."""
    write_facts(site, PACKAGE, VERSION, {})
    return site


@pytest.mark.parametrize("kind", TOYS)
def test_one_line_of_the_table_is_enough(kind, uninstalled, labelled, tmp_path, seqloom, monkeypatch):
    """The same files, and `"name": entry` in the table: that is all, and what an entry point does."""
    home, _, name = plugins.TABLES[kind].partition(":")
    table, toy, run = getattr(importlib.import_module(home), name), TOYS[kind], tmp_path / "run"
    before = page_strings()
    entry = getattr(importlib.import_module(f"{MODULE}.{kind}"), toy.entry)
    monkeypatch.setitem(table, toy.name, entry)
    status, _, err = seqloom("train", *words(kind, labelled, run))
    assert status == 0, err
    assert "plugins" not in config_of(run)
    status, out, err = seqloom("predict", run, "--text", "good day", *toy.predict.split())
    assert (status, out.count("\n")) == (0, 1), err
    row = next(row for row in rows("What a new entry touches") if row[0] == kind)
    assert row[1:4] == [str(files(kind)), "1", f"`{name}`"]
    assert row[4] == ("words" if page_strings() - before else "–")


def test_the_table_of_counts_is_of_all_kinds():
    assert [row[0] for row in rows("What a new entry touches")] == [*plugins.TABLES]


def test_the_table_of_ways_is_true():
    """Files, folders and tables that it names are there, and the table of every kind of plug-in is in it."""
    named = set[str]()
    for what, file, table, test in rows("## How to add"):
        homes = re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py|/))`", f"{file} {table}")
        for path in homes:
            assert (ROOT / path).exists() or (ROOT.parent / path).exists(), f"{what}: {path}"
        for path in re.findall(r"`(tests/[a-z_/]+(?:\.py)?)`", test):
            assert (ROOT.parent / path).exists(), f"{what}: {path}"
        for name in re.findall(r"`([A-Z_]+)`", table):
            modules = [path for path in homes if path.endswith(".py")]
            found = [path for path in modules if re.search(rf"^{name}\b.*=", (ROOT / path).read_text(), re.M)]
            assert found or name in ("ABOUT", "PRESETS"), f"{what}: {name} is in none of {modules}"
            named.add(name)
    assert {address.partition(":")[2] for address in plugins.TABLES.values()} <= named
