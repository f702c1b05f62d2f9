"""The share held out has the size asked for and the labels' mix, whatever repeats; equal sources stay together."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest

from seqloom.data.files.columns import ReadOptions
from seqloom.data.prepare.pairs import DataOptions, prepare_pairs
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.splits.holdout import held_out_mask, keyed_hashes, sample_mask, source_codes
from seqloom.data.splits.split import Fold
from seqloom.errors import SeqloomError
from seqloom.tasks.registry import task as get_task

NEW = {"split_version": 2}


def repeated(count: int, seed: int = 0, rare: float = 0.088) -> list[tuple[str, str]]:
    """Sources that stand one to sixty times, each with one label, of which one is rare."""
    draw, found = random.Random(seed), []
    while len(found) < count:
        label = "rare" if draw.random() < rare else draw.choice(["one", "two"])
        found += [(f"text {len(found)} {draw.random()}", label)] * draw.choice([1, 1, 1, 2, 3, 8, 20, 60])
    draw.shuffle(found)
    return found[:count]


def files_of(name: str, examples: list[tuple[str, str]], folder) -> list[str]:
    """The examples as the data of a task."""
    if name == "tag":
        lines = ["".join(f"{word}\t{label}\n" for word in text.split()) + "\n" for text, label in examples]
    elif name == "table":
        lines = ["text,label\n", *(f"{text.replace(' ', '_')},{label}\n" for text, label in examples)]
    elif name == "generate":
        lines = [f"{label}\t{text}\n" for text, label in examples]
    else:
        lines = [f"{text}\t{label}\n" for text, label in examples]
    path = folder / ("data.csv" if name == "table" else "data.conll" if name == "tag" else "data.tsv")
    path.write_text("".join(lines))
    return [str(path)]


MORE = {"generate": {"condition": True}, "mask": {"columns": "1"}, "vectors": {"columns": "1"}}


def prepared(name, files, valid, folder, seed=7, **options):
    task = get_task(name)
    given = task.options(**{**MORE.get(name, {}), **NEW, **options})
    return task.prepare(PrepareRequest(files, valid, given, seed=seed, cache=folder / "cache"))


def sizes(ready) -> tuple[int, int]:
    texts = getattr(ready, "texts", ready)  # what is trained on may be made of the texts
    counts = [0 if part is None else len(part) for part in (texts.train, texts.valid)]
    return counts[0], counts[1]


@pytest.mark.parametrize("share", [0.05, 0.5])
@pytest.mark.parametrize("name", ["translate", "classify", "table", "tag", "generate", "mask", "vectors"])
def test_the_share_has_the_size_asked_for(name, share, tmp_path):
    files = files_of(name, repeated(1500), tmp_path)
    train, valid = sizes(prepared(name, files, share, tmp_path))
    assert abs(valid / (train + valid) - share) < 0.2 * share


@pytest.mark.parametrize("name", ["classify", "table", "generate"])
def test_a_rare_label_stays_as_rare(name, tmp_path):
    examples = repeated(3000, rare=0.05)
    ready = prepared(name, files_of(name, examples, tmp_path), 0.1, tmp_path)
    wanted = sum(label == "rare" for _, label in examples) / len(examples)
    if name == "generate":
        tokens = ready.valid.ids[ready.valid.offsets[:-1]] - ready.codec.size
        labels = [ready.labels[number] for number in tokens]
    else:
        labels = [one.targets[0] if name == "classify" else one.target for one in ready.validation_examples()]
    assert abs(Counter(labels)["rare"] / len(labels) - wanted) < 0.2 * wanted


def test_equal_sources_stand_on_one_side_in_any_order(tmp_path):
    examples = repeated(800)
    sides = []
    for seed in (0, 1):
        random.Random(seed).shuffle(examples)
        folder = tmp_path / str(seed)
        folder.mkdir()
        ready = prepared("classify", files_of("classify", examples, folder), 0.2, folder)
        held = Counter(one.source for one in ready.validation_examples())
        assert all(count == sum(text == source for text, _ in examples) for source, count in held.items())
        sides.append(held)
    assert sides[0] == sides[1]
    other = prepared("classify", files_of("classify", examples, tmp_path), 0.2, tmp_path, seed=8)
    assert Counter(one.source for one in other.validation_examples()) != sides[0]


def test_a_source_larger_than_the_share_is_spoken_of(tmp_path):
    path = tmp_path / "few.tsv"
    path.write_text("".join(f"{word}\tx\n" * 100 for word in "abcde"))
    ready = prepare_pairs(PrepareRequest([str(path)], 0.2, DataOptions(**NEW), seed=7, cache=tmp_path))
    assert len(ready.valid) == 100  # one of five, whichever it is
    ready = prepare_pairs(PrepareRequest([str(path)], 0.3, DataOptions(**NEW), seed=7, cache=tmp_path))
    told = "held out 200 of 500 pairs (40.0%) by source for validation, instead of the 30.0% asked for"
    assert f"{told}: examples with the same source stay together, and one source has 100 of them" in ready.notes or (
        "held out 100 of 500 pairs (20.0%)" in ready.notes[0] and "instead of the 30.0% asked for" in ready.notes[0]
    )


@pytest.mark.parametrize("labelled", [False, True])
def test_folds_are_of_one_size_and_hold_everything_once(labelled):
    examples = repeated(1000)
    found = keyed_hashes(source_codes([text for text, _ in examples]), "7")
    labels = np.array([label == "rare" for _, label in examples], np.int64) if labelled else None
    parts = [held_out_mask(found, 0.25, (number, 4), labels) for number in range(1, 5)]
    assert (sum(part.astype(int) for part in parts) == 1).all()
    assert all(abs(part.mean() - 0.25) < 0.05 for part in parts)


def test_folds_without_enough_sources_are_all_empty():
    found = keyed_hashes(np.array([1, 1, 2, 3], np.uint32), "7")
    assert not held_out_mask(found, 1 / 4, (1, 4)).any()
    assert all(held_out_mask(found, 1 / 3, (number, 3)).any() for number in (1, 2, 3))


def test_folds_of_a_task(tmp_path):
    files = files_of("classify", repeated(600), tmp_path)
    held = [prepared("classify", files, Fold(number, 3), tmp_path).validation_examples() for number in (1, 2, 3)]
    assert sum(map(len, held)) == 600
    assert len({one.line for part in held for one in part}) == 600


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5, 0.9])
def test_any_share_of_any_weights(share):
    draw = np.random.default_rng(3)
    for most in (1, 5, 40):
        found = np.repeat(keyed_hashes(np.arange(400, dtype=np.uint32), "7"), draw.integers(1, most + 1, 400))
        held = held_out_mask(found, share)
        assert abs(held.sum() - share * len(found)) <= most / 2 + 1e-9
        assert len({*found[held]} & {*found[~held]}) == 0


def test_many_labels_that_come_once_are_held_out_together():
    found = keyed_hashes(np.arange(5000, dtype=np.uint32), "7")
    assert held_out_mask(found, 0.05, labels=np.arange(5000)).sum() == 250


def test_the_size_comes_before_the_mix_where_the_sources_of_a_label_are_large():
    sizes = np.array([1] * 1000 + [300 + number % 7 for number in range(30)])
    labels = np.repeat(np.arange(len(sizes)) >= 1000, sizes).astype(np.int64)
    for seed in range(20):
        found = np.repeat(keyed_hashes(np.arange(len(sizes), dtype=np.uint32), f"{seed}"), sizes)
        for share in (0.05, 0.1):
            held = held_out_mask(found, share, labels=labels)
            assert abs(held.mean() - share) <= 0.2 * share


def test_older_runs_keep_their_share(tmp_path):
    """What was held out before, by these very lines; the numbers of the cache too."""
    files = files_of("translate", repeated(1500), tmp_path)
    options = DataOptions()
    assert options.split_version == 1
    ready = prepare_pairs(PrepareRequest(files, 0.05, options, seed=7, cache=tmp_path))
    key = ready.split.key.encode()
    assert all(ready.split._number(one.source, key) < 0.05 * 2**64 for one in ready.validation_examples())
    kept = sum(ready.split._number(text, key) >= 0.05 * 2**64 for text, _ in repeated(1500))
    assert kept == len(ready.train)


def test_a_sample_is_drawn_from_everywhere(tmp_path):
    examples = sorted(repeated(600), key=lambda one: one[1])
    for name in ("translate", "classify", "table", "tag", "generate", "mask"):
        files = files_of(name, examples, tmp_path)
        assert sum(sizes(prepared(name, files, 0.2, tmp_path, sample=100))) == 100
    ready = prepared("classify", files_of("classify", examples, tmp_path), 0.2, tmp_path, sample=100)
    assert len(ready.target.names) == 3
    assert "a fixed random sample of 100 of the training examples is used" in ready.notes
    other = prepared("classify", files_of("classify", examples, tmp_path), 0.2, tmp_path, sample=100, seed=8)
    lines = [sorted(one.source for one in each.prepared.validation_examples()) for each in (ready, other)]
    assert lines[0] != lines[1]  # another part of the same sample is held out
    with pytest.raises(SeqloomError, match="choose one"):
        ReadOptions(limit=3, sample=3)
    assert [sample_mask(np.array([5, 1, 1, 9], np.uint64), count).sum() for count in range(6)] == [0, 1, 2, 3, 4, 4]


def test_the_rules_are_checked():
    with pytest.raises(SeqloomError, match=r"data\.split_version is 1 or 2, not 3"):
        ReadOptions(split_version=3)
    assert json.dumps(asdict(ReadOptions()))
