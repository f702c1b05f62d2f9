"""ListOps: expressions over lists of digits, nested deeply, and what they come to. Generated, always the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from random import Random
from typing import NamedTuple

from seqloom.data.datasets.dataset import Dataset

OPERATOR = 0.25  # how likely an argument is an expression itself and not a digit
OPERATORS = ("MIN", "MAX", "MED", "SM")
END = "]"
LONG = 200  # tokens: texts of more are so many that none is drawn twice


class Shape(NamedTuple):
    """How large expressions get. A digit by itself has depth 1."""

    depth: int
    arguments: int  # of an operator: from 2 to so many
    shortest: int  # tokens
    longest: int


SHAPES = {"listops": Shape(10, 10, 501, 1_999), "listops-short": Shape(20, 5, 4, 100)}
SEEDS = {"train": 11, "valid": 12, "test": 13}


def listops(dataset: Dataset, split: str) -> Iterator[tuple[str, str]]:
    """Expressions and their values: ("[MAX 2 9 [MIN 4 7 ] 0 ]", "9") (Nangia & Bowman 2018,
    https://arxiv.org/abs/1804.06028; the long form: Tay et al. 2021, section 2.2.1, https://arxiv.org/abs/2011.04006).

    MIN, MAX, MED (the median, rounded down where it lies between two) and SM (the sum modulo 10); an argument is an
    expression with probability 1/4. What is too short or too long is drawn anew. The brackets that the papers put
    around every pair are left out, as those who use the data do. A split has a seed of its own, and a hash of the text
    says which split may have it, so none is in two.
    """
    shape, random, seen = SHAPES[dataset.name], Random(SEEDS[split]).random, set()
    while len(seen) < dataset.sizes[split]:
        found = _draw_expression(random, shape)
        if found is None:
            continue
        text = " ".join(found[0])
        mark = blake2b(text.encode(), digest_size=8).digest()
        if mark not in seen and (len(found[0]) > LONG or split == _split_of(mark)):
            seen.add(mark)
            yield text, str(found[1])


def _split_of(mark: bytes) -> str:
    """Of short texts, which may be drawn again: half are for training."""
    return ("train", "train", "valid", "test")[mark[0] % 4]


def _draw_expression(random: Callable[[], float], shape: Shape) -> tuple[list[str], int] | None:
    """The tokens of an expression and its value; None if it is too short or too long."""
    tokens: list[str] = []
    pending: list[tuple[str, int, list[int]]] = []  # operators still open: the name, how many arguments, their values
    missing = 1  # tokens that are sure to come
    while True:
        number = random()
        if number < OPERATOR and len(pending) + 1 < shape.depth:
            which, number = divmod(number / OPERATOR * len(OPERATORS), 1)
            count = 2 + int(number * (shape.arguments - 1))
            tokens.append("[" + OPERATORS[int(which)])
            pending.append((OPERATORS[int(which)], count, []))
            missing += count
            if len(tokens) + missing > shape.longest:
                return None
            continue
        value = int(10 * (number / OPERATOR if number < OPERATOR else (number - OPERATOR) / (1 - OPERATOR)))
        tokens.append(str(value))
        missing -= 1
        while pending:
            name, count, values = pending[-1]
            values.append(value)
            if len(values) < count:
                break
            pending.pop()
            tokens.append(END)
            missing -= 1
            value = _evaluate(name, values)
        if not pending:
            return (tokens, value) if len(tokens) >= shape.shortest else None


def _evaluate(name: str, values: list[int]) -> int:
    if name == "MED":
        middle = sorted(values)[(len(values) - 1) // 2 : len(values) // 2 + 1]
        return sum(middle) // len(middle)
    return min(values) if name == "MIN" else max(values) if name == "MAX" else sum(values) % 10
