"""`seqloom export --to onnx|ct2` and `seqloom predict --engine` as a stranger uses them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from tests.cli.conftest import one_line
from tests.conftest import words, write_pairs
from tests.runs.interop.test_export_example import ODD

SETTINGS = [f"--set={side}.{name}" for side in ("encoder", "decoder") for name in ("dim=16", "heads=2", "layers=1")]


@pytest.fixture
def asked(tmp_path):
    file = tmp_path / "asked.txt"
    file.write_text("".join(f"{word}\n" for word in ["", *words(20, seed=4), "xyz"]))
    return file


def test_onnx_there_and_beside(seqloom, run, tmp_path, asked):
    mine = tmp_path / "run"
    shutil.copytree(run, mine)
    status, out, err = seqloom("export", mine, "--to", "onnx", "--output", tmp_path / "out")
    assert status == 0, err
    assert f"seqloom predict {tmp_path / 'out'} FILE" in out
    shutil.copytree(tmp_path / "out", mine / "engines" / "onnx")  # as predict would make it
    for options in ([], ["--beam", "3"], ["--sample", "--top-k", "3", "--seed", "5"]):
        ours = seqloom("predict", mine, asked, *options)
        assert ours[0] == 0
        assert seqloom("predict", mine, asked, "--engine", "onnx", *options) == ours
        assert seqloom("predict", mine, asked, "--engine", "onnx", "--batch", 5, *options) == ours
        assert seqloom("predict", tmp_path / "out", asked, *options) == ours
    _alone(tmp_path / "out", "abcad", seqloom("predict", mine, "--text", "abcad")[1])
    pairs = write_pairs(tmp_path / "test.tsv", words(10, seed=5))
    ours, theirs = (seqloom("evaluate", folder, pairs)[1].splitlines() for folder in (mine, tmp_path / "out"))
    assert "perplexity" in theirs[-1]
    assert ours[:-1] == theirs[:-1]
    (tmp_path / "out" / "step.onnx").write_bytes(b"")
    one_line(seqloom("predict", tmp_path / "out", asked), "damaged: step.onnx", "export it again")
    one_line(seqloom("predict", mine, asked, "--engine", "ct2"), "encoder.kind=recurrent", "--to onnx")


def _alone(folder, text, said):
    """The example, where Seqloom cannot be found; and what the graphs and files carry."""
    import onnxruntime

    program = (folder / "example.py").read_text()
    assert "seqloom" not in program.lower().replace("nothing of seqloom's", "")
    assert len(program.splitlines()) < 40
    # Isolated from PYTHONPATH and the working folder.
    command = [sys.executable, "-I", folder / "example.py", text]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder.parent)
    assert (done.stdout, done.stderr) == (said, "")
    about = json.loads((folder / "tokens.json").read_text())
    assert about["special"] == {"pad": 0, "bos": 1, "eos": 2, "unk": 3}
    assert about["source"]["names"][:5] == ["<pad>", "<bos>", "<eos>", "<unk>", about["source"]["names"][4]]
    for file, side in (("encoder.onnx", "source"), ("step.onnx", "target")):
        carried = onnxruntime.InferenceSession(folder / file).get_modelmeta().custom_metadata_map
        assert json.loads(carried["tokens"]) == about[side]
        assert json.loads(carried["special"]) == about["special"]


WAYS = [
    ("--lowercase", "--half-width", "--max-length", 6),
    ("--fold", "--source-tokens", "terms", "--max-length", 2, "--cut", "head"),
    ("--source-tokens", "bytes", "--target-tokens", "bytes"),
]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_example_reads_texts_as_the_model_was_trained(seqloom, tmp_path, way):
    data = write_pairs(tmp_path / "words.tsv", words(60))
    lines = [f"{text}\tA B\n" for text in ODD if "<" not in text]
    data.write_text(data.read_text() + "".join(lines), encoding="utf-8")
    run, out = tmp_path / "run", tmp_path / "out"
    way = way if "--target-tokens" in way else (*way, "--target-tokens", "words")
    options = ["--size", "tiny", "--max-steps", 40, "--valid", "0%", "--rate", 0.02, "--device", "cpu", "--quiet", *way]
    assert seqloom("train", "translate", data, "--output", run, "--model", "gru", *options)[0] == 0
    assert seqloom("export", run, "--to", "onnx", "--output", out)[0] == 0
    said = seqloom("predict", run, *(word for text in ODD for word in ("--text", text)))[1]
    program = "import runpy, sys\nfor text in sys.argv[2:]:\n    sys.argv[1:] = [text]\n    runpy.run_path(PATH)\n"
    command = [sys.executable, "-I", "-c", program.replace("PATH", repr(str(out / "example.py"))), "-", *ODD]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == (said, "")
    assert len(set(said.splitlines())) > 1, "answers that could differ"


def test_ct2(seqloom, tmp_path, asked):
    data = write_pairs(tmp_path / "words.tsv", words(80))
    wanted = ["--model", "transformer", "--size", "tiny", "--target-tokens", "words", "--set=embedding=16", *SETTINGS]
    run = tmp_path / "run"
    assert seqloom("train", "translate", data, "--output", run, "--max-steps", 30, *wanted)[0] == 0
    assert seqloom("predict", run, asked, "--engine", "ct2") == seqloom("predict", run, asked, "--engine", "torch")
    assert (run / "engines" / "ct2" / "model.bin").is_file()
    status, out, _ = seqloom("export", run, "--to", "ct2", "--int8", "--output", tmp_path / "out")
    assert status == 0
    assert "differs from torch by at most" in out
    status, out, _ = seqloom("predict", tmp_path / "out", asked, "--beam", 3, "--n-best", 2)
    assert status == 0
    assert out.count("\n") >= 22
    assert "exported for the engine ct2 in int8" in seqloom("info", tmp_path / "out")[1]
    assert json.loads(seqloom("info", tmp_path / "out", "--json")[1])["engine"] == "ct2"
    one_line(seqloom("predict", tmp_path / "out", asked, "--sample"), "does not sample", "--engine onnx")
    one_line(seqloom("predict", tmp_path / "out", asked, "--engine", "onnx"), "exported for the engine ct2")
    one_line(seqloom("export", run, "--to", "ct2", "--output", tmp_path / "out"), "is there already")
    one_line(seqloom("export", run, "--to", "hf", "--int8", "--output", tmp_path / "x"), "--int8 goes with")
    one_line(seqloom("predict", run, asked, "--engine", "trt"), "unknown engine", "onnx")


def test_other_tasks_have_no_engine(seqloom, tmp_path, asked):
    (tmp_path / "labels.tsv").write_text("".join(f"{a} {i}\t{a}\n" for i in range(20) for a in ("good", "bad")))
    run = tmp_path / "run"
    assert seqloom("train", "classify", tmp_path / "labels.tsv", "-o", run, "--size", "tiny", "--max-steps", 1)[0] == 0
    one_line(seqloom("predict", run, asked, "--engine", "onnx"), "is of the task classify", "translate")
