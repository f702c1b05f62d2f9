"""Every row beside the literature in one table, by what the recipes have on record: nothing is trained.

python benchmarks/quality/record.py
"""

from __future__ import annotations

from collections.abc import Sequence

from published import ROWS, Goal, Row

from seqloom.runs.recipes import recipe as recipes
from seqloom.runs.recipes.recipe import Recipe


def own() -> list[Row]:
    """One for each recipe: those that change one thing have none of their own."""
    return [row for row in ROWS if row.key == row.recipe and row.goals]


def value(goal: Goal, recipe: Recipe) -> float:
    """What is on record, as papers show it."""
    return goal.shown(recipe.scores()[goal.metric])


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| recipe | data | score | here | must | aim | published | training |",
        "|---|---|---|---:|---:|---:|---|---|",
    ]
    return "\n".join([*lines, *(_line(row, recipes.load(row.recipe)) for row in rows)])


def _line(row: Row, recipe: Recipe) -> str:
    def each(shown: Sequence[str]) -> str:
        return " / ".join(shown)

    values = [value(goal, recipe) for goal in row.goals]
    verdicts = list(dict.fromkeys(goal.verdict(found) for goal, found in zip(row.goals, values, strict=True)))
    digits = 3 if row.goals[0].name == "nats" else 2
    cells = [
        f"`{row.recipe}`",
        recipe.train if isinstance(recipe.train, str) else ", ".join(recipe.train),
        each([goal.name for goal in row.goals]),
        f"**{each([f'{found:.{digits}f}' for found in values])}**, {each(verdicts)}",
        each([f"{goal.must:g}" for goal in row.goals]),
        each(["–" if goal.aim is None else f"{goal.aim:g}" for goal in row.goals]),
        each([goal.published for goal in row.goals]),
        f"{recipe.reached['time']}, {recipe.reached['hardware']}",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(table(own()))
