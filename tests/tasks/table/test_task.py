"""The task table from files to a run and back: what is learned, said, recorded, and that a kill changes nothing."""

from __future__ import annotations

import io
import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
import torch

import seqloom
from seqloom.cli.main import app
from seqloom.data.datasets import catalog
from seqloom.data.files.columns import ReadOptions
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError
from seqloom.tasks.shared.predictor import LoadedRun
from tests.reporting.html_pages import Page, safe

COLOURS = {"red": 0, "green": 5, "blue": -3}


def write_people(path, count=400, seed=1, wanted="class"):
    """`wanted`: a class that the age, the colour and one word of the note decide together, or 3·age − 2·height + …"""
    draw = random.Random(seed)
    lines = ["age,height,member,colour,note,target"]
    for _ in range(count):
        age, height, member = draw.randint(18, 90), draw.uniform(1.5, 2), draw.choice(["yes", "no"])
        colour, note = draw.choice(list(COLOURS)), " ".join(draw.choices(["good", "bad", "old", "new"], k=5))
        if wanted == "class":
            told = "gold" if age > 60 and colour != "red" else "silver" if "good" in note.split() else "none"
        else:
            told = 3 * age - 20 * height + 7 * (member == "yes") + COLOURS[colour] + 100
        lines.append(f"{age},{height},{member},{colour},{note},{told}")
    path.write_text("\n".join(lines) + "\n")
    return path


def train(data, output, model="mlp", valid="10%", data_options=None, **training):
    settings = {"epochs": 30, "batch_rows": 32, "learning_rate": 1e-2, **training}
    return seqloom.train(
        "table",
        data,
        output=output,
        model=model,
        size="tiny",
        valid=valid,
        data=data_options or {},
        training=settings,
        quiet=True,
        device="cpu",
    )


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classes")
    return train(write_people(folder / "people.csv"), folder / "run").load()


@pytest.fixture(scope="module")
def linear(tmp_path_factory):
    folder = tmp_path_factory.mktemp("linear")
    data = write_people(folder / "people.csv", wanted="number")
    how = {"data_options": {"without": "note"}, "learning_rate": 5e-2, "epochs": 40}
    return train(data, folder / "run", model="linear", **how).load()


def test_classes_are_learned(classes, tmp_path):
    found = classes.evaluate(write_people(tmp_path / "test.csv", 200, seed=9))
    assert found.metrics["accuracy"] > 85
    assert found.count == 200
    assert set(found.predictions) == {"gold", "silver", "none"}
    assert set(found.metrics) == {"accuracy", "macro_f1", "calibration_error"}
    low, high = found.intervals["accuracy"]
    assert low < found.metrics["accuracy"] < high


def test_rows_are_asked_in_three_ways(classes):
    fields = {"age": 80, "height": 1.7, "member": True, "colour": "blue", "note": "bad, old"}
    line = '80,1.7,yes,blue,"bad, old"'
    one = classes.predict([fields])
    assert one == classes.predict([json.dumps(fields)]) == classes.predict([line]) == ["gold"]
    counted = {**fields, "age": np.int64(80), "height": np.float32(1.7), "member": np.bool_(True)}
    assert classes.predict([counted, MappingProxyType(fields)]) == ["gold", "gold"]
    some = list(classes.answers([line, "", {"age": 30, "note": "good"}], Search(beam=3, n_best=3)))
    assert [len(answers) for answers in some] == [3, 1, 3]
    assert some[1][0].text == ""
    assert sum(answer.confidence for answer in some[0]) == pytest.approx(1)
    assert [answer.confidence for answer in some[0]] == sorted((a.confidence for a in some[0]), reverse=True)
    assert some[0][0].log_probability == pytest.approx(np.log(some[0][0].confidence))


