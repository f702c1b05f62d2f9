"""Values in errors: on one line, not at length, and harmless to a terminal."""

from __future__ import annotations

import pytest

from seqloom.errors import MOST, shown


class Own:
    def __repr__(self) -> str:
        return "one\n\x1b[2Jtwo\u202e"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("\x1b[2J\u202e名", "'\\x1b[2J\\u202e名'"),
        ({"a": ["\ud800\n"]}, "{'a': ['\\ud800\\n']}"),
        (Own(), "one\\n\\x1b[2Jtwo\\u202e"),
        (10**5000, "a number of thousands of digits"),
        ("x" * 5000, "'" + "x" * (MOST - 1) + "…"),
    ],
    ids=("text", "dict", "object", "number", "long"),
)
def test_a_value_is_shown_on_one_line(value, text):
    assert shown(value) == text
