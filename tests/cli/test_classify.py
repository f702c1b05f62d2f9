"""seqloom train classify, predict and evaluate as commands; wrong inputs; killed and resumed to the last bit."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from seqloom.runs.folder.metrics_log import TIMING_KEYS
from tests.cli.conftest import one_line
from tests.tasks.classify.test_task import sentences, write


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("data") / "film.tsv", sentences(200))


@pytest.fixture(scope="module")
def run(data, tmp_path_factory) -> Path:
    import seqloom

    folder = tmp_path_factory.mktemp("runs") / "film"
    training = {"max_steps": 60, "batch_rows": 32, "learning_rate": 5e-3, "valid_every": 60}
    seqloom.train("classify", data, output=folder, model="gru", size="tiny", training=training, quiet=True)
    return folder


def test_train_predict_evaluate(seqloom, data, tmp_path):
    output = tmp_path / "run"
    options = ("--model", "bag", "--size", "tiny", "--max-steps", 60, "--batch-rows", 32, "--rate", 0.02, "--fold")
    status, _, err = seqloom("train", "classify", data, "--output", output, "--valid", "20%", *options, "--verbose")
    assert status == 0, err
    assert re.search(r"^step 50 .* texts/s \d", err, re.M), "its speed is in what it counts"
    assert re.search(r"^step \d+  valid  loss [\d.]+  accuracy [\d.]+ %  ", err, re.M)
    assert {"report.html", "README.md", "target.json", "source.json", "evaluation-valid.json"} <= {
        file.name for file in output.iterdir()
    }
    status, out, _ = seqloom("evaluate", output, data, "--json")
    assert status == 0
    assert json.loads(out)["metrics"]["accuracy"] > 90
    lines = tmp_path / "lines.txt"
    lines.write_text("a lovely film\n\nan awful plot\n")
    status, out, _ = seqloom("predict", output, lines)
    assert (status, out) == (0, "pos\n\nneg\n")
    status, out, _ = seqloom("predict", output, lines, "--scores", "--n-best", 2)
    number, confidence, label = out.splitlines()[0].split("\t")
    assert (number, label) == ("1", "pos")
    assert float(confidence) + float(out.splitlines()[1].split("\t")[1]) == pytest.approx(1, abs=2e-4)
    status, out, _ = seqloom("predict", output, lines, "--json", "--threshold", 1, "--below", "?")
    assert json.loads(out.splitlines()[0])["text"] == "?"


def test_unknown_words_are_told(seqloom, run, tmp_path):
    (tmp_path / "odd.tsv").write_text("xyzzy the xyzzy\t1\nthe\t0\nplugh\t1\n")
    told = "note: 3 unknown words on 2 of 3 lines, which the model never saw: 'xyzzy' ×2, 'plugh' ×1"
    for command in ("evaluate", "predict"):
        assert told in seqloom(command, run, tmp_path / "odd.tsv")[2]


def test_a_folder_of_labels_trains_and_is_evaluated(seqloom, tmp_path):
    for number, (text, label) in enumerate(sentences(60)):
        (tmp_path / "train" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "train" / label / f"{number}.txt").write_text(f"{text}\n")
    options = ("--model", "softmax", "--size", "tiny", "--max-steps", 4, "--quiet")
    assert seqloom("train", "classify", tmp_path / "train", "--output", tmp_path / "run", *options)[0] == 0
    status, out, _ = seqloom("evaluate", tmp_path / "run", tmp_path / "train", "--json", "--metrics", "accuracy")
    assert (status, json.loads(out)["count"]) == (0, 60)


def test_wrong_inputs(seqloom, data, run, tmp_path):
    def train(file: object, *options: object) -> tuple[int, str, str]:
        return seqloom("train", "classify", file, "--output", tmp_path / "none", "--max-steps", 1, *options)

    one_line(train(data, "--set", "data.target=lable"), "unknown kind of target 'lable'; did you mean 'label'?")
    one_line(train(data, "--set", "data.target=number"), "film.tsv:1: the target", "is no number")
    one_line(
        train(data, "--set", "summary=maximum"), "unknown kind 'maximum'", "attention, both, class, last, max, mean"
    )
    one_line(train(data, "--set", "encoder.directions=1", "--set", "summary=both"), "'both' reads two directions")
    one_line(train(data, "--set", "activation=rulu"), "unknown activation 'rulu'; did you mean 'relu'?")
    one_line(train(data, "--model", "majorty"), "unknown model 'majorty'; did you mean 'majority'?")
    one_line(
        train(data, "--set", "data.class_weights=pso=2"), "unknown label in class_weights 'pso'; did you mean 'pos'?"
    )
    bad = tmp_path / "bad.tsv"
    bad.write_text("good\tpos\nno label\n")
    one_line(train(bad), "bad.tsv:2: no TAB")
    three = write(tmp_path / "three.tsv", [("a", "x"), ("b", "y"), ("c", "z")] * 5)
    one_line(train(three, "--model", "logistic"), "tells two labels apart, here 3; choose softmax")
    (tmp_path / "empty").mkdir()
    one_line(train(tmp_path / "empty"), "holds no texts: expected a folder for each label")
    one_line(seqloom("evaluate", run, data, "--metrics", "acuracy"), "did you mean 'accuracy'?")
    one_line(seqloom("evaluate", run, data, "--together"), "--together is for translations")
    for how in (["--sample"], ["--beam", 5]):
        one_line(seqloom("predict", run, data, *how), "--sample and --beam are for other tasks")
    assert not (tmp_path / "none" / "config.yaml").exists()


@pytest.mark.slow
def test_killed_and_resumed_to_the_last_bit(data, tmp_path):
    def command(output: Path) -> list[str]:
        return [
            *(sys.executable, "-c", "from seqloom.cli.main import run; run()", "train", "classify", str(data)),
            *("--model", "lstm-attention", "--size", "tiny", "--output", str(output), "--resume", "--quiet"),
            *("--max-steps", "40", "--batch-rows", "16", "--valid", "10%", "--device", "cpu"),
            *("--set", "training.log_every=1", "--set", "training.save_every=4", "--set", "training.valid_every=10"),
            *("--set", "data.class_weights=balanced", "--set", "dropout=0.3"),
        ]

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run(command(whole), check=True)
    process = subprocess.Popen(command(killed))
    journal = killed / "metrics.jsonl"
    while process.poll() is None and (not journal.exists() or journal.read_text().count('"learning_rate"') < 18):
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    subprocess.run(command(killed), check=True)
    for name in ("model.safetensors", "checkpoints/step-000000040/weights.safetensors"):
        one, other = load_file(whole / name), load_file(killed / name)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)
    lines = [
        [{key: value for key, value in json.loads(line).items() if key not in TIMING_KEYS} for line in path.open()]
        for path in (whole / "metrics.jsonl", killed / "metrics.jsonl")
    ]
    assert lines[0] == lines[1]


def test_data_check_counts_labels_and_names_broken_lines(seqloom, tmp_path):
    file = tmp_path / "film.tsv"
    file.write_text("good\tpos\nbad\tneg\nno label\ngood\tneg\na\tpos\textra\n")
    status, out, _ = seqloom("data", "check", "classify", file)
    assert status == 1
    assert f"{file}:3: error: no TAB" in out
    assert f"{file}:5: error: 2 targets where one label is expected" in out
    assert "3 texts in 5 lines (tsv), 2 distinct, 1 of them with several labels" in out
    assert "2 labels: neg 2, pos 1" in out
    status, out, _ = seqloom("data", "check", "classify", file, "--json")
    assert json.loads(out)["groups"][0]["labels"] == {"neg": 2, "pos": 1}