def test_a_row_gets_the_same_answer_in_any_batch(classes, tmp_path):
    file = str(write_people(tmp_path / "test.csv", 100, seed=4))
    sources = list(classes.sources(file))
    alone = [answers[0] for answers in classes.answers(sources, rows=1, ahead=1)]
    many = [answers[0] for answers in classes.answers(sources, rows=64)]
    assert [a.text for a in alone] == [a.text for a in many]
    assert [a.confidence for a in alone] == pytest.approx([a.confidence for a in many], abs=1e-5)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("80,1.7", "row 2: 2 fields, expected 5: age,height,member,colour,note"),
        ("old,1.7,yes,blue,x", "row 2: column 'age': 'old' is no number"),
        ("8,1.7,perhaps,blue,x", "row 2: column 'member': 'perhaps' is neither yes nor no"),
        ('{"age": 3', "row 2: broken JSON"),
        ('{"ag": 3}', "row 2: none of its keys is a column of the table"),
        ('8,"1.7,yes,blue,x', "row 2: the quote is never closed"),
    ],
)
def test_rows_that_cannot_be_answered_are_named(classes, source, reason):
    with pytest.raises(SeqloomError, match=reason):
        classes.predict(["30,1.7,yes,red,good", source])


def test_what_an_estimator_refuses(classes, tmp_path):
    with pytest.raises(SeqloomError, match="source 1: predict takes a text or dict, here list"):
        classes.predict([[30, 1.7]])
    with pytest.raises(SeqloomError, match="leave sampling out"):
        next(classes.answers(["30,1.7,yes,red,good"], Search(sample=True)))
    with pytest.raises(SeqloomError, match="found by their names: age, height"):
        classes.reading(columns="2,5")
    write_people(tmp_path / "t.csv", 5)
    with pytest.raises(SeqloomError, match="unknown metric 'acuracy'; did you mean 'accuracy'"):
        classes.evaluate(str(tmp_path / "t.csv"), metrics=["acuracy"])


def test_files_for_prediction_need_no_target(classes, tmp_path, monkeypatch):
    file = tmp_path / "new.csv"
    file.write_text("note,age,height,member,colour\ngood one,30,1.7,yes,red\n")
    (source,) = classes.sources(str(file))
    assert json.loads(source) == {"age": "30", "height": "1.7", "member": "yes", "colour": "red", "note": "good one"}
    lines = tmp_path / "lines.txt"
    lines.write_text("30,1.7,yes,red,good one\n\n")
    assert list(classes.sources(str(lines))) == ["30,1.7,yes,red,good one", ""]
    lines.write_bytes(b"30,1.7,yes,red,good one\n\xff\n")
    with pytest.raises(SeqloomError, match=r"lines.txt:2: not UTF-8"):
        list(classes.sources(str(lines)))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"age": 30}\n')))
    assert list(classes.sources("-")) == ['{"age": 30}']
    file.write_text("note,age,height,member,colour\ngood one,x,1.7,yes,red\n")
    with pytest.raises(SeqloomError, match=r"new.csv:2: column 'age': 'x' is no number"):
        list(classes.sources(str(file)))


def test_evaluation_tells_of_what_is_strange(classes, tmp_path):
    file = write_people(tmp_path / "t.csv", 20)
    file.write_text(file.read_text() + "30,1.7,yes,violet,good,none\n40,1.8,no,red,bad,bronze\n50,1.8\n")
    with pytest.raises(SeqloomError, match=r"t.csv:24: 2 fields, but the first line names 6"):
        classes.evaluate(file)
    found = classes.evaluate(file, reading=ReadOptions(skip_bad=True))
    assert found.count == 22
    assert "1 of 22 rows have a value of colour that no training row has: it counts as none" in found.notes
    assert "1 of 22 rows have a class that no training row has" in found.notes
    assert any(note.startswith("left out 1 broken line") for note in found.notes)


def test_a_linear_model_tells_its_weights(linear):
    """The rule of the data is read off, in the units of the table."""
    told = linear.weights()
    assert told["outputs"] == ["target"]
    weight = dict(zip(told["values"], told["per_unit"][0], strict=True))
    assert weight["age"] == pytest.approx(3, abs=0.01)
    assert weight["height"] == pytest.approx(-20, abs=0.3)
    assert weight["member"] == pytest.approx(7, abs=0.1)
    assert weight["colour=green"] - weight["colour=red"] == pytest.approx(5, abs=0.1)
    assert weight["colour=blue"] - weight["colour=red"] == pytest.approx(-3, abs=0.1)
    # The constant is what is left: told by any one row.
    row = {"age": 40, "height": 1.8, "member": "yes", "colour": "red"}
    summed = told["bias"][0] + 40 * weight["age"] + 1.8 * weight["height"] + weight["member"] + weight["colour=red"]
    assert float(linear.predict([row])[0]) == pytest.approx(summed, rel=1e-4)
    assert summed == pytest.approx(3 * 40 - 20 * 1.8 + 7 + 100, rel=1e-3)


