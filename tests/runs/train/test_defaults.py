"""What is chosen by a look at the data, and what is said about it."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
import yaml

import seqloom
from seqloom.data.formats.table import TableOptions
from seqloom.data.prepare.request import PrepareRequest
from seqloom.reporting.run_facts import diverged
from seqloom.runs.progress import Silent
from seqloom.runs.recipes import recipe as recipes
from seqloom.runs.recipes.run_recipe import job_of
from seqloom.runs.train.job import Job
from seqloom.runs.train.resolve import resolve
from seqloom.tasks.registry import task as get_task
from seqloom.training.distributed.processes import ALONE
from seqloom.training.settings import Training, default_batch_rows, planned_updates


class Heard(Silent):
    def __init__(self):
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def config(run) -> dict:
    return yaml.safe_load((run.folder / "config.yaml").read_text())


def train(files, output, training=None, **more):
    heard = Heard()
    usual = {"model": "bag", "size": "tiny"}
    run = seqloom.train(
        "classify", files, output=output, progress=heard, device="cpu", training=training or {}, **{**usual, **more}
    )
    return run, heard.notes


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "mixed.tsv"
    path.write_text("".join(f"{label} {i}\t{label}\n" for i in range(30) for label in ("good", "bad")))
    return path


@pytest.fixture
def texts(tmp_path):
    """Sorted by their labels."""
    path = tmp_path / "texts.tsv"
    path.write_text("".join(f"{label} {i}\t{label}\n" for label in ("bad", "fair", "good") for i in range(100)))
    return path


def test_small_data_has_small_batches():
    usual = Training.of({})
    found = [default_batch_rows(128, count, usual) for count in (10, 1000, 3600, 5000, 9000, 20_000, 30_000, 10**7)]
    assert found == [16, 16, 16, 16, 16, 32, 32, 128]
    assert default_batch_rows(32, 20_000, usual) == 32  # what suits a model is not made larger
    assert default_batch_rows(8, 100, usual) == 8
    assert default_batch_rows(128, 3600, Training.of({"epochs": 500})) == 128
    assert default_batch_rows(128, 3600, Training.of({"max_steps": 100})) == 128  # updates are as many in any case
    assert planned_updates(usual, 29) == 580
    assert planned_updates(Training.of({"accumulate": 4}), 29) == 160
    assert planned_updates(Training.of({"time": 60}), 29) is None


def test_the_size_of_the_batch_is_written_and_resumed(pairs, tmp_path):
    run, notes = train(pairs, tmp_path / "run", training={"epochs": 1})
    assert config(run)["training"]["batch_rows"] == 16
    assert "batches of 16 rows, not 64, as there are 57 examples (--batch-rows chooses)" in notes
    assert any(note.startswith("only 4 updates in 1 epoch, which may be too few: raise --epochs") for note in notes)
    kept = dict(config(run))
    more, notes = train(pairs, run.folder, training={"epochs": 2}, resume=True, model=None, size=None)
    assert config(more)["training"] == kept["training"] | {"epochs": 2}
    assert not any("are few" in note for note in notes)
    through, _ = train(pairs, tmp_path / "through", training={"epochs": 2, "schedule": "constant"})
    halves, _ = train(pairs, tmp_path / "halves", training={"epochs": 1, "schedule": "constant"})
    halves, _ = train(pairs, halves.folder, training={"epochs": 2}, resume=True, model=None, size=None)
    weights = [(run.folder / "model.safetensors").read_bytes() for run in (through, halves)]
    assert weights[0] == weights[1]


def test_a_batch_that_was_chosen_stays(pairs, tmp_path):
    for number, training in enumerate(({"batch_rows": 128}, {"batch_tokens": 300})):
        run, notes = train(pairs, tmp_path / str(number), training={"max_steps": 1, **training})
        assert {name: config(run)["training"][name] for name in training} == training
        assert not any("batches of" in note for note in notes)


def test_runs_from_before_go_on_by_their_rules(pairs, tmp_path):
    run, _ = train(pairs, tmp_path / "run", training={"epochs": 1, "batch_rows": 128}, data={"split_version": 1})
    old = config(run)
    del old["data"]["split_version"], old["data"]["sample"]
    (run.folder / "config.yaml").write_text(yaml.safe_dump(old))
    more, _ = train(pairs, run.folder, training={"epochs": 2}, resume=True, model=None, size=None)
    assert config(more)["data"]["split_version"] == 1
    assert config(more)["training"]["batch_rows"] == 128
    new, _ = train(pairs, tmp_path / "new", training={"max_steps": 1})
    assert config(new)["data"]["split_version"] == 2
    tuned, _ = train(pairs, tmp_path / "tuned", training={"max_steps": 1}, start=run.folder, model=None, size=None)
    assert config(tuned)["data"]["split_version"] == 1  # it must not be scored on what it was trained on


def test_folds_from_before_go_on_by_their_rules(pairs, tmp_path):
    from seqloom.runs.many.cross_validation import cross_validate

    settings = {"epochs": 1, "valid_decode": 0, "batch_rows": 128}  # as it was chosen then
    usual = {
        "task": "translate",
        "files": pairs,
        "output": tmp_path / "folds",
        "model": "gru-attention",
        "size": "tiny",
    }
    job = Job(**usual, training=settings, device="cpu", data={"split_version": 1})
    cross_validate(job, 2, "quiet")
    for path in (tmp_path / "folds" / "fold-2").rglob("*"):
        if path.is_file():
            path.unlink()
    begun = tmp_path / "folds" / "fold-1" / "config.yaml"
    before = yaml.safe_load(begun.read_text())
    before["data"]["detect"] = False
    begun.write_text(yaml.safe_dump(before))
    del settings["batch_rows"]
    cross_validate(replace(job, data={}, training=settings, resume=True), 2, "quiet")
    found = [yaml.safe_load((tmp_path / "folds" / f"fold-{n}" / "config.yaml").read_text()) for n in (1, 2)]
    assert found[0]["data"] == found[1]["data"] == before["data"]
    assert [one["training"]["batch_rows"] for one in found] == [128, 128]


@pytest.mark.parametrize("name", recipes.names())
def test_recipes_keep_what_they_were_recorded_with(name):
    recipe = recipes.load(name)
    for part in recipe.parts():
        if part.model.startswith("runs/"):
            continue
        job = job_of(part, Job(task="", files=[], output="/nowhere/at/all"))
        resolved = resolve(job, ALONE)
        assert resolved.config["data"].get("split_version", 1) == 1
        assert not resolved.batch_by_data
        assert not resolved.notes


@pytest.mark.parametrize("texts", [["Baum", "Yun", "O'Hara"], ["今天天气很好", "我不喜欢，很差", "服务不错"]])
def test_texts_without_blanks_are_cut_into_characters(texts, tmp_path):
    path = tmp_path / "names.tsv"
    path.write_text("".join(f"{text}{i}\t{i % 2}\n" for i, text in enumerate(texts * 20)))
    shortest = min((f"{text}{i}" for i, text in enumerate((texts * 20)[:20])), key=len)
    run, notes = train(path, tmp_path / "run", training={"max_steps": 1})
    assert config(run)["data"]["tokens"] == "chars"
    told = f"texts have no spaces between words ({shortest}), so they are split into characters"
    assert f"{told}; --tokens chooses" in notes
    run, notes = train(path, tmp_path / "said", training={"max_steps": 1}, data={"tokens": "words"})
    assert config(run)["data"]["tokens"] == "words"
    again, _ = train(path, run.folder, training={"max_steps": 2}, resume=True, model=None, size=None)
    assert config(again)["data"]["tokens"] == "words"


def test_targets_of_symbols_are_words(tmp_path):
    path = tmp_path / "phonemes.tsv"
    path.write_text("hello\tHH AH0 L OW1\nlow\tL OW1\nhall\tHH AO1 L\nall\tAO1 L\nholo\tHH OW1 L OW1\n" * 4)
    job = Job(task="translate", files=str(path), output=tmp_path / "run")
    resolved = resolve(job, ALONE)
    assert resolved.config["data"]["target_tokens"] == "words"
    told = "targets look like space-separated symbols (HH AH0 L OW1), so they are split at spaces"
    assert resolved.notes == [f"{told}; --target-tokens chars splits them into characters"]
    for more in ({"data": {"target_tokens": "chars"}}, {"settings": {"data.target_tokens": "bytes"}}):
        resolved = resolve(replace(job, **more), ALONE)
        assert resolved.config["data"]["target_tokens"] in ("chars", "bytes")
        assert not resolved.notes


@pytest.mark.parametrize(
    "target",
    ["walked", "some animal is on the mat", "2021-03-04", "12 11 2021", "a  b c", "我 喜欢 苹果 和 香蕉 {n}"],
)
def test_other_targets_are_characters(target, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"source {n}\t{target.replace('{n}', f'词{n}')}\n" for n in range(600)))
    resolved = resolve(Job(task="translate", files=str(path), output=tmp_path / "run"), ALONE)
    assert resolved.config["data"]["target_tokens"] == "chars"
    assert not resolved.notes


def test_the_head_of_a_sorted_file_is_spoken_of(texts, tmp_path):
    with pytest.raises(seqloom.SeqloomError, match=r"all of the first 60 examples .* --sample 60 draws from the whole"):
        train(texts, tmp_path / "one", data={"limit": 60})
    _, notes = train(texts, tmp_path / "two", training={"max_steps": 1}, data={"limit": 120})
    told = "83% of the first 120 have the label 'bad', none of those after them"
    assert f"{told}; the file is sorted: --sample 120 draws from all of it" in notes
    run, notes = train(texts, tmp_path / "three", training={"max_steps": 1}, data={"sample": 60})
    assert json.loads((run.folder / "data.json").read_text())["labels"].keys() == {"bad", "fair", "good"}
    assert not any("is sorted" in note for note in notes)
    lines = texts.read_text().splitlines(keepends=True)
    random.Random(1).shuffle(lines)
    texts.write_text("".join(lines))
    _, notes = train(texts, tmp_path / "four", training={"max_steps": 1}, data={"limit": 120})
    assert not any("is sorted" in note for note in notes)


def test_the_head_of_a_sorted_table_is_spoken_of(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("size,kind\n" + "".join(f"{i},{kind}\n" for kind in ("small", "large") for i in range(100)))
    ready = get_task("table").prepare(PrepareRequest([str(path)], 0.0, TableOptions(limit=110), seed=7))
    assert "91% of the first 110 have the label 'small', none of those after them; the file is sorted" in ready.notes[1]


def test_swapped_columns_are_spoken_of(tmp_path):
    path = tmp_path / "swapped.tsv"
    path.write_text("".join(f"{'good' if i % 2 else 'bad'}\ttext number {i}\n" for i in range(60)))
    with pytest.raises(
        seqloom.SeqloomError, match="60 labels in 60 lines, but only 2 texts: the columns seem to be sw"
    ):
        train(path, tmp_path / "run", training={"max_steps": 1}, valid=0)
    path.write_text("".join(f"{'good' if i % 2 else 'bad'}\ttext number {i % 50}\n" for i in range(600)))
    with pytest.raises(seqloom.SeqloomError, match="50 labels in 600 lines, but only 2 texts"):
        train(path, tmp_path / "run", training={"max_steps": 1}, valid=0)


def test_a_diverged_training_ends_with_a_word(tmp_path):
    steps = [{"step": step, "loss": loss} for step, loss in ((50, 2.3), (100, 3947.0))]
    assert diverged(steps) == (
        "the training diverged: the loss is 3,947 at the end and was 2.3 at the beginning: "
        "try a lower --learning-rate and check the data"
    )
    endless = {"step": 100, "valid": {"loss": 800.0, "perplexity": float("inf")}}
    assert "perplexity on validation data is infinite" in diverged([steps[0], endless])
    assert "updates were skipped at the end" in diverged([steps[0], {"step": 100, "loss": None}])
    by_heart = {"step": 100, "valid": {"loss": 9.0, "perplexity": 8103.0}}
    assert diverged([steps[0], {"step": 100, "loss": 0.01}, by_heart]) is None
    assert diverged([{"step": 50, "loss": 0.01}, {"step": 100, "loss": 0.03}]) is None
    assert diverged([]) is None
    high = {"step": 40, "valid": {"loss": 48.1, "perplexity": 8e20}}
    assert diverged([high]) is None
    assert "the final loss on validation data (48.1) is worse than that of a uniform prediction (3.7)" in diverged(
        [high], 3.7
    )
    assert diverged([{"step": 50, "loss": 0.1}, high], 3.7) is None, "learned by heart"
    assert "the final loss (9.1) is worse than that of a uniform prediction (3.7)" in diverged(
        [{"step": 50, "loss": 9.1}], 3.7
    )
    assert diverged([{"step": 50, "loss": 3.9}, {"step": 9, "valid": {"loss": 7.0}}], 3.7) is None
    path = tmp_path / "numbers.tsv"
    path.write_text("".join(f"{'long ' * (i % 5)}text\t{i % 5}.5\n" for i in range(60)))
    rates = {"learning_rate": 3.0, "clip": 0.0, "optimizer": "sgd", "schedule": "constant", "warmup": 0, "log_every": 1}
    run, notes = train(path, tmp_path / "run", training={"max_steps": 4, **rates}, data={"target": "number"})
    assert notes[-1].startswith("the training diverged: ")
    assert "The training diverged: " in (run.folder / "report.html").read_text()
    words = tmp_path / "words.tsv"
    words.write_text("".join(f"text {i}\t{'ab'[i % 2]}\n" for i in range(60)))
    _, notes = train(
        words, tmp_path / "early", training={"max_steps": 4, **rates, "learning_rate": 1e4, "log_every": 50}
    )
    assert "is worse than that of a uniform prediction" in notes[-1]
