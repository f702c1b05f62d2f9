"""Word vectors: learned, read from files, put into models, written out."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import seqloom
from seqloom.build import build, complete
from seqloom.data.files.columns import ReadOptions
from seqloom.data.formats.word_vectors import read_vectors, write_vectors
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.tokenizers.tokenizers import SPECIALS
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError
from seqloom.tasks.shared import pretrained_vectors
from seqloom.tasks.shared.predictor import LoadedRun
from seqloom.tasks.vectors import presets as vectors_presets
from seqloom.tasks.vectors.task import TASK, VectorOptions
from seqloom.training.distributed.processes import ALONE
from seqloom.training.loop import Loop
from seqloom.training.settings import Training
from tests.tasks.conftest import ANIMALS, FOODS

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def ready(plain):
    return TASK.prepare(PrepareRequest([str(plain)], 0.1, VectorOptions(subsample=0.05), seed=3))


@pytest.fixture(scope="module")
def likeness(ready, tmp_path_factory):
    settings = Training.of({"epochs": 60, "batch_tokens": 512, "learning_rate": 3e-2, "clip": 0.0, "weight_decay": 0.0})
    config = {"task": "vectors", "data": asdict(VectorOptions(subsample=0.05))}
    torch.manual_seed(1)
    model = build(TASK.models, {"kind": "skipgram", "embedding": 16}, **TASK.sizes(ready.vocabularies()))
    objective = TASK.objective(model, settings, config)
    judge = TASK.validator(model, ready, config, CPU)
    before = judge(objective, settings, ALONE)["loss"]
    list(Loop(objective, ready.train, settings, CPU))
    after = judge(objective, settings, ALONE)["loss"]
    assert after < 0.9 * before
    assert after == judge(objective, settings, ALONE)["loss"]
    return TASK.runner(LoadedRun(tmp_path_factory.mktemp("vectors"), config, model, ready.vocabularies(), CPU))


def test_words_in_like_places_are_near(likeness):
    """Every animal is nearer to every other than to any food, and the other way round."""
    units = likeness._units[[likeness.codec.token_id(word) for word in (*ANIMALS, *FOODS)]]
    cosine, n = units @ units.T, len(ANIMALS)
    alike, unlike = torch.cat([cosine[:n, :n], cosine[n:, n:]]), torch.cat([cosine[:n, n:], cosine[n:, :n]])
    assert alike.min() > 0.5
    assert unlike.max() < alike.min() - 0.2


def test_the_words_most_like_a_word_come_first(likeness):
    [answers] = likeness.answers(["cat"], Search(beam=4, n_best=4))
    scores = [answer.score for answer in answers]
    assert scores == sorted(scores, reverse=True)
    assert "cat" not in {answer.text for answer in answers}
    assert {answer.text for answer in answers} & {*ANIMALS}


def test_what_is_asked_of_unknown_words(likeness):
    assert likeness.predict(["zyx", ""]) == ["", ""]
    assert likeness.predict(["cat zyx"]) == likeness.predict(["cat"])


def test_pairs_are_neighbours_within_one_text(ready):
    windows = ready.train
    rows = np.arange(40)
    batch = windows.batch(rows)
    assert windows.count(rows) == len(batch.centre) == len(batch.others)
    assert sum(windows.count(rows[i : i + 1]) for i in rows) == len(batch.centre)
    texts = [windows.texts.ids[slice(*windows.texts.offsets[row : row + 2])].tolist() for row in range(40)]
    together = {(a, b) for text in texts for a in text for b in text}
    assert set(zip(batch.centre.tolist(), batch.others[:, 0].tolist(), strict=True)) <= together
    assert batch.others.min() >= len(SPECIALS)
    assert batch.others.shape[1] == 6


def test_the_same_numbers_whatever_the_batch_and_others_in_another_epoch(ready):
    windows = ready.train
    whole, part = windows.batch(np.arange(10)), windows.batch(np.arange(5, 10))

    def pairs(batch):
        return {(centre, *others) for centre, others in zip(batch.centre.tolist(), batch.others.tolist(), strict=True)}

    assert pairs(part) <= pairs(whole)
    later = windows.plan(seed=1, epoch=2, batch_tokens=None, batch_rows=10)
    assert later.order.min() == 2 * len(windows)
    assert sorted(later.order % len(windows)) == list(range(len(windows)))
    assert pairs(windows.batch(np.arange(10) + 2 * len(windows))) != pairs(whole)
    assert len(windows.costs(later)) == len(later)


def test_frequent_words_are_thinned_and_seldom_ones_drawn_more_often(ready):
    windows = ready.train
    counts = np.bincount(windows.texts.ids, minlength=len(windows.keep_probability)).astype(float)
    counts[: len(SPECIALS)] = 0
    centres = np.bincount(windows.batch(np.arange(len(windows))).centre, minlength=len(counts))
    often = np.argmax(counts)
    assert centres[often] / centres.sum() < counts[often] / counts.sum()
    share = np.diff(windows.negative_cdf, prepend=0.0)
    assert np.allclose(share, counts**0.75 / (counts**0.75).sum())


def test_a_text_of_thinned_words_still_counts(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("x y\n" * 50 + "z\n")
    ready = TASK.prepare(PrepareRequest([str(file)], 0.0, VectorOptions(min_count=1, subsample=1e-9), seed=1))
    assert ready.train.count(np.arange(50)) == 100
    assert len(ready.train) == 50  # alone, z has no neighbour


def test_nothing_to_learn(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("one two three\n")
    with pytest.raises(SeqloomError, match=r"lower --min-count or give more text"):
        TASK.prepare(PrepareRequest([str(file)], 0.0, VectorOptions(), seed=1))
    with pytest.raises(SeqloomError, match=r"data\.window must be a whole number of 1 or more"):
        VectorOptions(window=0)
    with pytest.raises(SeqloomError, match=r"data\.subsample.*above 0"):
        VectorOptions(subsample=0.0)


def test_scores_and_record(likeness, plain):
    found = likeness.evaluate(plain)
    assert 0 < found.metrics["loss"] < 4.0
    assert found == likeness.evaluate([plain])
    examples, _ = likeness.read([str(plain)], ReadOptions())
    record = likeness.evaluation_details(examples)
    assert json.loads(json.dumps(record)) == record
    assert len(record["alike"]) == min(20, len(likeness.codec.tokens))


@pytest.mark.parametrize("size", ["tiny", "small", "base"])
def test_presets(size):
    config = complete(TASK.models, {"kind": "skipgram", **vectors_presets.preset("skipgram", size)})
    assert build(TASK.models, config, source_size=5).source.embedding_dim == config["embedding"]
    Training.of(vectors_presets.suited(config))


def test_both_forms_of_files_are_read(tmp_path):
    glove, packed = tmp_path / "glove.txt", tmp_path / "word2vec.txt.gz"
    glove.write_text("the 1 2 3\nNew York 4 5 6\nthe 7 8 9\n")
    packed.write_bytes(gzip.compress(b"2 3\nthe 1 2 3 \na -1e-2 5 6\n"))
    found = read_vectors(str(glove))
    assert found.words == {"the": 0, "New York": 1}
    assert found.table.tolist() == [[1, 2, 3], [4, 5, 6]]
    found = read_vectors(str(packed))
    assert found.words == {"the": 0, "a": 1}
    assert found.dim == 3
    assert read_vectors(str(packed), wanted={"a"}).words == {"a": 0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "v.txt:1: the file is empty"),
        ("the\n", "v.txt:1: expected a word and its numbers"),
        ("a 1 2\nb 1\n", "v.txt:2: expected a word and 2 numbers, found 1"),
        ("a 1 2\nb 1 x\n", "v.txt:2: expected a word and 2 numbers; 'x' is no number"),
        ("a 1 2\nb 1 nan\n", "v.txt:2: holds a number that is not finite"),
        ("2 3\na 1 2\n", "v.txt:2: expected a word and 3 numbers, found 2"),
    ],
)
def test_broken_lines_are_named(tmp_path, text, said):
    file = tmp_path / "v.txt"
    file.write_text(text)
    with pytest.raises(SeqloomError) as caught:
        read_vectors(str(file))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_written_vectors_are_read_again(tmp_path):
    table = np.random.default_rng(1).normal(size=(2, 4)).astype(np.float32)
    write_vectors(tmp_path / "v.txt", ["one", "two words"], table)
    found = read_vectors(str(tmp_path / "v.txt"))
    assert list(found.words) == ["one", "two_words"]
    assert np.allclose(found.table, table, rtol=1e-5)


def model_of(codec, dim=2):
    return SimpleNamespace(source=nn.Embedding(codec.size, dim))


def test_an_embedding_is_filled_where_there_is_a_vector(tmp_path):
    codec = Codec.build("words", ["The cat the zyx"])
    file = tmp_path / "v.txt"
    file.write_text("the 1 2\ncat 3 4\ndog 5 6\n")
    model = model_of(codec)
    before = model.source.weight.detach().clone()
    coverage = pretrained_vectors.initialize(model, codec, pretrained_vectors.load(str(file), codec))
    assert str(coverage) == "3 of 4 tokens (1 by their lower case), 75.0%, have a vector"
    rows = {token: model.source.weight[codec.token_id(token)].tolist() for token in codec.tokens}
    assert (rows["the"], rows["The"], rows["cat"]) == ([1, 2], [1, 2], [3, 4])
    untouched = [*range(len(SPECIALS)), codec.token_id("zyx")]
    assert torch.equal(model.source.weight[untouched], before[untouched])


def test_what_does_not_fit_is_said(tmp_path):
    codec = Codec.build("words", ["the cat"])
    file = tmp_path / "v.txt"
    file.write_text("the 1 2 3\n")
    with pytest.raises(SeqloomError, match=r"vectors have 3 numbers, the model's embedding 2; add --set embedding=3"):
        pretrained_vectors.initialize(model_of(codec), codec, pretrained_vectors.load(str(file), codec))
    file.write_text("other 1 2\n")
    with pytest.raises(SeqloomError, match=r"none of the 2 tokens \(words\) has a vector there"):
        pretrained_vectors.initialize(model_of(codec), codec, pretrained_vectors.load(str(file), codec))
    with pytest.raises(SeqloomError, match=r"nowhere\.txt: no such file"):
        pretrained_vectors.load(str(tmp_path / "nowhere.txt"), codec)
    with pytest.raises(SeqloomError, match="imdb: is a dataset for the task classify"):
        pretrained_vectors.load("imdb", codec)


def test_vectors_of_another_run(run, tmp_path):
    codec = Codec.build("chars", ["abcde"])
    vectors = pretrained_vectors.load(str(run), codec)
    model = model_of(codec, vectors.dim)
    assert pretrained_vectors.initialize(model, codec, vectors).found == 5
    count = pretrained_vectors.export_vectors(run, tmp_path / "vectors.txt")
    again = pretrained_vectors.load(str(tmp_path / "vectors.txt"), codec)
    assert count == len(vectors.words)
    row = model.source.weight[codec.token_id("a")].detach().numpy()
    assert np.allclose(again.table[again.words["a"]], row, rtol=1e-4, atol=1e-6)
    with pytest.raises(SeqloomError, match=r"source\.json: no such file"):
        pretrained_vectors.load(str(tmp_path), codec)


def test_held_out_texts_without_a_pair_leave_the_report_whole(plain, tmp_path, capsys):
    (tmp_path / "alone.txt").write_text("cat\nzyx\n")
    run = seqloom.train(
        "vectors",
        plain,
        output=tmp_path / "run",
        valid=tmp_path / "alone.txt",
        size="tiny",
        training={"max_steps": 2},
        quiet=True,
        device="cpu",
    )
    assert "warning" not in capsys.readouterr().err
    assert (run.folder / "report.html").exists()
    assert not (run.folder / "evaluation-valid.json").exists()


def test_there_is_one_metric(likeness, plain):
    assert list(likeness.evaluate(plain, metrics=["loss"]).metrics) == ["loss"]
    with pytest.raises(SeqloomError, match=r"unknown metric 'nonsense'\. Choose from: loss"):
        likeness.evaluate(plain, metrics=["nonsense"])