def test_columns_that_count_are_found(linear, classes, tmp_path):
    rows, _ = linear.read([str(write_people(tmp_path / "t.csv", 200, seed=5, wanted="number"))], ReadOptions())
    found = linear.evaluation_details(rows)["importance"]
    assert found["metric"] == "r2"
    assert found["columns"][0]["column"] == "age"
    fall = {one["column"]: one["fall"] for one in found["columns"]}
    assert fall["age"] > 100 * fall["height"] > 0
    rows, _ = classes.read([str(write_people(tmp_path / "c.csv", 200, seed=5))], ReadOptions())
    fall = {one["column"]: one["fall"] for one in classes.evaluation_details(rows)["importance"]["columns"]}
    assert min(fall["age"], fall["colour"], fall["note"]) > 3 + max(fall["height"], fall["member"], 0)


def test_records_are_json_and_drawn(classes, linear, tmp_path):
    from seqloom.reporting.html.page import page as whole_page
    from seqloom.reporting.sections.labels import sections as label_sections
    from seqloom.reporting.sections.table import sections

    rows, _ = classes.read([str(write_people(tmp_path / "c.csv", 60, seed=5))], ReadOptions())
    told = json.loads(json.dumps(classes.evaluation_details(rows, most=50), allow_nan=False))
    assert (told["count"], told["available"]) == (50, 60)
    assert told == told | {
        k: v for k, v in classes.evaluation_details(rows, most=50).items() if k not in ("seconds", "per_second")
    }
    assert "weights" not in told
    page = Page(whole_page("A record", *sections(told), *label_sections(told)))
    safe(page)
    assert "Importance of columns" in page.text
    assert "Confusion matrix" in page.text
    rows, _ = linear.read([str(write_people(tmp_path / "n.csv", 60, seed=5, wanted="number"))], ReadOptions())
    told = json.loads(json.dumps(linear.evaluation_details(rows), allow_nan=False))
    page = Page(whole_page("A record", *sections(told)))
    safe(page)
    assert "Predicted against true" in page.text
    assert "colour=green" in page.text
    assert len(page.pictures()) == 2
    assert sections({}) == ["", ""]


def test_the_run_folder_holds_everything(classes):
    names = {path.name for path in classes.folder.iterdir()}
    assert {"columns.json", "source.json", "config.yaml", "model.safetensors", "report.html", "data.json"} <= names
    page = Page((classes.folder / "report.html").read_text(encoding="utf-8"))
    safe(page)
    assert "Importance and predictions" in page.text
    assert "column, the target last" in page.text
    facts = json.loads((classes.folder / "data.json").read_text())
    assert [one["kind"] for one in facts["columns"]] == ["number", "number", "yes", "category", "text"]


def test_majority_is_counted(tmp_path):
    run = train(write_people(tmp_path / "people.csv"), tmp_path / "run", model="majority")
    model = run.load()
    found = model.evaluate(tmp_path / "people.csv")
    targets = [line.rpartition(",")[2] for line in (tmp_path / "people.csv").read_text().splitlines()[1:]]
    (said,) = set(found.predictions)
    assert targets.count(said) == max(map(targets.count, targets))
    assert found.metrics["accuracy"] == pytest.approx(100 * targets.count(said) / 400)
    number = train(write_people(tmp_path / "n.csv", wanted="number"), tmp_path / "n", model="majority").load()
    assert number.evaluate(tmp_path / "n.csv").metrics["r2"] == pytest.approx(0, abs=0.02)


def test_a_mistaken_select_falls_back_to_the_loss(tmp_path):
    run = train(write_people(tmp_path / "people.csv", 60), tmp_path / "run", epochs=2, select="accuracy")
    assert "accuracy" in run.best["scores"]


def test_validation_file_and_options(tmp_path):
    data, held = write_people(tmp_path / "people.csv", 100), write_people(tmp_path / "held.csv", 50, seed=3)
    kinds = {"age": "category"}
    run = train(data, tmp_path / "run", valid=[str(held)], data_options={"kinds": kinds, "target": "member"}, epochs=2)
    assert run.load().schema.classes == ("no", "yes")
    assert run.load().schema.columns[0].kind == "category"
    assert run.load().config["data"]["column_types"] == kinds


