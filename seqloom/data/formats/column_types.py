"""Columns of a table: type, statistics from the training rows, and encoding of fields.

number    one value, scaled to mean 0 and deviation 1 over the training rows
yes       one value, 1 or 0
category  one value for each category, of which at most one is 1 (one-hot)
text      none: it goes through an encoder

Missing values are encoded as the mean of the training rows: 0 for a number, the share of yes for a yes/no, and no
category. An unseen category is encoded as none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from seqloom.data.tokenizers.tokenizers import normalize
from seqloom.errors import SeqloomError

KINDS = ("number", "yes", "category", "text")
YES = {"yes": True, "true": True, "1": True, "y": True, "是": True}
NO = {"no": False, "false": False, "0": False, "n": False, "否": False}
YES_NO = YES | NO
# Missing values of a number or yes/no. Elsewhere they are values: NA is Namibia.
MISSING = {"", "na", "n/a", "nan", "null", "none", "?", "-"}
MOSTLY = 0.95  # share of numbers from which a column is numeric, and other fields are mistakes
CATEGORIES, FEW = 1_000, 50  # most distinct values of a category column; the latter if they are long:
LONGEST = 3  # more words than this on average
CLASSES = 20  # most distinct whole numbers that are classes
MAX_NUMBER = 1e30  # beyond, squares and float32 overflow
MAX_DEVIATIONS = 1e6  # clipped, in deviations from the mean
NO_CATEGORY, UNSEEN_CATEGORY = -1, -2  # in place of the index of a category


@dataclass(frozen=True)
class Column:
    """One column, fitted to the training rows."""

    name: str
    kind: str
    mean: float = 0.0  # of a number; of a yes/no the share of yes
    deviation: float = 1.0  # of a number
    values: tuple[str, ...] = ()  # the categories; of a yes/no as they are written: no, yes
    flag: bool = False  # an extra value: 1 where the field is missing

    @property
    def width(self) -> int:
        """The number of values of an encoded field."""
        return len(self.labels)

    @property
    def labels(self) -> list[str]:
        """The name of each of its values."""
        if self.kind == "text":
            return []
        if self.kind == "category":
            return [f"{self.name}={value}" for value in self.values]
        return [self.name, f"{self.name} is missing"] if self.flag else [self.name]

    def problem(self, field: str) -> str | None:
        """Why a field is invalid in this column; None if it is valid."""
        if self.kind == "number" and not is_missing(field) and parse_number(field) is None:
            size = "is too large" if _float(field) is not None else "is no number"
            return f"column {self.name!r}: {field.strip()!r} {size}"
        if self.kind == "yes" and not is_missing(field) and parse_yes_no(field) is None:
            return f"column {self.name!r}: {field.strip()!r} is neither yes nor no"
        return None

    def encode(self, fields: Sequence[str]) -> np.ndarray:
        """[rows] float64, one number per valid field: scaled, 1 or 0, or the index of the category; NaN if missing."""
        if self.kind == "category":
            numbers = {value: place for place, value in enumerate(self.values)} | {"": NO_CATEGORY}
            return np.array([numbers.get(normalize_field(field), UNSEEN_CATEGORY) for field in fields], np.float64)
        read = parse_number if self.kind == "number" else parse_yes_no
        found = np.array([math.nan if is_missing(field) else read(field) for field in fields], np.float64)
        if self.kind == "yes":
            return found
        # Outliers must not overflow float32.
        return np.clip((found - self.mean) / self.deviation, -MAX_DEVIATIONS, MAX_DEVIATIONS)

    def dense(self, places: np.ndarray) -> np.ndarray:
        """[rows] as given by `encode` -> [rows, width] float32."""
        values = np.zeros((len(places), self.width), np.float32)
        if self.kind == "category":
            there = np.flatnonzero(places >= 0)
            values[there, places[there].astype(np.int64)] = 1
        elif self.kind != "text":
            gone = np.isnan(places)
            values[:, 0] = np.where(gone, self.mean if self.kind == "yes" else 0.0, places)
            if self.flag:
                values[:, 1] = gone
        return values

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "values": list(self.values)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Column:
        try:
            return cls(**{**value, "values": tuple(value["values"])})
        except (KeyError, TypeError) as error:
            raise SeqloomError(f"the stored columns are damaged: {type(error).__name__}: {error}") from error


def fit_column(name: str, kind: str, fields: Sequence[str], flags: bool = False) -> Column:
    """Fit a column of a known type to the training fields. `flags`: add a value for missing fields."""
    if kind == "category":
        return Column(name, kind, values=tuple(sorted({normalize_field(field) for field in fields} - {""})))
    if kind == "text":
        return Column(name, kind)
    filled = [field for field in fields if not is_missing(field)]
    flag = flags and len(filled) < len(fields)
    if kind == "number":
        found = np.array([parse_number(field) for field in filled] or [0.0], np.float64)
        mean, deviation = float(found.mean()), float(found.std())
        # Equal numbers may have a tiny deviation by rounding; dividing by it would amplify the rounding.
        return Column(name, kind, mean, deviation if deviation > 1e-12 * abs(mean) else 1.0, flag=flag)
    answers = [parse_yes_no(field) for field in filled]
    spelled = [_usual_spelling(filled, YES_NO[answer]) or answer for answer in ("no", "yes")]
    return Column(name, kind, sum(map(bool, answers)) / max(len(answers), 1), values=tuple(spelled), flag=flag)


def detect_type(fields: Iterable[str]) -> str | None:
    """The type of a column; None: every field is empty.

    yes: nothing but words for yes and no. number: at least 95 in 100 are numbers; the others are mistakes. category:
    values come twice or more on average, and there are at most 50 different ones, or 1,000 of at most three words on
    average. text: all else.
    """
    counts = Counter(map(normalize_field, fields))
    del counts[""]
    if not counts:
        return None
    filled = Counter({field: n for field, n in counts.items() if not is_missing(field)})
    if filled and all(parse_yes_no(field) is not None for field in filled):
        return "yes"
    numbers = sum(n for field, n in filled.items() if parse_number(field) is not None)
    if filled and numbers >= MOSTLY * filled.total():
        return "number"
    short = sum(len(field.split()) for field in counts) <= LONGEST * len(counts)
    few = len(counts) <= (CATEGORIES if short else FEW)
    return "category" if few and counts.total() >= 2 * len(counts) else "text"


def detect_target_type(fields: Iterable[str]) -> str | None:
    """The type of the target: a number, or classes if there are at most 20 distinct texts or whole numbers."""
    counts = Counter(map(normalize_field, fields))
    kind = detect_type(counts.elements())
    if kind in ("yes", "category") or len(counts) > CLASSES:
        return kind
    found = [parse_number(field) for field in counts]
    return "number" if any(value is not None and not value.is_integer() for value in found) else "category"


def normalize_field(field: str) -> str:
    return normalize(field).strip()


def is_missing(field: str) -> bool:
    """Whether a number or yes/no is missing; of other types only empty fields are."""
    return field.strip().casefold() in MISSING


def parse_number(field: str) -> float | None:
    """The number in a field, unless it is too large; else None."""
    value = _float(field)
    return value if value is not None and abs(value) <= MAX_NUMBER else None


def parse_yes_no(field: str) -> bool | None:
    """True for yes, False for no, else None."""
    return YES_NO.get(field.strip().casefold())


def _float(field: str) -> float | None:
    try:
        value = float(field)
    except ValueError:
        return None
    return None if "_" in field or math.isnan(value) else value  # Python would read 1_000


def _usual_spelling(fields: Sequence[str], answer: bool) -> str | None:
    """The most frequent spelling of yes, or of no."""
    written = Counter(normalize_field(field) for field in fields if parse_yes_no(field) is answer)
    return min(written, key=lambda text: (-written[text], text), default=None)
