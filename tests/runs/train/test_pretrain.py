"""`mask` and `vectors` from command to run folder: train, resume, predict, evaluate, report."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import seqloom
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.documents import read_json
from seqloom.errors import SeqloomError
from seqloom.tasks.mask.model import MaskModel
from seqloom.tasks.shared.embeddings import Embedder
from seqloom.tasks.vectors.model import VectorModel
from seqloom.training.checkpoint import read_tensors
from tests.tasks.conftest import plain, sentences

__all__ = ["plain"]

SMALL = {"batch_rows": 32, "learning_rate": 5e-3, "warmup": 10}


def train(task, file, output, steps, resume=False, **more):
    training = {"max_steps": steps, "valid_every": 5, **SMALL}
    if resume:
        return seqloom.train(task, file, output=output, training=training, resume=True, quiet=True)
    return seqloom.train(task, file, output=output, training=training, size="tiny", quiet=True, valid="10%", **more)


def test_mask_from_text_to_filled_gaps(plain, tmp_path):
    run = train("mask", plain, tmp_path / "run", 150, model="gru")
    assert {"loss", "perplexity", "accuracy"} <= run.best["scores"].keys()
    model = run.load("cpu")
    assert isinstance(model, MaskModel)
    assert model.predict(["the cat runs over the <mask>"]) == ["the cat runs over the hill"]
    assert model.evaluate(plain).metrics["accuracy"] > 40
    record = json.loads((run.folder / "evaluation-valid.json").read_text())
    assert record["masks"]
    assert "perplexity" in (run.folder / "report.html").read_text()
    config = (run.folder / "config.yaml").read_text()
    assert "mask_rate: 0.15" in config


def test_vectors_from_text_to_like_words(plain, tmp_path):
    run = train("vectors", plain, tmp_path / "run", 30, data={"min_count": 1})
    model = run.load("cpu")
    assert isinstance(model, VectorModel)
    assert model.predict(["cat"])[0] in " ".join(sentences(400)).split()
    assert (run.folder / "report.html").exists()


@pytest.mark.parametrize("task", ["mask", "vectors"])
def test_a_resumed_run_ends_like_one_that_was_never_stopped(plain, tmp_path, task):
    more = {"data": {"min_count": 1}}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(task, plain, whole, 15, settings={"training.schedule": "constant"}, **more)
    train(task, plain, parts, 10, settings={"training.schedule": "constant"}, **more)
    train(task, plain, parts, 15, resume=True)
    one, other = read_tensors(whole / "model.safetensors"), read_tensors(parts / "model.safetensors")
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    lines = [(folder / "metrics.jsonl").read_text().splitlines() for folder in (whole, parts)]
    scores = [[json.loads(line).get("valid") for line in each] for each in lines]
    assert scores[0] == scores[1]


def test_labels_are_left_where_they_are(tmp_path):
    file = tmp_path / "reviews.tsv"
    file.write_text("".join(f"{text}\tpositive\n" for text in sentences(60)))
    run = train("mask", file, tmp_path / "run", 2)
    tokens = json.loads((run.folder / "source.json").read_text())["tokens"]
    assert "hill" in tokens
    assert "positive" not in tokens


def test_without_validation_the_last_model_is_kept(plain, tmp_path):
    for task in ("mask", "vectors"):
        run = seqloom.train(
            task, plain, output=tmp_path / task, size="tiny", valid="0%", training={"max_steps": 2}, quiet=True
        )
        assert (run.folder / "model.safetensors").exists()


def test_unknown_settings_are_named(plain, tmp_path):
    with pytest.raises(SeqloomError, match="'source_tokens'; did you mean"):
        seqloom.train("mask", plain, output=tmp_path / "run", data={"source_tokens": "chars"})


def test_texts_of_every_run_with_an_encoder_have_vectors(plain, tmp_path):
    """Also of language models, by the states from which they would go on; a word's characters are not text."""
    masked = train("mask", plain, tmp_path / "mask", 2)
    written = train("generate", plain, tmp_path / "generate", 2, data={"tokens": "words"})
    for run in (masked, written):
        made = Embedder.of(run.load("cpu"), Codec.from_json(read_json(run.folder / "source.json")))
        texts = ["the cat runs", "the cat runs over the hill", "a"]
        together, alone = made.matrix(texts), [made.matrix([text])[0] for text in texts]
        assert np.allclose(together, alone, atol=1e-5)
    tagged = tmp_path / "tagged.tsv"
    tagged.write_text("".join("".join(f"{word}\tX\n" for word in text.split()) + "\n" for text in sentences(40)))
    run = train("tag", tagged, tmp_path / "tag", 2)
    with pytest.raises(SeqloomError, match="its encoder reads words with their characters"):
        Embedder.of(run.load("cpu"), Codec.from_json(read_json(run.folder / "source.json")))