def test_houses_by_name(tmp_path, capsys):
    output = tmp_path / "run"
    with pytest.raises(SystemExit) as left:
        app(["train", "table", "houses", "-o", str(output), "--epochs", "3", "--quiet", "--size", "tiny"])
    assert not left.value.code
    model = seqloom.load(output)
    assert model.evaluate("houses").metrics["r2"] > 0.8
    first = next(catalog.find("houses").examples("test"))
    file = tmp_path / "asked.txt"
    file.write_text(json.dumps(first) + "\n")
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        app(["predict", str(output), str(file)])
    assert not left.value.code
    assert float(capsys.readouterr().out) == pytest.approx(first["price"], abs=100)
    with pytest.raises(SystemExit) as left:
        app(["predict", str(output), "houses"])
    assert not left.value.code
    assert len(capsys.readouterr().out.splitlines()) == 500


STEPS = 60


def command(data, output):
    return [
        *(sys.executable, "-c", "from seqloom.cli.main import run; run()", "train", "table", str(data)),
        *("--size", "tiny", "--output", str(output), "--resume", "--max-steps", str(STEPS), "--batch-rows", "32"),
        *("--valid", "10%", "--device", "cpu", "--quiet", "--set", "dropout=0.2", "--set", "training.log_every=1"),
        *("--set", "training.save_every=4", "--set", "training.valid_every=12"),
    ]


@pytest.mark.slow
def test_killed_and_resumed_is_bit_identical(tmp_path):
    from safetensors.torch import load_file

    from seqloom.training.checkpoint import checkpoint_folders

    data = write_people(tmp_path / "people.csv")
    subprocess.run(command(data, tmp_path / "whole"), check=True)
    journal = tmp_path / "killed" / "metrics.jsonl"
    process = subprocess.Popen(command(data, tmp_path / "killed"))
    while process.poll() is None and (
        not journal.exists() or journal.read_text().count('"learning_rate"') < STEPS // 2
    ):
        time.sleep(0.002)
    assert process.poll() is None, "it was over before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()
    subprocess.run(command(data, tmp_path / "killed"), check=True)
    one, other = (checkpoint_folders(tmp_path / name / "checkpoints")[-1] for name in ("whole", "killed"))
    assert one.name == other.name == f"step-{STEPS:09d}"
    for name in ("weights.safetensors", "training.safetensors"):
        a, b = load_file(one / name), load_file(other / name)
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a), name
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert models[0] == models[1]


def test_fine_tuning_keeps_columns_and_classes(classes, tmp_path):
    more = write_people(tmp_path / "more.csv", 60, seed=8)
    run = seqloom.train(
        "table",
        more,
        output=tmp_path / "run",
        start=classes.folder,
        training={"max_steps": 2},
        quiet=True,
        device="cpu",
    )
    assert run.load().schema.columns == classes.schema.columns


def test_whether_there_is_a_header_is_as_in_the_training(classes, tmp_path):
    file, usual = str(write_people(tmp_path / "test.csv", 20, seed=4)), classes.reading()
    assert classes.evaluate(file, reading=replace(usual, header=True)).count == 20
    stored = replace(classes.schema, numbered=True).to_json()
    without = type(classes)(LoadedRun(classes.folder, classes.config, classes.model, stored, classes.device))
    for made, header, told in (
        (classes, False, "--no-header: this run finds its columns by their names in the first line"),
        (without, True, "--header: this run finds its columns by their numbers"),
    ):
        reading = replace(usual, header=header)
        with pytest.raises(SeqloomError, match=told):
            made.evaluate(file, reading=reading)
        with pytest.raises(SeqloomError, match=told):
            list(made.sources(file, reading))


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_plain_rows_are_read_in_their_encoding(classes, tmp_path, monkeypatch, encoding):
    rows = ["80,1.7,yes,blue,größer", "30,1.7,no,red,schöner"]
    raw = "".join(f"{row}\n" for row in rows).encode(encoding)
    (tmp_path / "rows.txt").write_bytes(raw)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))
    for file in (str(tmp_path / "rows.txt"), "-"):
        assert list(classes.sources(file, ReadOptions(encoding=encoding))) == rows
