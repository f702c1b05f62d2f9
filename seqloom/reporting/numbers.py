"""Numbers for the eye. What is missing or not finite is a dash."""

from __future__ import annotations

import math
from typing import Any

NONE = "–"


def finite(value: Any) -> float | None:
    """A number to draw or print, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def whole(value: Any) -> str:
    """12,345"""
    return NONE if finite(value) is None else f"{round(value):,}"


def digits(value: Any, places: int = 2) -> str:
    """12.35, and 1.2e+09 where that many digits would say nothing."""
    if finite(value) is None:
        return NONE
    return f"{value:.1e}" if abs(value) >= 1e7 else f"{value:,.{places}f}"


def short(value: Any) -> str:
    """1.3 M, 45.2 k, 871: for headlines and axes."""
    if finite(value) is None:
        return NONE
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g}"


def duration(seconds: Any) -> str:
    """48 s, 3 min 20 s, 2 h 05 min"""
    if finite(seconds) is None:
        return NONE
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{rest} s"
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def article(name: str) -> str:
    """A gru, an lstm: by how the name of a model is spoken."""
    return "An" if name.startswith(("lstm", "rnn", "a", "e", "i", "o", "mb")) else "A"


def setting(value: Any) -> str:
    """The value of a setting as YAML would write it."""
    words = {None: "none", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value)
