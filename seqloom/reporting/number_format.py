"""Numbers as readers see them. What is missing or not finite is a dash."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from seqloom.language import _

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
    """12.35; 1.2e+09 for numbers of more than seven digits."""
    if finite(value) is None:
        return NONE
    return f"{value:.1e}" if abs(value) >= 1e7 else f"{value:,.{places}f}"


def short(value: Any, figures: int = 3) -> str:
    """1.3 M, 45.2 k, 871: for headlines and axes."""
    if finite(value) is None:
        return NONE
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.{figures}g} {letter}"
    return f"{value:.{figures}g}"


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Each tick of an axis, rising, with as many figures as its distance from the next needs: 2.875, 2.880, 2.885."""
    gap = min((after - before for before, after in pairwise(ticks)), default=math.inf)
    fine = (n for n in range(3, 15) if all(abs(float(f"{tick:.{n}g}") - tick) <= gap / 100 for tick in ticks))
    labels = [short(tick, next(fine, 15)) for tick in ticks]
    if not all(re.fullmatch(r"-?\d+(\.\d+)?", text) for text in labels):
        return labels
    places = max(len(text.partition(".")[2]) for text in labels)
    return [f"{tick:.{places}f}" if tick else "0" for tick in ticks]


def duration(seconds: Any) -> str:
    """48 s, 3 min 20 s, 2 h 05 min"""
    if finite(seconds) is None:
        return NONE
    if seconds < 10:
        return _("{seconds} s", seconds=f"{seconds:.1f}")
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 1:
        return _("{seconds} s", seconds=rest)
    if minutes < 60:
        return _("{minutes} min {seconds} s", minutes=minutes, seconds=f"{rest:02d}")
    return _("{hours} h {minutes} min", hours=f"{minutes // 60:,}", minutes=f"{minutes % 60:02d}")


# Parts of models' names as papers write them.
PAPER_NAMES = {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM", "lstmn": "LSTMN", "mlp": "MLP", "crf": "CRF", "awd": "AWD"}
PAPER_NAMES |= {"mingru": "minGRU", "minlstm": "minLSTM", "transformer": "Transformer"}


def article(name: str) -> str:
    """A GRU, an LSTM: by how the name of a model is pronounced."""
    vowels = ("lstm", "mlp", "ngram", "rnn", "a", "e", "i", "o", "mb")
    return "An" if name.casefold().startswith(vowels) else "A"


def display_name(name: str) -> str:
    """The name of a preset as papers write it: LSTM-attention; the name of a file stays as it is."""
    if "." in name or "/" in name:
        return name
    return re.sub(r"[a-z]+", lambda part: PAPER_NAMES.get(part[0], part[0]), name)


def setting_text(value: Any) -> str:
    """The value of a setting as YAML would write it."""
    words = {None: "none", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value)
