"""Datasets by name: the facts hold, splits are written once, and names stand where files are expected."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seqloom.data.checks.pairs import check
from seqloom.data.datasets import catalog
from seqloom.data.datasets.dataset import Dataset
from seqloom.data.datasets.parsers import READERS
from seqloom.errors import SeqloomError
from seqloom.tasks.registry import TASKS, task

MIRROR = os.environ.get("SEQLOOM_DATA")
SHARED = [name for name, dataset in catalog.DATASETS.items() if dataset.files]
SLOW = {"listops": pytest.mark.slow}  # takes a minute
EMBEDDED = [
    pytest.param(name, marks=SLOW.get(name, ())) for name, dataset in catalog.DATASETS.items() if not dataset.files
]
mirrored = pytest.mark.skipif(not MIRROR, reason="$SEQLOOM_DATA names no mirror of the datasets")


def size(dataset: Dataset, split: str) -> int:
    examples = dataset.examples(split)
    if dataset.unit == "characters":
        return sum(map(len, examples))
    if dataset.unit == "tokens":
        return sum(len(text.split()) + text.count("\n") for text in examples)
    if dataset.unit == "nodes":
        return sum(len(graph["nodes"]) for graph in examples)
    return sum(1 for _ in examples)


@mirrored
@pytest.mark.parametrize("name", SHARED)
def test_every_shared_set_has_the_sizes_that_are_stated(name):
    dataset = catalog.find(name)
    assert {split: size(dataset, split) for split in dataset.sizes} == dataset.sizes


@pytest.mark.parametrize("name", EMBEDDED)
def test_every_embedded_set_has_the_sizes_that_are_stated(name):
    dataset = catalog.find(name)
    if dataset.package:
        pytest.importorskip(dataset.package)
    assert {split: size(dataset, split) for split in dataset.sizes} == dataset.sizes


@mirrored
@pytest.mark.parametrize("name", ["cmudict-g014b2b", "tatoeba-en-fr", "sigmorphon2021-fre", "sigmorphon2021", "names"])
def test_no_source_is_in_two_splits(name):
    dataset = catalog.find(name)
    sources = [{example[0] for example in dataset.examples(split)} for split in dataset.sizes]
    assert sum(map(len, sources)) == len(set().union(*sources))


@mirrored
def test_examples_are_what_they_should_be():
    def first(name, split="train"):
        return next(catalog.find(name).examples(split))

    assert first("cmudict-g014b2b", "test") == ("ABADI", ("AH B AE D IY",))
    english, (german,) = first("multi30k-en-de")
    assert first("multi30k-de-en") == (german, (english,))
    french, every = (dict(catalog.find(f"sigmorphon2021{name}").examples("test")) for name in ("-fre", ""))
    assert all(every["Ⓕ" + word] == sounds for word, sounds in french.items())
    assert "Ⓚㄱㄴㄷㅅㅜㄴ" in dict(catalog.find("sigmorphon2021").examples("train")), "syllables by their letters"
    assert first("trec", "test")[1] == "NUM"
    assert {label for _, label in catalog.find("sst2").examples("valid")} == {"negative", "positive"}
    assert len({label for _, label in catalog.find("names").examples("train")}) == 18
    assert {tag for row in catalog.find("ud-ewt").examples("test") for _, tag in row} >= {"NOUN", "VERB", "PUNCT"}
    sound, rate, digit = first("fsdd", "test")
    assert (sound.ndim, sound.dtype.name, rate, digit) == (1, "float32", 8_000, "0")
    assert 0.01 < abs(sound).max() <= 1
    picture, label = first("mnist")
    assert (picture.shape, label, int(picture.max())) == ((28, 28), 5, 255)
    for name in ("pixels", "pixels-permuted"):
        text, digit = first(name)
        values = [int(value) for value in text.split(" ")]
        assert (digit, sorted(values)) == ("5", sorted(picture.ravel().tolist()))
        assert (values == picture.ravel().tolist()) == (name == "pixels")
    picture, label = first("digits")
    assert (picture.shape, label, int(picture[0, 2])) == ((8, 8), 0, 5)
    graph = first("cora")
    assert graph["features"].shape == (2_708, 1_433)
    assert graph["features"].sum() == 49_216
    assert set(graph["labels"][graph["nodes"]]) == set(range(7))
    word, vector = first("glove", "all")
    assert (word, vector.shape) == ("the", (100,))
    assert vector[0] == pytest.approx(-0.038194)


@mirrored
def test_a_corrupted_copy_is_refused(tmp_path, fresh, monkeypatch):
    file = "sigmorphon2021_g2p/medium/dut_dev.tsv"
    mirror = tmp_path / "mirror"
    shutil.copytree(Path(MIRROR or "") / "sigmorphon2021_g2p", mirror / "sigmorphon2021_g2p")
    monkeypatch.setenv("SEQLOOM_DATA", str(mirror))
    raw = (mirror / file).read_bytes()
    (mirror / file).chmod(0o644)
    (mirror / file).write_bytes(raw[:-2] + b"x\n")
    with pytest.raises(
        SeqloomError, match=rf"{file}: not the right content: SHA-256 should be \w{{64}} and is \w{{64}}"
    ):
        catalog.files("sigmorphon2021-dut", "train")
    assert not list(fresh.rglob("*.tsv"))
    (mirror / file).write_bytes(raw)
    assert catalog.files("sigmorphon2021-dut", "train")[0].is_file()


def test_the_facts_are_complete():
    files = {file for dataset in catalog.DATASETS.values() for file in dataset.all_files()}
    assert len({file.path for file in files}) == len(files), "a file has the same sum wherever it is named"
    assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) and file.size for file in files)
    assert {dataset.reader for dataset in catalog.DATASETS.values()} == READERS.keys()
    for name, dataset in catalog.DATASETS.items():
        assert re.fullmatch(r"[a-z0-9_-]+", name)
        assert dataset.home.startswith("http")
        assert re.search(r"\b(19|20)\d\d\b", dataset.citation), name
        assert dataset.licence
        assert not dataset.files or dataset.files.keys() == dataset.sizes.keys()
        assert all("\n" not in text and len(text) < 110 for text in (dataset.about, dataset.licence)), name
        if dataset.task in TASKS:
            task(dataset.task).options(**dataset.data)


def test_names_need_neither_torch_nor_numpy():
    code = (
        "import sys, seqloom.data.datasets.catalog, seqloom.data.datasets.parsers\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_split_is_written_once_and_mended(fresh):
    [path] = catalog.files("copy", "test")
    assert path.parent.parent == fresh / "datasets" / "copy"
    assert (path.name, len(path.read_text().splitlines())) == ("test.tsv", 1_000)
    before = path.stat().st_mtime_ns
    assert catalog.files("copy", "test")[0].stat().st_mtime_ns == before
    content = path.read_bytes()
    path.write_text("spoilt\n")
    assert catalog.files("copy", "test")[0].read_bytes() == content
    assert list(check([str(path)])) == []


def test_every_kind_of_text_is_written(fresh, monkeypatch):
    def written(task, *examples):
        monkeypatch.setattr(Dataset, "examples", lambda self, split: iter(examples))
        dataset = Dataset("x", task, "", {"train": len(examples)}, "", "", "", "")
        [path] = catalog.write(dataset, fresh)
        return path.name, path.read_text()

    fresh.mkdir()
    assert written("translate", ("a", ("b", "c")), ("d", ("e",))) == ("train.tsv", "a\tb\tc\nd\te\n")
    assert written("classify", ("a b", "yes")) == ("train.tsv", "a b\tyes\n")
    assert written("tag", [("a", "X"), ("b", "Y")], [("c", "X")]) == ("train.tsv", "a\tX\nb\tY\n\nc\tX\n\n")
    assert written("generate", "one\ntwo\n") == ("train.txt", "one\ntwo\n")
    assert written("table", {"x": 1, "y": "é"}) == ("train.jsonl", '{"x": 1, "y": "é"}\n')
    with pytest.raises(SeqloomError, match="is no text"):
        written("speech", ())


def test_find_guesses():
    with pytest.raises(SeqloomError, match="unknown dataset 'pinyn'; did you mean 'pinyin'"):
        catalog.find("pinyn")
    with pytest.raises(SeqloomError, match="seqloom data list"):
        catalog.find("§")
    with pytest.raises(SeqloomError, match="did you mean 'test'"):
        catalog.find("copy").examples("tset")


def test_resolve(fresh, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test = str(catalog.files("copy", "test")[0])
    valid = str(catalog.files("copy", "valid")[0])
    named = ["copy", "copy:valid", "-", "gone.tsv", "no/where"]
    assert catalog.resolve(named, "test", "translate") == [test, valid, "-", "gone.tsv", "no/where"]
    for wrong, told in (
        ("coppy", "no such file.*did you mean 'copy'"),
        ("copy:vaild", "did you mean 'valid'"),
        ("adding", "task regress, not for translate"),
    ):
        with pytest.raises(SeqloomError, match=told):
            catalog.resolve([wrong], "test", "translate")
    (tmp_path / "copy").write_text("a\tb\n")
    assert catalog.resolve(["copy"], "test", "translate") == ["copy"], "a file of that name wins"


def test_suited():
    sounds = {"source_tokens": "chars", "target_tokens": "words"}
    assert catalog.with_suited_options(["pinyin"], {}, "translate") == (sounds, "pinyin:valid")
    given = {"target_tokens": "chars", "lowercase": None}
    assert catalog.with_suited_options(["pinyin"], given, "translate") == (
        {**sounds, "target_tokens": "chars"},
        "pinyin:valid",
    )
    assert catalog.with_suited_options(["pinyin:test"], {}, "translate")[1] is None
    assert catalog.with_suited_options(["pinyin", "dates"], {}, "translate") == ({}, None)
    assert catalog.with_suited_options(["some.tsv"], {"lowercase": "lower"}, "translate") == (
        {"lowercase": "lower"},
        None,
    )
