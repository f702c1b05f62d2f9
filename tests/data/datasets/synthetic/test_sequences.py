"""Generated tasks: right answers, the same in every process."""

from __future__ import annotations

import hashlib
from datetime import date

import pytest

from seqloom.data.datasets import catalog
from seqloom.data.datasets.synthetic import sequences


def pairs(name, split="train"):
    return [(source, targets[0]) for source, targets in catalog.find(name).examples(split)]


def test_answers_are_right():
    assert all(source == target for source, target in pairs("copy", "valid"))
    assert all(source[::-1] == target for source, target in pairs("reverse", "valid"))
    for source, target in pairs("recall", "valid"):
        facts, _, asked = source.partition("?")
        assert dict(zip(facts[::2], facts[1::2], strict=True))[asked] == target


def test_adding_is_that_of_the_paper():
    for numbers, answer in catalog.find("adding").examples("test"):
        marked = [step for step, marker in enumerate(numbers[:, 1]) if marker == 1]
        assert 50 <= len(numbers) <= 55
        assert len(marked) == 2
        assert marked[0] < 10
        assert marked[1] < len(numbers) / 2
        assert numbers[-1, 1] == -1
        assert abs(answer - 0.5 - sum(float(numbers[step, 0]) for step in marked if step) / 4) < 1e-6
        assert 0 <= answer <= 1


def test_every_way_to_write_a_date():
    day = date(2026, 11, 3)
    texts = [sequences.written(day, form) for form in sequences.FORMATS]
    assert len(set(texts)) == len(texts)
    for text in ("3.11.2026", "11/3/2026", "the 3rd of November 2026", "Tue, 03 Nov 2026", "3 novembre 2026"):
        assert text in texts
    assert {"2026年11月3日", "二〇二六年十一月三日"} <= set(texts)
    assert sequences.written(date(2030, 10, 30), sequences.FORMATS[-1]) == "二〇三〇年十月三十日"


def test_a_date_has_one_meaning_and_one_split():
    splits = [pairs("dates", split) for split in ("train", "valid", "test")]
    everything = dict(pair for split in splits for pair in split)
    assert len(everything) == 22_000
    days = [{target for _, target in split} for split in splits]
    assert sum(map(len, days)) == len(set.union(*days))


def test_they_never_change():
    """If this fails, everybody's scores on these sets mean something else: raise `registry.LAYOUT` and say so."""
    said = {name: hashlib.sha256(repr(pairs(name, "test")).encode()).hexdigest()[:8] for name in SUMS}
    assert said == SUMS


SUMS = {"copy": "7923be4a", "reverse": "74ea0f76", "recall": "676611d2", "dates": "3fbc893a"}


def test_houses_follow_their_rule():
    """What is left of the price after the rule is the noise: within 30, and about 10 on average."""
    rows = [row for split in ("train", "valid", "test") for row in catalog.find("houses").examples(split)]
    assert len({tuple(row.items()) for row in rows}) == len(rows) == 5_000
    assert rows == [row for split in ("train", "valid", "test") for row in catalog.find("houses").examples(split)]
    assert 0.08 < sum(row["age"] is None for row in rows) / len(rows) < 0.12
    left = []
    for row in rows:
        if row["age"] is None:
            continue
        told, place = row["note"].split(", "), sequences.DISTRICTS.index(row["district"])
        price = 100 + row["area"] * (1.2 if "needs repair" in told else 1.8) - 0.6 * min(row["age"], 60)
        garden = (40 if place < 3 else 20) if row["garden"] == "yes" else 0
        left.append(row["price"] - price - 12 * (8 - place) - garden - sum(map(sequences.WORDS.get, told)))
    assert max(map(abs, left)) < 30.1
    assert (sum(each**2 for each in left) / len(left)) ** 0.5 == pytest.approx(10, abs=0.5)
