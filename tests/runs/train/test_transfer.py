"""From one task to another: what a run begins with, what stays frozen, and that it can be resumed."""

from __future__ import annotations

import json

import pytest
import torch

import seqloom
from seqloom.documents import read_json
from seqloom.errors import SeqloomError
from seqloom.training.checkpoint import read_tensors
from tests.tasks.conftest import ANIMALS, FOODS, plain, sentences

__all__ = ["plain"]

MODEL = "model.safetensors"
SIDE = ("source.", "encoder.")


def quick(task, file, output, steps=2, **more):
    training = {"max_steps": steps, "batch_rows": 32, "valid_every": 2, **more.pop("training", {})}
    return seqloom.train(task, file, output=output, training=training, quiet=True, valid="10%", **more).folder


@pytest.fixture(scope="module")
def mask(plain, tmp_path_factory):
    return quick("mask", plain, tmp_path_factory.mktemp("mask") / "run", model="gru", size="tiny")


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    path = tmp_path_factory.mktemp("labelled") / "labelled.tsv"
    texts = sentences(80, seed=2)
    path.write_text("".join(f"{text}\t{'food' if {*FOODS} & {*text.split()} else 'animal'}\n" for text in texts))
    return path


@pytest.fixture(scope="module")
def tagged(tmp_path_factory):
    path = tmp_path_factory.mktemp("tagged") / "tagged.tsv"
    kinds = dict.fromkeys(ANIMALS, "A") | dict.fromkeys(FOODS, "F")
    lines = ("".join(f"{w}\t{kinds.get(w, 'O')}\n" for w in text.split()) + "\n" for text in sentences(80, seed=3))
    path.write_text("".join(lines))
    return path


def side(folder):
    found = read_tensors(folder / MODEL)
    return {name: tensor for name, tensor in found.items() if name.startswith(SIDE)}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_translations_begin_with_what_read_other_texts(mask, labelled, tmp_path):
    """The target's vocabulary is its own."""
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{text}\t{text.upper()[::-1]}\n" for text in sentences(60, seed=5)))
    labels = quick("classify", labelled, tmp_path / "labels", model="gru", size="tiny")
    for start in (mask, labels):
        run = quick(
            "translate", pairs, tmp_path / f"from-{start.name}", 1, start=start, training={"learning_rate": 1e-12}
        )
        now, before = side(run), side(start)
        assert {name for name in now if name in before and torch.allclose(now[name], before[name])} == before.keys()
        assert read_json(run / "source.json")["tokens"] == read_json(start / "source.json")["tokens"]
        assert seqloom.load(run, "cpu").predict(["the cat runs"])


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_a_masked_model_hands_over_all_that_reads_text(mask, labelled, tagged, tmp_path, task):
    """Frozen, it is bit for bit what it was, weight decay and averages notwithstanding."""
    file = labelled if task == "classify" else tagged
    training = {"freeze": "source,encoder", "average": 2, "weight_decay": 0.5}
    run = quick(task, file, tmp_path / "run", 6, start=mask, training=training)
    assert same(side(run), side(mask))
    last = sorted((run / "checkpoints").iterdir())[-1] / "weights.safetensors"
    frozen = {name: tensor for name, tensor in read_tensors(last).items() if name.startswith(SIDE)}
    assert same(frozen, side(mask))
    assert read_json(run / "source.json")["tokens"] == read_json(mask / "source.json")["tokens"]
    assert seqloom.load(run, "cpu").predict(["the cat runs"])


def test_without_freezing_it_is_trained_further(mask, labelled, tmp_path):
    run = quick("classify", labelled, tmp_path / "run", start=mask)
    assert not same(side(run), side(mask))
    assert {name: t.shape for name, t in side(run).items()} == {name: t.shape for name, t in side(mask).items()}


