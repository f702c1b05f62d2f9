"""Generated tasks: right answers, the same in every process."""

from __future__ import annotations

import hashlib
from datetime import date

from seqloom.data import generated, registry


def pairs(name, split="train"):
    return [(source, targets[0]) for source, targets in registry.find(name).examples(split)]


def test_answers_are_right():
    assert all(source == target for source, target in pairs("copy", "valid"))
    assert all(source[::-1] == target for source, target in pairs("reverse", "valid"))
    for source, target in pairs("recall", "valid"):
        facts, _, asked = source.partition("?")
        assert dict(zip(facts[::2], facts[1::2], strict=True))[asked] == target


def test_adding_is_that_of_the_paper():
    for numbers, answer in registry.find("adding").examples("test"):
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
    texts = [generated.written(day, form) for form in generated.FORMATS]
    assert len(set(texts)) == len(texts)
    for text in ("3.11.2026", "11/3/2026", "the 3rd of November 2026", "Tue, 03 Nov 2026", "3 novembre 2026"):
        assert text in texts
    assert {"2026年11月3日", "二〇二六年十一月三日"} <= set(texts)
    assert generated.written(date(2030, 10, 30), generated.FORMATS[-1]) == "二〇三〇年十月三十日"


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
