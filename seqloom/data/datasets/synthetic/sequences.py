"""Tasks that are generated, always the same: nothing to download, and any model can be seen to learn or to fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from random import Random
from typing import Any

from seqloom.data.datasets.dataset import Dataset
from seqloom.data.datasets.from_packages import hash_fraction

LETTERS = "abcdefghijklmnopqrstuvwxyz"
Pair = tuple[str, tuple[str, ...]]


class Draw:
    """Numbers from a seed. Only `Random.random` is used: Python promises that it stays the same in every version."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random

    def whole(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return low + int(self._random() * (high - low + 1))

    def one(self, choices: Any) -> Any:
        return choices[self.whole(0, len(choices) - 1)]

    def between(self, low: float, high: float) -> float:
        return low + self._random() * (high - low)


def copy(dataset: Dataset, split: str) -> Iterator[Pair]:
    """5 to 20 letters, to be written again (Graves et al. 2014, section 4.1)."""
    return _distinct(dataset, split, 1, lambda draw: (text := _letters(draw, 5, 20), text))


def reverse(dataset: Dataset, split: str) -> Iterator[Pair]:
    """5 to 20 letters, to be written from behind (Grefenstette et al. 2015, section 4.1)."""
    return _distinct(dataset, split, 2, lambda draw: (text := _letters(draw, 5, 20), text[::-1]))


def recall(dataset: Dataset, split: str) -> Iterator[Pair]:
    """Letters with a digit each, then one of the letters: "c9k8j3f1?j" -> "3" (Ba et al. 2016, section 4.1)."""
    return _distinct(dataset, split, 3, _recall)


def _recall(draw: Draw) -> tuple[str, str]:
    keys = list(dict.fromkeys(_letters(draw, 4, 12)))
    values = [str(draw.whole(0, 9)) for _ in keys]
    asked = draw.whole(0, len(keys) - 1)
    return "".join(map("".join, zip(keys, values, strict=True))) + "?" + keys[asked], values[asked]


def _letters(draw: Draw, low: int, high: int) -> str:
    return "".join(draw.one(LETTERS) for _ in range(draw.whole(low, high)))


def _distinct(dataset: Dataset, split: str, seed: int, make: Callable[[Draw], tuple[str, str]]) -> Iterator[Pair]:
    """As many pairs as the split has, after those of the splits before it; no source twice in all of them."""
    draw, seen = Draw(seed), set()
    for name, size in dataset.sizes.items():
        for _ in range(size):
            source, target = make(draw)
            while source in seen:
                source, target = make(draw)
            seen.add(source)
            if name == split:
                yield source, (target,)
        if name == split:
            return


def permutation(size: int, seed: int) -> list[int]:
    """0 … size − 1 in an order of the seed's own, each as likely (Fisher & Yates 1938)."""
    draw, order = Draw(seed), list(range(size))
    for last in range(size - 1, 0, -1):
        other = draw.whole(0, last)
        order[last], order[other] = order[other], order[last]
    return order


def adding(dataset: Dataset, split: str) -> Iterator[tuple[Any, float]]:
    """Numbers and markers [50 to 55, 2]; the answer is 1/2 + (a + b)/4 of the two that are marked 1.

    Hochreiter and Schmidhuber 1997, experiment 4. The first and the last have the marker -1, the others 0; one marked
    number is among the first ten, the other in the first half. If the very first is marked, its number counts as 0.
    """
    import numpy as np

    draw = Draw(4)
    for name, size in dataset.sizes.items():
        for _ in range(size):
            steps = draw.whole(50, 55)
            numbers = np.array([[draw.between(-1, 1), 0] for _ in range(steps)], np.float32)
            numbers[[0, -1], 1] = -1
            first = draw.whole(0, 9)
            second = draw.one([step for step in range(steps // 2 - 1) if step != first])
            numbers[[first, second], 1] = 1
            total = sum(float(numbers[step, 0]) for step in (first, second) if step)
            if name == split:
                yield numbers, 0.5 + total / 4


DISTRICTS = ("Harbour", "Old Town", "Mill Lane", "Park Side", "Station", "Hill Top", "River Bend", "North Gate")
# What a description mentions of a house, and what that adds to its price, in thousands.
WORDS = {
    "renovated kitchen": 30,
    "needs repair": -40,
    "quiet street": 15,
    "busy road": -20,
    "view of the river": 35,
    "large balcony": 12,
    "near the school": 8,
    "dark rooms": -15,
}


def houses(dataset: Dataset, split: str) -> Iterator[dict[str, Any]]:
    """Houses with their prices: a sum of what their parts are worth (Rosen 1974), but for two things that no sum can
    say, and noise of about 10 either way.

    In thousands: 1.8 an m² (1.2 where it needs repair), 20 for a garden (twice that in the first three districts), 12 a
    district from the last to the first, −0.6 a year of age as far as 60, and WORDS. One age in ten is missing.
    """
    draw = Draw(6)
    for name, size in dataset.sizes.items():
        for _ in range(size):
            row = _house(draw)
            if name == split:
                yield row


def _house(draw: Draw) -> dict[str, Any]:
    area, age, garden = draw.whole(30, 180), draw.whole(0, 110), draw.whole(0, 2) == 0
    place = draw.whole(0, len(DISTRICTS) - 1)
    mentioned = list(dict.fromkeys(draw.one(list(WORDS)) for _ in range(draw.whole(1, 3))))
    price = area * (1.2 if "needs repair" in mentioned else 1.8) - 0.6 * min(age, 60)
    price += (
        12 * (len(DISTRICTS) - place) + 20 * garden * (2 if place < 3 else 1) + sum(WORDS[word] for word in mentioned)
    )
    price += sum(draw.between(-10, 10) for _ in range(3))
    return {
        "area": area,
        "age": None if draw.whole(1, 10) == 1 else age,
        "garden": "yes" if garden else "no",
        "district": DISTRICTS[place],
        "note": ", ".join(mentioned),
        "price": round(100 + price, 1),
    }


MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
}
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
FIRST, COUNT = date(1900, 1, 1), 73_049  # up to the end of 2099
FORMATS = (
    "{day}.{month}.{year}",  # with points the day comes first, with strokes the month: no date has two meanings
    "{day:02}.{month:02}.{year}",
    "{month}/{day}/{year}",
    "{month:02}/{day:02}/{year}",
    "{year}/{month}/{day}",
    "{year}{month:02}{day:02}",
    "{day} {en} {year}",
    "{day}{th} {en} {year}",
    "{en} {day}, {year}",
    "{en} {day}{th}, {year}",
    "the {day}{th} of {en} {year}",
    "{weekday}, {en} {day}, {year}",
    "{weekday:.3}, {day:02} {en:.3} {year}",
    "{day:02}-{en:.3}-{year}",
    "{day}. {de} {year}",
    "{day} {fr} {year}",
    "{year}年{month}月{day}日",
    "{year_zh}年{month_zh}月{day_zh}日",
)


def dates(dataset: Dataset, split: str) -> Iterator[Pair]:
    """Days from 1900 to 2099 as people write them, to be written as ISO 8601 (1988) does; each is in one split."""
    draw, seen = Draw(5), set()
    while len(seen) < dataset.sizes[split]:
        day, form = FIRST + timedelta(draw.whole(0, COUNT - 1)), draw.one(FORMATS)
        number = hash_fraction(day.isoformat())
        home = "test" if number < 0.05 else "valid" if number < 0.1 else "train"
        text = written(day, form)
        if home == split and text not in seen:
            seen.add(text)
            yield text, (day.isoformat(),)


def written(day: date, form: str) -> str:
    """A day in one of FORMATS."""
    names = {language: months.split()[day.month - 1] for language, months in MONTHS.items()}
    return form.format(
        day=day.day,
        month=day.month,
        year=day.year,
        weekday=DAYS.split()[day.weekday()],
        th="th" if 10 < day.day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th"),
        year_zh="".join("〇一二三四五六七八九"[int(digit)] for digit in str(day.year)),
        month_zh=_chinese(day.month),
        day_zh=_chinese(day.day),
        **names,
    )


def _chinese(number: int) -> str:
    """1 … 31 in words: 二十一."""
    tens, ones = divmod(number, 10)
    return ("", "十", "二十", "三十")[tens] + ("", *"一二三四五六七八九")[ones]
