"""The commands as a stranger uses them: what they print, and what they say when something is wrong."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path

import pytest

from seqloom.training.checkpoint import checkpoint_folders
from seqloom.version import FORMAT
from tests.cli.conftest import one_line
from tests.conftest import words, write_pairs

SMALL = ["--size", "tiny", "--target-tokens", "words", "--batch-rows", "32", "--device", "cpu"]


def test_train_evaluate_predict(seqloom, pairs, tmp_path):
    folder = tmp_path / "run"
    status, _, err = seqloom("train", "translate", pairs, "--output", folder, "--max-steps", 30, *SMALL)
    assert status == 0
    assert "held out" in err
    assert "done" in err
    names = {file.name for file in folder.iterdir()}
    assert {"config.yaml", "source.json", "target.json", "model.safetensors", "metrics.jsonl", "env.json"} <= names
    status, out, _ = seqloom("evaluate", folder, pairs, "--json", "--beam", 2)
    result = json.loads(out)
    assert result["count"] == 600
    assert result.keys() >= {"metrics", "signature", "count"}
    assert result["metrics"].keys() >= {"per", "cer", "wer", "exact_match", "bleu", "chrf", "perplexity"}
    assert "version:2" in result["signature"]["bleu"]
    sources = tmp_path / "sources.txt"
    sources.write_text("abba\n\nchacha\n")
    status, out, _ = seqloom("predict", folder, sources)
    assert (status, len(out.splitlines())) == (0, 3)
    assert out.splitlines()[1] == ""


def test_predict_n_best_and_sampling(seqloom, run, tmp_path):
    sources = write_pairs(tmp_path / "some.tsv", words(5, seed=9))
    _, out, _ = seqloom("predict", run, sources, "--beam", 4, "--n-best", 3)
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[0] for row in rows] == [str(n) for n in range(1, 6) for _ in range(3)]
    scores = [float(row[1]) for row in rows]
    assert all(scores[i] >= scores[i + 1] for i in range(14) if i % 3 < 2)
    sampled = [seqloom("predict", run, sources, "--sample", "--temperature", 2, "--seed", s)[1] for s in (1, 1, 2)]
    assert sampled[0] == sampled[1] != sampled[2]
    many = write_pairs(tmp_path / "many.tsv", words(66, seed=9))
    batches = [seqloom("predict", run, many, "--sample", "--n-best", 2, "--batch", n)[1] for n in (64, 7)]
    assert batches[0] == batches[1]
    assert batches[0].count("\n") == 132
    cold = seqloom("predict", run, sources, "--sample", "--temperature", 0)[1]
    assert cold == seqloom("predict", run, sources)[1]


def test_predict_reads_standard_input(seqloom, run, monkeypatch):
    import io

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"abc\ndad\n")))
    status, out, _ = seqloom("predict", run, "-", "--stream")
    assert (status, len(out.splitlines())) == (0, 2)


def test_evaluate_counts_several_references(seqloom, run, tmp_path):
    one, several = tmp_path / "one.tsv", tmp_path / "several.tsv"
    said = seqloom("predict", run, _file(tmp_path, "abc\nbad\n"))[1].splitlines()
    one.write_text(f"abc\tX X X\nabc\t{said[0]}\nbad\t{said[1]}\n")
    several.write_text(f"abc\tX X X\t{said[0]}\nbad\t{said[1]}\n")
    apart = json.loads(seqloom("evaluate", run, one, "--json")[1])
    together = json.loads(seqloom("evaluate", run, one, "--json", "--together")[1])
    columns = json.loads(seqloom("evaluate", run, several, "--json")[1])
    assert (apart["count"], together["count"], columns["count"]) == (3, 2, 2)
    assert together["metrics"]["per"] == columns["metrics"]["per"] == 0
    assert apart["metrics"]["per"] > 0


def test_info(seqloom, run):
    assert "torch" in seqloom("info")[1]
    _, out, _ = seqloom("info", run)
    assert "encoder" in out
    layers = json.loads(seqloom("info", run, "--json")[1])["layers"]
    assert layers[0]["parameters"] == sum(row["parameters"] for row in layers if row["depth"] == 1)
    assert layers[0]["operations"] == sum(row["operations"] for row in layers if row["depth"] == 1)


def test_data_check(seqloom, tmp_path):
    good = write_pairs(tmp_path / "good.tsv", words(20))
    assert seqloom("data", "check", "translate", good)[0] == 0
    bad = tmp_path / "bad.tsv"
    bad.write_bytes(b"a\tA\nno tab\n\xff\tB\nc\t\n" + b"a\tA\n")
    status, out, _ = seqloom("data", "check", "translate", bad)
    assert status == 1
    for line, reason in ((2, "TAB"), (3, "UTF-8"), (4, "empty"), (5, "duplicate")):
        assert any(f"bad.tsv:{line}:" in row and reason in row for row in out.splitlines()), (line, out)


def test_resume_and_other_settings(seqloom, pairs, tmp_path):
    folder = tmp_path / "run"
    arguments = ["train", "translate", pairs, "--output", folder, *SMALL]
    assert seqloom(*arguments, "--max-steps", 5)[0] == 0
    one_line(seqloom(*arguments, "--max-steps", 9), "already holds a run", "--resume")
    one_line(seqloom(*arguments, "--resume", "--set", "decoder.dim=32"), "cannot resume", "model.decoder.dim")
    status, _, err = seqloom("train", "translate", pairs, "--output", folder, "--resume", "--max-steps", 9)
    assert (status, "resumed at step 5" in err) == (0, True)
    steps = [json.loads(line).get("step") for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert steps == [5, 9]
    other = write_pairs(tmp_path / "other.tsv", words(50, seed=4))
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    one_line(seqloom("train", "translate", other, "--output", folder, "--resume", "--quiet"), "data")
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before, "refused, yet changed"


def test_resume_remembers_the_validation_file(seqloom, pairs, tmp_path):
    valid = write_pairs(tmp_path / "valid.tsv", words(30, seed=50))
    arguments = ["train", "translate", pairs, "--output", tmp_path / "run", *SMALL]
    assert seqloom(*arguments, "--max-steps", 3, "--valid", valid)[0] == 0
    assert seqloom(*arguments, "--max-steps", 5, "--resume")[0] == 0


def test_two_trainings_in_one_folder(seqloom, pairs, tmp_path):
    from seqloom.files import locked

    arguments = ["train", "translate", pairs, "--output", tmp_path / "run", *SMALL, "--max-steps", 2, "--quiet"]
    assert seqloom(*arguments)[0] == 0
    with locked(tmp_path / "run"):
        one_line(seqloom(*arguments, "--resume"), "another training")


def test_scores_forgive_what_the_codec_takes_away(seqloom, tmp_path):
    """With --fold, and with accents typed as separate marks, a right answer counts as right in every metric."""
    data = tmp_path / "fold.tsv"
    data.write_text("ab\tCafe\u0301 AU LAIT\n" * 8)
    folder = tmp_path / "run"
    settings = ["--valid", "0%", "--max-steps", 150, "--size", "tiny", "--fold", "--rate", 0.005, "--quiet"]
    settings += ["--set", "training.valid_every=150"]
    assert seqloom("train", "translate", data, "--output", folder, *settings)[0] == 0
    metrics = json.loads(seqloom("evaluate", folder, data, "--json")[1])["metrics"]
    assert (metrics["per"], metrics["cer"], metrics["wer"], metrics["exact_match"]) == (0, 0, 0, 100)


def test_damage_with_one_checkpoint_kept(seqloom, pairs, tmp_path):
    folder = tmp_path / "run"
    arguments = ["train", "translate", pairs, "--output", folder, *SMALL, "--set", "training.save_every=2"]
    seqloom(*arguments, "--max-steps", 6, "--set", "training.keep_checkpoints=2", "--quiet")
    (checkpoint_folders(folder / "checkpoints")[-1] / "weights.safetensors").write_bytes(b"")
    arguments += ["--resume", "--set", "training.keep_checkpoints=1", "--quiet"]
    assert seqloom(*arguments, "--max-steps", 5)[0] == 0
    assert [checkpoint.name for checkpoint in checkpoint_folders(folder / "checkpoints")] == ["step-000000005"]


def test_damaged_checkpoint_walks_back(seqloom, pairs, tmp_path):
    folder = tmp_path / "run"
    arguments = ["train", "translate", pairs, "--output", folder, *SMALL, "--set", "training.save_every=2"]
    seqloom(*arguments, "--max-steps", 6, "--quiet")
    newest = checkpoint_folders(folder / "checkpoints")[-1]
    blob = bytearray((newest / "weights.safetensors").read_bytes())
    blob[-5] ^= 1
    (newest / "weights.safetensors").write_bytes(blob)
    status, _, err = seqloom(*arguments, "--max-steps", 8, "--resume")
    assert status == 0
    assert "does not match its checksum" in err
    assert "resumed at step 4" in err
    for checkpoint in checkpoint_folders(folder / "checkpoints"):
        (checkpoint / "manifest.json").unlink()
    one_line(seqloom(*arguments, "--max-steps", 9, "--resume", "--quiet"), "no checkpoint is intact")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train", "translate", "nowhere.tsv", "-o", "x"], ["nowhere.tsv", "no such file"]),
        (["train", "translate", "onee.tsv", "-o", "x"], ["onee.tsv: no such file; did you mean 'one.tsv'?"]),
        (["train", "translate", "PAIRS", "-o", "x", "--model", "lsmt-attention"], ["did you mean 'lstm-attention'"]),
        (["train", "translate", "PAIRS", "-o", "x", "--size", "bsae"], ["did you mean 'base'"]),
        (["train", "translat", "PAIRS", "-o", "x"], ["did you mean 'translate'"]),
        (["train", "translate", "PAIRS", "-o", "x", "--set", "decoder.scroe=dot"], ["did you mean 'score'"]),
        (["train", "translate", "PAIRS", "-o", "x", "--set", "decoder.score=dto"], ["did you mean 'dot'"]),
        (["train", "translate", "PAIRS", "-o", "x", "--set", "training.clp=1"], ["did you mean 'clip'"]),
        (["train", "translate", "PAIRS", "-o", "x", "--set", "decoder.score"], ["key=value"]),
        (["train", "translate", "PAIRS", "-o", "x", "--set", "encoder.layers=two"], ["a whole number", "'two'"]),
        (["train", "translate", "PAIRS", "-o", "x", "--set", "encoder.layers=0"], ["layers", "at least 1"]),
        (["train", "translate", "PAIRS", "-o", "x", "--rate", "nan"], ["learning_rate takes a finite number", "nan"]),
        (["train", "translate", "PAIRS", "-o", "x", "--rate", "inf"], ["learning_rate takes a finite number", "inf"]),
        (["train", "translate", "PAIRS", "-o", "x", "--set", "training.r_drop=.inf"], ["r_drop", "finite"]),
        (["train", "translate", "PAIRS", "-o", "x", "--set", "training.momentum=1"], ["at least 0 and below 1"]),
        (["train", "translate", "PAIRS", "-o", "x", "--set", "training.select=f1"], ["select by in translate", "per"]),
        (["train", "translate", "PAIRS", "-o", "x", "--set", "trainig.clip=1"], ["did you mean 'training'"]),
        (["train", "translate", "PAIRS", "-o", "x", "--set", "training.=1"], ["name a setting of training"]),
        (["train", "translate", "PAIRS", "-o", "x", "--set", "encoder.dim=wide"], ["a list of whole numbers"]),
        (["train", "classify", "adding", "-o", "x"], ["for the task regress", "no command trains that yet"]),
        (["train", "translate", "PAIRS", "-o", "x", "--seed", "99999999999999999999"], ["seed"]),
        (["train", "translate", "PAIRS", "-o", "x", "--set", "dropout=1.5"], ["dropout", "at least 0 and below 1"]),
        (["train", "translate", "PAIRS", "-o", "x", "--set", "encoder.dim=[8,9]"], ["1 layers need 1 widths"]),
        (["train", "translate", "PAIRS", "-o", "x", "--patience", "2", "--valid", "0%"], ["no validation data"]),
        (["train", "translate", "PAIRS", "-o", "x", "--source-tokens", "char"], ["did you mean 'chars'"]),
        (["train", "translate", "PAIRS", "-o", "x", "--source-tokens", "bpe:some"], ["bpe:some"]),
        (["train", "translate", "PAIRS", "-o", "x", "--device", "cuda"], ["no GPU"]),
        (["train", "translate", "PAIRS", "-o", "x", "--device", "gpu"], ["unknown device"]),
        (["train", "translate", "PAIRS", "-o", "x", "--time", "soon"], ["soon", "5m"]),
        (["train", "translate", "PAIRS", "-o", "x", "--valid", "5x%"], ["5x%"]),
        (["train", "translate", "PAIRS", "-o", "x", "--valid", "5% with sed 7"], ["sed 7", "'5% with seed 7'"]),
        (["train", "translate", "PAIRS", "-o", "x", "--valid", "gone.tsv"], ["gone.tsv", "no such file"]),
        (["train", "translate", "PAIRS", "-o", "x", "--model", "gone.yaml"], ["gone.yaml", "no such file"]),
        (["train", "translate", "ONE", "-o", "x"], ["one.tsv:2", "TAB"]),
        (["train", "translate", "BAD", "-o", "x"], ["bad.tsv:2", "UTF-8"]),
        (["train", "translate", "EMPTY", "-o", "x"], ["empty.tsv"]),
        (["train", "translate", "GZ", "-o", "x"], ["torn.tsv.gz"]),
        (["evaluate", "nowhere", "PAIRS"], ["nowhere", "no such run"]),
        (["evaluate", "FOLDER", "PAIRS"], ["not a run folder"]),
        (["predict", "FOLDER", "PAIRS"], ["not a run folder"]),
        (["info", "FOLDER"], ["not a run folder"]),
        (["predict", "RUN", "nowhere.txt"], ["nowhere.txt", "no such file"]),
        (["predict", "RUN", "PAIRS", "--beam", "0"], ["beam"]),
        (["predict", "RUN", "PAIRS", "--sample", "--top-p", "3"], ["top-p"]),
        (["predict", "RUN", "PAIRS", "--temperature", "0.5"], ["--sample"]),
        (["predict", "RUN", "PAIRS", "--batch", "0"], ["at least 1"]),
        (["evaluate", "RUN", "PAIRS", "--metrics", "blue"], ["did you mean 'bleu'"]),
        (["data", "check", "translate", "nowhere.tsv"], ["nowhere.tsv"]),
    ],
    ids=lambda value: " ".join(value[2:]) if isinstance(value, list) else None,
)
def test_wrong_input_gets_one_clear_line(seqloom, run, pairs, tmp_path, monkeypatch, arguments, told):
    monkeypatch.chdir(tmp_path)
    files = {"PAIRS": pairs, "RUN": run, "FOLDER": tmp_path / "folder"}
    (tmp_path / "folder").mkdir()
    for name, content in (("one", b"a\tb\nalone\n"), ("bad", b"a\tb\n\xff\tc\n"), ("empty", b"")):
        files[name.upper()] = tmp_path / f"{name}.tsv"
        files[name.upper()].write_bytes(content)
    files["GZ"] = tmp_path / "torn.tsv.gz"
    files["GZ"].write_bytes(gzip.compress(b"a\tb\n" * 1000)[:-12])
    one_line(seqloom(*(files.get(part, part) for part in arguments)), *told)
    assert not (tmp_path / "x" / "config.yaml").exists()


def test_a_damaged_run_is_named(seqloom, run, pairs, tmp_path):
    for name, change, told in (
        ("model.safetensors", lambda blob: blob[: len(blob) // 2], "damaged"),
        ("source.json", lambda blob: b"{", "vocabulary"),
        ("config.yaml", lambda blob: b"a: [", "not YAML"),
        ("config.yaml", lambda blob: blob.replace(f"format: {FORMAT}".encode(), b"format: 99"), "newer Seqloom"),
        ("model.safetensors", lambda blob: None, "no model yet"),
    ):
        copy = tmp_path / f"{name}-{told.split()[0]}"
        shutil.copytree(run, copy)
        changed = change((copy / name).read_bytes())
        (copy / name).unlink()
        if changed is not None:
            (copy / name).write_bytes(changed)
        one_line(seqloom("evaluate", copy, pairs), told)


def test_a_full_disk_is_one_line_and_nothing_is_lost(seqloom, pairs, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    arguments = ["train", "translate", pairs, "--output", folder, *SMALL, "--set", "training.save_every=2", "--quiet"]
    assert seqloom(*arguments, "--max-steps", 4)[0] == 0
    import os

    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    one_line(seqloom(*arguments, "--max-steps", 8, "--resume"), "No space left on device")
    monkeypatch.setattr(os, "fsync", real)
    assert not list(folder.rglob("*.tmp"))
    status, _, _ = seqloom(*arguments, "--max-steps", 8, "--resume")
    assert status == 0
    assert checkpoint_folders(folder / "checkpoints")[-1].name == "step-000000008"


def _file(folder: Path, content: str) -> Path:
    path = folder / "lines.txt"
    path.write_text(content)
    return path
