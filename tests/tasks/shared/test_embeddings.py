"""Vectors of texts, what is near, and how often pairs find each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import seqloom
from seqloom.data.batches.collate import pad
from seqloom.data.tokenizers.tokenizers import EOS
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.documents import read_json
from seqloom.errors import SeqloomError
from seqloom.tasks.shared import embeddings
from seqloom.tasks.shared.embeddings import Embedder, nearest, recall
from tests.conftest import words


@pytest.fixture
def embedder(run):
    def make(*how):
        codec = Codec.from_json(read_json(run / "source.json"))
        return Embedder.of(seqloom.load(run, "cpu"), codec, *how)

    return make


def test_a_vector_is_the_mean_of_the_encoders_states(embedder):
    made = embedder()
    with torch.inference_mode():
        rows = pad([[*made.codec.encode("abcab"), EOS]])
        states, summary = made.model.read(rows).states[0], made.model.read(rows).summary[0].numpy()
    assert np.allclose(made.matrix(["abcab"])[0], states.mean(0).numpy(), atol=1e-6)
    assert np.allclose(embedder("summary").matrix(["abcab"])[0], summary, atol=1e-6)
    assert np.allclose(embedder("mean", 1).matrix(["abcab"]), made.matrix(["abcab"]), atol=1e-6)  # it has one layer


def test_neighbours_in_the_batch_do_not_change_a_vector(embedder):
    made, texts = embedder(), [*words(30, seed=9), "", "a"]
    together = made.matrix(texts)
    alone = np.stack([next(iter(made([text]))) for text in texts])
    assert np.allclose(together, alone, atol=1e-5)
    assert np.allclose(np.stack(list(made(texts, rows=1))), together, atol=1e-5)


def test_what_does_not_fit_is_said(embedder, run):
    with pytest.raises(SeqloomError, match="unknown way to embed 'means'; did you mean 'mean'"):
        embedder("means")
    with pytest.raises(SeqloomError, match="the encoder has layers 1 to 1"):
        embedder("mean", 5).matrix(["a"])
    with pytest.raises(SeqloomError, match="--layer chooses states"):
        embedder("summary", 1)
    bare = type("Bare", (), {"model": torch.nn.Linear(1, 1), "folder": run, "config": {"data": {}}})
    with pytest.raises(SeqloomError, match="has no encoder of texts"):
        Embedder.of(bare(), Codec.build("chars", ["a"]))


@pytest.mark.parametrize("block", [3, 1000])
def test_the_nearest_are_those_of_all_cosines(monkeypatch, block):
    monkeypatch.setattr(embeddings, "QUERY_BLOCK", block)
    random = np.random.default_rng(1)
    ours, theirs = random.normal(size=(10, 5)).astype(np.float32), random.normal(size=(25, 5)).astype(np.float32)

    def cosine(a, b):
        return a @ b.T / np.linalg.norm(a, axis=1)[:, None] / np.linalg.norm(b, axis=1)

    found = nearest(ours, theirs, 4)
    every = cosine(ours, theirs)
    assert found.rows.tolist() == np.argsort(-every, 1)[:, :4].tolist()
    assert np.allclose(found.cosines, -np.sort(-every, 1)[:, :4], atol=1e-6)
    every = cosine(theirs, theirs)
    np.fill_diagonal(every, -2)
    assert nearest(theirs, theirs, 3, same=True).rows.tolist() == np.argsort(-every, 1)[:, :3].tolist()


def test_recall_counts_pairs_that_find_each_other():
    left = np.eye(20, dtype=np.float32)
    assert recall(left, left) == {"recall@1": 100.0, "recall@10": 100.0}
    right = left.copy()
    right[[0, 1]] = right[[1, 0]]  # two pairs are crossed
    assert recall(left, right, at=(1, 20)) == {"recall@1": 90.0, "recall@20": 100.0}
    with pytest.raises(SeqloomError, match="20 texts on one side and 19 on the other"):
        recall(left, left[:-1])
    with pytest.raises(SeqloomError, match="at least 1, here 0"):
        nearest(left, left, 0)
    with pytest.raises(SeqloomError, match="no other line"):
        nearest(left[:1], left[:1], 1, same=True)
