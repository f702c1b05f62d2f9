"""Engines beside a run: made once, made anew when the weights change, and the same answers as torch's."""

from __future__ import annotations

import shutil
import sys

import pytest

import seqloom
from seqloom import Search, SeqloomError
from seqloom.documents import read_json
from seqloom.files import write_json
from seqloom.runs.interop import engines
from seqloom.runs.interop.engines import export_engine, load_engine
from seqloom.training.checkpoint import read_tensors, save_weights
from tests.conftest import words, write_pairs

WORDS = [*words(30, seed=9), "", "xyz"]
SMALL = {
    f"{side}.{name}": n for side in ("encoder", "decoder") for name, n in (("dim", 16), ("heads", 2), ("layers", 1))
}


@pytest.fixture(scope="module")
def recurrent(run, tmp_path_factory):
    """A run of our own to write in, with its engine."""
    folder = tmp_path_factory.mktemp("engines") / "run"
    shutil.copytree(run, folder)
    load_engine(folder, "onnx")
    return folder


@pytest.fixture
def transformer(tmp_path):
    seqloom.train(
        "translate",
        write_pairs(tmp_path / "words.tsv", words(80)),
        output=tmp_path / "run",
        model="transformer",
        size="tiny",
        data={"source_tokens": "chars", "target_tokens": "words"},
        training={"max_steps": 20, "learning_rate": 5e-3, "warmup": 5},
        settings={**SMALL, "embedding": 16},
        device="cpu",
        quiet=True,
    )
    return tmp_path / "run"


def answers(model, search):
    return [answer for row in model.answers(WORDS, search) for answer in row]


def test_every_search_works_by_onnx(recurrent):
    ours, theirs = seqloom.load(recurrent, "cpu"), seqloom.load(recurrent, engine="onnx")
    for search in (Search(), Search(beam=4, n_best=3), Search(sample=True, n_best=2, top_k=3)):
        for one, other in zip(answers(ours, search), answers(theirs, search), strict=True):
            assert one.tokens == other.tokens
            assert other.score == pytest.approx(one.score, abs=1e-4)
            assert other.confidence == pytest.approx(one.confidence, abs=1e-4)
    assert ours.predict(WORDS) == theirs.predict(WORDS)
    assert len(set(ours.predict(WORDS))) > 10


def test_an_engine_is_made_once_and_anew_when_the_weights_change(transformer):
    made = transformer / "engines" / "ct2"
    before = load_engine(transformer, "ct2").predict(WORDS)
    stamp = (made / "model.bin").stat().st_mtime_ns
    assert load_engine(transformer, "ct2").predict(WORDS) == before == seqloom.load(transformer, "cpu").predict(WORDS)
    assert (made / "model.bin").stat().st_mtime_ns == stamp
    weights = read_tensors(transformer / "model.safetensors")
    save_weights(transformer / "model.safetensors", {name: 1.5 * value for name, value in weights.items()})
    after = load_engine(transformer, "ct2").predict(WORDS)
    assert (made / "model.bin").stat().st_mtime_ns != stamp
    assert after == seqloom.load(transformer, "cpu").predict(WORDS) != before
    (made / "model.bin").write_bytes(b"broken")  # what can be made again is
    assert load_engine(transformer, "ct2").predict(WORDS) == after
    write_json(made / "engine.json", read_json(made / "engine.json") | {"seqloom": "0.0.1"})
    assert load_engine(transformer, "ct2").predict(WORDS) == after
    assert read_json(made / "engine.json")["seqloom"] == seqloom.__version__


def test_an_exported_folder_needs_nothing_else(transformer, tmp_path):
    ours = seqloom.load(transformer, "cpu").predict(WORDS)
    made = export_engine(transformer, tmp_path / "out", "ct2")
    assert made.difference <= 1e-5
    shutil.rmtree(transformer)
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    assert seqloom.load(tmp_path / "elsewhere").predict(WORDS) == ours
    card = tmp_path / "elsewhere" / "README.md"
    assert "seqloom predict" in card.read_text()
    card.write_text("mine")  # may be edited
    (tmp_path / "elsewhere" / "Dockerfile").write_text("FROM scratch")  # what no engine reads may stand beside it
    assert seqloom.load(tmp_path / "elsewhere", engine="ct2").predict(WORDS) == ours
    with pytest.raises(SeqloomError, match="exported for the engine ct2, not for onnx"):
        seqloom.load(tmp_path / "elsewhere", engine="onnx")
    with pytest.raises(SeqloomError, match="only answers"):
        seqloom.load(tmp_path / "elsewhere").evaluate(tmp_path / "words.tsv")
    with pytest.raises(SeqloomError, match="name the run it was made of"):
        export_engine(tmp_path / "elsewhere", tmp_path / "again", "ct2")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("name", ["step.onnx", "source.json"])
def test_a_damaged_one_says_so(recurrent, tmp_path, name):
    shutil.copytree(recurrent / "engines" / "onnx", tmp_path / "out")
    content = (tmp_path / "out" / name).read_bytes()
    (tmp_path / "out" / name).write_bytes(content[:-5])
    with pytest.raises(SeqloomError, match=f"damaged: {name} does not match its checksum; export it again"):
        seqloom.load(tmp_path / "out")


def test_a_missing_library_is_named(recurrent, tmp_path, monkeypatch):
    monkeypatch.setattr(engines.util, "find_spec", lambda name: None)
    with pytest.raises(SeqloomError, match=r"the engine onnx needs onnxruntime: pip install 'seqloom\[export\]'"):
        export_engine(recurrent, tmp_path / "out", "onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(SeqloomError, match=r"pip install 'seqloom\[export\]'"):
        load_engine(recurrent, "onnx")


def test_what_is_refused_leaves_nothing(recurrent, transformer, tmp_path, monkeypatch):
    with pytest.raises(SeqloomError, match=r"encoder\.kind=recurrent"):
        export_engine(recurrent, tmp_path / "out", "ct2")
    monkeypatch.setattr("seqloom.runs.interop.export_check.CLOSE", -1.0)
    with pytest.raises(SeqloomError, match="not exported: at 1 × 1 tokens it would differ"):
        export_engine(transformer, tmp_path / "out", "ct2")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))
    with pytest.raises(SeqloomError, match="several runs answer together by torch alone"):
        seqloom.load(recurrent, transformer, device="cpu", engine="onnx")
    with pytest.raises(SeqloomError, match="compute on the CPU"):
        seqloom.load(recurrent, device="cuda", engine="onnx")
    with pytest.raises(SeqloomError, match="did you mean 'onnx'"):
        seqloom.load(recurrent, engine="onxx")