@pytest.mark.parametrize("task", ["generate", "vectors", "classify"])
def test_other_tasks_hand_over_too(plain, labelled, tagged, tmp_path, task):
    data = {"generate": {"tokens": "words"}, "vectors": {"min_count": 1}}.get(task)
    file = labelled if task == "classify" else plain
    base = quick(task, file, tmp_path / "base", data=data, size="tiny")
    target, other = ("tag", tagged) if task == "classify" else ("classify", labelled)
    run = quick(target, other, tmp_path / "run", start=base, training={"freeze": "source"})
    assert torch.equal(side(run)["source.weight"], side(base)["source.weight"])


def test_a_translator_hands_over_its_characters(run, labelled, tmp_path):
    tuned = quick("classify", labelled, tmp_path / "run", start=run, training={"freeze": "source,encoder"})
    assert same(side(tuned), side(run))


def test_a_run_that_took_over_can_be_resumed_exactly(mask, labelled, tmp_path):
    steady = {"training.schedule": "constant"}
    whole = quick("classify", labelled, tmp_path / "whole", 6, start=mask, settings=steady)
    parts = quick("classify", labelled, tmp_path / "parts", 4, start=mask, settings=steady)
    again = {"max_steps": 6}
    seqloom.train("classify", labelled, output=parts, training=again, resume=True, quiet=True)
    one, other = (sorted((folder / "checkpoints").iterdir())[-1] / "weights.safetensors" for folder in (whole, parts))
    assert same(read_tensors(one), read_tensors(other))


def test_what_belongs_to_the_vocabulary_cannot_be_chosen_again(mask, labelled, tmp_path):
    with pytest.raises(SeqloomError, match="brings its vocabularies: tokens stays words"):
        quick("classify", labelled, tmp_path / "run", start=mask, data={"tokens": "chars"})
    with pytest.raises(SeqloomError, match="unknown part of the model to freeze 'encodr'"):
        quick("classify", labelled, tmp_path / "run", start=mask, training={"freeze": "encodr"})
    assert not (tmp_path / "run").exists()


def test_a_run_that_does_not_fit_is_refused(labelled, tagged, run, tmp_path):
    with pytest.raises(SeqloomError, match="a translate run reads chars, and tag reads words"):
        quick("tag", tagged, tmp_path / "run", start=run)


def test_a_tagger_hands_over_its_encoder_if_that_reads_words_alone(labelled, tagged, tmp_path):
    spelling = quick("tag", tagged, tmp_path / "spelling", size="tiny")
    with pytest.raises(SeqloomError, match=r"reads characters beside the embedding .* --set characters=none"):
        quick("classify", labelled, tmp_path / "run", start=spelling)
    alone = quick("tag", tagged, tmp_path / "alone", size="tiny", settings={"characters": "none"})
    run = quick("classify", labelled, tmp_path / "run", start=alone, training={"freeze": "source,encoder"})
    assert same(side(run), side(alone))


def test_an_embedding_begins_with_vectors_of_a_file(plain, labelled, tmp_path):
    file = tmp_path / "vectors.txt"
    file.write_text("".join(f"{word} {' '.join(['0.5'] * 64)}\n" for word in (*ANIMALS, "the")))
    training = {"vectors": str(file), "freeze": "source"}
    run = quick("classify", labelled, tmp_path / "run", size="tiny", model="gru", training=training)
    tokens, table = read_json(run / "source.json")["tokens"], read_tensors(run / MODEL)["source.weight"]
    rows = {token: table[4 + number] for number, token in enumerate(tokens)}
    assert all((rows[word] == 0.5).all() for word in (*ANIMALS, "the"))
    assert not any((rows[word] == 0.5).any() for word in FOODS)
    with pytest.raises(SeqloomError, match="its vectors have 64 numbers, the model's embedding 128"):
        quick("classify", labelled, tmp_path / "other", training=training)


def test_the_run_says_where_it_came_from(mask, labelled, tmp_path):
    run = quick("classify", labelled, tmp_path / "run", start=mask)
    page = (run / "report.html").read_text()
    assert f"--from {mask}" in page
    record = json.loads((run / "evaluation-valid.json").read_text())
    assert record["metrics"]["accuracy"] >= 0
