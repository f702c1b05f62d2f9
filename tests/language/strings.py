"""Every fixed string that help, pages and cards may show: the keys that a table of translations must have."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import typer

import seqloom
from seqloom.cli import help_language, laws
from seqloom.cli.main import app
from seqloom.laws import compare
from seqloom.laws.kinds import KINDS
from seqloom.metrics.metric_table import METRICS
from seqloom.reporting.pages import comparable, comparison, run_page
from seqloom.reporting.run_facts import HELD_OUT
from seqloom.reporting.sections import confusion_matrix, evaluation, language, table, tags
from seqloom.tasks.registry import TASKS

PACKAGE = Path(seqloom.__file__).parent
# Functions that translate an argument, and which: the first, or what a law says when it does not hold.
MARKERS = {"_": 0, "fill": 0, "section": 0, "parts": 0, "LawError": 0, "NotApplicable": 0}
MARKERS |= {"require_close": 2, "require_all_close": 2}
UNITS = ("sources", "distinct sources", "examples", "runs", "folds", "members")  # of records, and chosen at run time


def help_strings() -> set[str]:
    tree = typer.main.get_command(app)
    every = (part for _, _, text in help_language.texts(tree) for part in help_language.paragraphs(text))
    found = {*map(help_language.key, every)}
    return found | {*help_language.TYPERS.values(), *help_language.USAGE, help_language.HELP_OPTION}


def page_strings() -> set[str]:
    return {*marked(), *in_tables()} - {""}


@cache
def marked() -> frozenset[str]:
    """Literals that the code translates where they stand."""
    return frozenset(_marked())


def _marked() -> Iterator[str]:
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
                continue
            name, place = node.func.id, MARKERS.get(node.func.id, 0)
            text = node.args[place] if len(node.args) > place else None
            if name in MARKERS and isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield text.value
            if name == "amount" and isinstance(unit := node.args[-1], ast.Constant):
                yield "{count} " + unit.value


def in_tables() -> Iterator[str]:
    """Strings of tables, translated where they are shown."""
    for metric in METRICS.values():
        yield from (metric.title, metric.about)
    for words in (task.words for task in TASKS.values()):
        yield from (words.does, words.labels, words.right, words.unit, "{count} " + words.unit)
        yield from (words.loss(numbers) for numbers in (False, True)[: 2 if words.label in ("text", "row") else 1])
    yield from ("{count} " + unit for unit in UNITS)
    yield from (reason.text for reason in (*comparable.REASONS, comparable.LEARNED))
    yield from (name for name, _ in comparison.ROWS)
    yield from ("source", "target")  # the sides of a pair
    for titles in (run_page.SCORES_ON, run_page.COMMONEST, HELD_OUT, comparison.SHORT_HELD_OUT):
        yield from titles.values()
    for texts in (evaluation.LISTS, confusion_matrix.CONFUSED, table.LOSSES):
        yield from texts.values()
    yield from tags.KNOWN
    yield from (text for texts in language.POSITIONS.values() for text in texts)
    yield from (law.demand for kind in KINDS.values() for law in kind.laws)
    yield from (*laws.OUTCOMES.values(), compare.NOT_FINITE, "row", "step", "feature", "query", "key")
    yield from ("share of exact matches", "decrease of the score")
