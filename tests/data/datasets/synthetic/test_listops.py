"""ListOps: every answer is what an evaluator of its own makes of the text; sizes are the published ones."""

from __future__ import annotations

import hashlib
import statistics
from itertools import islice

import pytest

from seqloom.data.datasets import catalog
from seqloom.data.datasets.synthetic.listops import SHAPES


def evaluated(tokens: list[str]) -> tuple[int, int]:
    """The value of an expression and its depth, by recursion over what is left of the text."""
    token = tokens.pop(0)
    if not token.startswith("["):
        return int(token), 1
    parts = []
    while tokens[0] != "]":
        parts.append(evaluated(tokens))
    tokens.pop(0)
    assert 2 <= len(parts) <= 10
    values = [value for value, _ in parts]
    found = {"[MIN": min, "[MAX": max, "[MED": lambda v: int(statistics.median(v)), "[SM": lambda v: sum(v) % 10}
    return found[token](values), 1 + max(depth for _, depth in parts)


@pytest.mark.parametrize("name", SHAPES)
def test_every_answer_is_right_and_every_text_as_large_as_it_should_be(name):
    shape, deepest = SHAPES[name], 0
    for text, answer in catalog.find(name).examples("test"):
        tokens = text.split(" ")
        assert shape.shortest <= len(tokens) <= min(shape.longest, catalog.find(name).data["max_length"])
        value, depth = evaluated(tokens)
        assert not tokens
        assert str(value) == answer
        deepest = max(deepest, depth)
    assert shape.depth - 10 < deepest <= shape.depth


def test_no_text_is_there_twice():
    for name, most in (("listops", 500), ("listops-short", None)):
        dataset = catalog.find(name)
        texts = [text for split in dataset.sizes for text, _ in islice(dataset.examples(split), most)]
        assert len(set(texts)) == len(texts)


def test_arguments_are_expressions_as_often_as_published():
    """Of all places above the deepest level one in four, in texts that were not chosen by their length."""
    from random import Random

    from seqloom.data.datasets.synthetic.listops import Shape, _draw_expression

    random, any_size = Random(1).random, Shape(20, 5, 1, 10**6)
    tokens = [token for _ in range(20_000) for token in _draw_expression(random, any_size)[0]]
    opened = sum(token.startswith("[") for token in tokens)
    assert opened / (len(tokens) - tokens.count("]")) == pytest.approx(0.25, abs=0.01)
    for name in ("[MIN", "[MAX", "[MED", "[SM"):
        assert tokens.count(name) / opened == pytest.approx(0.25, abs=0.02)
    for digit in range(10):
        assert tokens.count(str(digit)) / sum(map(str.isdigit, tokens)) == pytest.approx(0.1, abs=0.01)


def test_it_never_changes():
    """If this fails, everybody's scores on it mean something else: raise `registry.LAYOUT` and say so."""
    said = {name: repr(list(islice(catalog.find(name).examples("test"), 50))) for name in SHAPES}
    assert {name: hashlib.sha256(text.encode()).hexdigest()[:8] for name, text in said.items()} == SUMS


SUMS = {"listops": "9af7fdbc", "listops-short": "29bb52de"}
