"""What recipes have on record: every row that is wanted is there, and the README and docs/results.md say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import record

from seqloom.runs.recipes import recipe as recipes

TOP = Path(__file__).parents[2]
GOALS = {row.recipe: row.goals for row in record.own()}


def test_every_row_is_on_record_and_reaches_what_it_must():
    shown = record.table(record.own())
    for row in record.own():
        recipe = recipes.load(row.recipe)
        assert (TOP / recipe.reached["results"]).is_file()
        if row.recipe != "tinyshakespeare":  # as plain as its paper; the annealed one reaches it
            assert all(goal.verdict(record.value(goal, recipe)) != "short" for goal in row.goals), row.recipe
        assert shown.count(f"| `{row.recipe}` |") == 1
    assert "| `cmudict-lstm` | cmudict-g014b2b | PER / WER | **5.30 / 22.17**, aim | 7 / 27 | 6 / 25 |" in shown


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md", "docs/results.md", "docs/zh/results.md"])
def test_figures_are_those_on_record(name):
    """The pages of results have all recipes that are compared with papers, the READMEs some."""
    found = [line.split("|") for line in (TOP / name).read_text().splitlines() if line.startswith("| ")]
    tables = [(re.findall(r"`([\w-]+)`", cells[2]), cells[3]) for cells in found if len(cells) == 6]
    rows = [(named, here) for named, here in tables if named and set(named) <= set(GOALS)]
    shown = {recipe for named, _ in rows for recipe in named}
    assert len(shown) >= 6 if "README" in name else shown >= set(GOALS) - {"tinyshakespeare"}
    for named, here in rows:
        said = re.findall(r"\d+\.\d+", here)
        wanted = [(goal, recipes.load(recipe)) for recipe in named for goal in GOALS[recipe]]
        assert len(said) == len(wanted), named
        for number, (goal, recipe) in zip(said, wanted, strict=True):
            digits = len(number.partition(".")[2])
            assert abs(float(number) - record.value(goal, recipe)) <= 0.5001 * 10**-digits, (recipe.name, number)
