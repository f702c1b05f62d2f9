"""mask and vectors on the command line: train, predict, evaluate, and wrong inputs."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import one_line
from tests.tasks.conftest import plain

__all__ = ["plain"]


@pytest.fixture
def gaps(tmp_path):
    file = tmp_path / "gaps.txt"
    file.write_text("the cat runs over the <mask>\n\nwe <mask> rice with <mask>\n")
    return file


def test_mask(seqloom, plain, gaps, tmp_path):
    run = tmp_path / "run"
    words = ("--model", "gru", "--size", "tiny", "--tokens", "words", "--batch-rows", 64)
    words += ("--rate", "5e-3", "--set", "training.warmup=10", "--set", "training.valid_every=60")
    assert seqloom("train", "mask", plain, *words, "--max-steps", 120, "--quiet", "-o", run)[0] == 0
    status, out, _ = seqloom("predict", run, gaps)
    assert status == 0
    assert out.splitlines() == ["the cat runs over the hill", "", "we eat rice with salt"]
    _, out, _ = seqloom("predict", run, gaps, "--n-best", 3)
    assert [line.split("\t")[0] for line in out.splitlines()] == ["1", "1", "1", "2", "3", "3", "3"]
    status, out, err = seqloom("evaluate", run, plain, "--json")
    assert status == 0, err
    assert json.loads(out)["metrics"].keys() == {"accuracy", "perplexity", "loss"}
    one_line(seqloom("predict", run, gaps, "--sample"), "leave --sample out")
    one_line(seqloom("evaluate", run, plain, "--metrics", "bleu"), "accuracy, loss, perplexity")


def test_vectors(seqloom, plain, tmp_path):
    run, words = tmp_path / "run", tmp_path / "words.txt"
    words.write_text("cat\nzyx\n")
    how = ("--size", "tiny", "--min-count", 1, "--max-steps", 4, "--quiet")
    assert seqloom("train", "vectors", plain, *how, "-o", run)[0] == 0
    status, out, _ = seqloom("predict", run, words, "--n-best", 2)
    assert status == 0
    assert [line.split("\t")[0] for line in out.splitlines()] == ["1", "1", "2"]
    status, out, err = seqloom("evaluate", run, plain)
    assert status == 0, err
    assert "loss" in out


def test_wrong_inputs(seqloom, plain, tmp_path):
    one_line(seqloom("train", "mask", tmp_path / "none.txt", "-o", tmp_path / "run"), "none.txt: no such file")
    one_line(
        seqloom("train", "mask", plain, "--set", "data.mask_rate=2", "-o", tmp_path / "run"),
        "above 0 and below 1, here 2",
    )
    one_line(seqloom("train", "mask", "pinyin", "-o", tmp_path / "run"), "for the task translate, not for mask")
    one_line(seqloom("train", "vectors", plain, "--model", "gru", "-o", tmp_path / "run"), "unknown model 'gru'")
