"""What a training may be asked for besides training: fine-tuning, folds, a dry run, a recipe."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import seqloom
from seqloom.data.splits.split import Fold, Split
from seqloom.errors import SeqloomError
from seqloom.runs import config as configs
from seqloom.runs.many.cross_validation import Folds, _mean_and_deviation, cross_validate
from seqloom.runs.progress import Lines, Silent
from seqloom.runs.recipes.recipe import Recipe
from seqloom.runs.recipes.run_recipe import job_of, run_recipe
from seqloom.runs.train.job import Job
from seqloom.runs.train.train import Run, dry_run, run_job
from seqloom.runs.train.validation_split import parse_valid
from seqloom.training.checkpoint import read_tensors
from tests.conftest import words, write_pairs

FOLDS = [(0, 1.0), (1, float("inf"))]
TEXT = {"source_tokens": "chars", "target_tokens": "words"}


def job(files: Path, output: Path, **more) -> Job:
    plain = {"model": "gru-attention", "size": "tiny", "data": TEXT, "training": {"max_steps": 3, "batch_rows": 32}}
    return Job(task="translate", files=files, output=output, device="cpu", **{**plain, **more})


def tuned(run: Path, files: Path, output: Path, **more) -> Job:
    return job(files, output, model=None, size=None, data={}, start=run, **more)


def test_fine_tuning_starts_from_the_weights_and_vocabularies(run, tmp_path):
    """At a rate of almost nothing the model stays what it was; new letters are unknown, not new tokens."""
    files = write_pairs(tmp_path / "new.tsv", words(80, seed=9))
    files.write_text(files.read_text() + "zzz\tAH AH\n")
    training = {"max_steps": 2, "learning_rate": 1e-12, "weight_decay": 0.0}
    made = run_job(tuned(run, files, tmp_path / "tuned", training=training), Silent())
    old, new = (read_tensors(folder / "model.safetensors") for folder in (run, made.folder))
    assert all(torch.allclose(old[name], new[name], atol=1e-9) for name in old)
    for name in ("source.json", "target.json"):
        assert (made.folder / name).read_bytes() == (run / name).read_bytes()
    assert seqloom.load(made.folder).predict(["abba"]) == seqloom.load(run).predict(["abba"])
    config = configs.load(made.folder)
    assert config["inputs"]["from"] == str(run)
    assert config["model"] == configs.load(run)["model"]


def test_fine_tuning_is_resumed_without_the_run_it_came_from(run, pairs, tmp_path):
    steady = {"save_every": 3, "schedule": "constant"}
    run_job(tuned(run, pairs, tmp_path / "whole", training={**steady, "max_steps": 6}), Silent())
    run_job(tuned(run, pairs, tmp_path / "halves", training={**steady, "max_steps": 3}), Silent())
    run_job(tuned(tmp_path / "gone", pairs, tmp_path / "halves", training={"max_steps": 6}, resume=True), Silent())
    last = Path("checkpoints") / "step-000000006" / "weights.safetensors"
    whole, halves = (read_tensors(tmp_path / name / last) for name in ("whole", "halves"))
    assert all(torch.equal(whole[name], halves[name]) for name in whole)


def test_fine_tuning_that_was_killed_before_its_first_checkpoint_starts_from_the_weights_again(run, pairs, tmp_path):
    steady = {"save_every": 3, "max_steps": 3}
    whole = run_job(tuned(run, pairs, tmp_path / "whole", training=steady), Silent())
    killed = shutil.copytree(whole.folder, tmp_path / "killed")
    shutil.rmtree(killed / "checkpoints")
    run_job(tuned(run, pairs, killed, training=steady, resume=True), Silent())
    last = Path("checkpoints") / "step-000000003" / "weights.safetensors"
    one, other = (read_tensors(folder / last) for folder in (whole.folder, killed))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_an_imported_model_is_trained_from_and_then_resumed_but_not_resumed_itself(pairs, tmp_path):
    from seqloom.runs.interop.huggingface_export import export_hf
    from seqloom.runs.interop.huggingface_import import import_hf

    run_job(job(pairs, tmp_path / "own", model="transformer"), Silent())
    export_hf(tmp_path / "own", tmp_path / "theirs")
    import_hf(tmp_path / "theirs", tmp_path / "imported")
    training = {"max_steps": 2, "batch_rows": 32}
    made = run_job(tuned(tmp_path / "imported", pairs, tmp_path / "tuned", training=training), Silent())
    assert made.step == 2
    again = Job(task="translate", files=pairs, output=made.folder, training={"max_steps": 4}, resume=True, device="cpu")
    assert run_job(again, Silent()).step == 4
    assert seqloom.load(made.folder).predict(["abba"])
    with pytest.raises(SeqloomError, match="was imported, not trained here: train from it with --from"):
        run_job(job(pairs, tmp_path / "imported", resume=True), Silent())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"model": "lstm"}, "brings its model: leave --model and --size out"),
        ({"data": {"target_tokens": "chars"}}, "brings its vocabularies: target_tokens stays words"),
        ({"settings": {"data.lowercase": "casefold"}}, "brings its vocabularies: lowercase stays False"),
        ({"settings": {"decoder.dim": 64}}, "does not fit the model of config.yaml"),
    ],
)
def test_what_comes_with_the_weights_cannot_be_chosen_again(run, pairs, tmp_path, more, message):
    with pytest.raises(SeqloomError, match=message):
        run_job(Job(task="translate", files=pairs, output=tmp_path / "no", start=run, **more), Silent())
    assert not (tmp_path / "no").exists()


def test_folds_hold_out_every_example_once(pairs, tmp_path):
    count, hashes = 4, np.random.default_rng(0).integers(0, 2**64, 1000, dtype=np.uint64)
    held = [Split.of([str(pairs)], Fold(number + 1, count), seed=7).held_out(hashes) for number in range(count)]
    assert (np.sum(held, 0) == 1).all()
    assert min(one.sum() for one in held) > 200
    edges = np.array([0, 2**64 - 1], dtype=np.uint64)
    assert (np.sum([Split.of([str(pairs)], Fold(n + 1, 3), seed=7).held_out(edges) for n in range(3)], 0) == 1).all()


def test_cross_validation(pairs, tmp_path):
    found = cross_validate(job(pairs, tmp_path / "folds"), 3, "quiet")
    assert [run.folder.name for run in found.runs] == ["fold-1", "fold-2", "fold-3"]
    held = [configs.load(run.folder)["inputs"]["valid"] for run in found.runs]
    assert held == ["fold 1/3", "fold 2/3", "fold 3/3"]
    values = [run.best["scores"]["loss"] for run in found.runs]
    mean, spread = found.scores["loss"]
    assert mean == pytest.approx(sum(values) / 3)
    assert spread == pytest.approx(np.std(values, ddof=1))
    kept = json.loads((tmp_path / "folds" / "folds.json").read_text())
    assert kept["scores"]["loss"]["mean"] == pytest.approx(mean)
    assert "3 folds" in (tmp_path / "folds" / "report.html").read_text(encoding="utf-8")
    sizes = [json.loads((run.folder / "data.json").read_text())["valid"]["pairs"] for run in found.runs]
    assert sum(sizes) == len(pairs.read_text().splitlines())


def test_to_resume_what_is_not_there_is_said(pairs, tmp_path, capsys):
    run_job(job(pairs, tmp_path / "new", resume=True), Lines())
    assert f"{tmp_path / 'new'}: holds no run to resume; a new one begins" in capsys.readouterr().err


def test_wrong_folds(pairs, tmp_path):
    with pytest.raises(SeqloomError, match="--folds takes 2 or more"):
        cross_validate(job(pairs, tmp_path), 1, "quiet")
    with pytest.raises(SeqloomError, match="exclude one another"):
        cross_validate(job(pairs, tmp_path, valid="5%"), 3, "quiet")
    assert parse_valid("fold 2/5") == Fold(2, 5)
    for wrong in ("fold 1/0", "fold 5/3", "fold 0/3", "fold 1/1"):
        with pytest.raises(SeqloomError, match="there are folds 1 to"):
            parse_valid(wrong)
    for wrong in ("fold 1/99999999999", "fold 1/10001", "fold 1/99999999999 with seed 7", f"fold 1/{'9' * 5000}"):
        with pytest.raises(SeqloomError, match=r"^fold 1/[0-9]{5,100}: there are at most 10,000 folds$"):
            parse_valid(wrong)
    assert parse_valid("fold 1/10000") == Fold(1, 10_000)


def test_more_folds_than_examples(pairs, tmp_path):
    with pytest.raises(SeqloomError, match=r"fold \d+/5000 holds nothing: there are too few examples"):
        cross_validate(job(pairs, tmp_path / "folds"), 5000, "quiet")


def test_a_run_of_another_task_or_model_is_not_gone_on_with(run, pairs, tmp_path):
    """One line, whatever follows from it."""
    with pytest.raises(SeqloomError, match="holds a run of the task translate, not of classify"):
        run_job(replace(job(pairs, run, resume=True), task="classify"), Silent())
    with pytest.raises(SeqloomError, match=r"with other settings: model: [\w-]+ -> transformer$"):
        run_job(job(pairs, run, resume=True, model="transformer"), Silent())


def test_a_fold_without_a_number_has_no_mean():
    runs = [Run(Path(f"fold-{n}"), {}, 1, {"step": 1, "scores": {"per": 5.0 + n, "loss": loss}}) for n, loss in FOLDS]
    found = Folds(runs, _mean_and_deviation([run.best["scores"] for run in runs if run.best]))
    assert found.scores.keys() == {"per"}
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["folds"][1]["scores"]["loss"] is None


def test_a_dry_run_writes_nothing_and_tells_the_cost(pairs, tmp_path):
    cost = dry_run(job(pairs, tmp_path / "none", training={"epochs": 5, "batch_rows": 32}), Silent())
    assert not (tmp_path / "none").exists()
    assert abs(cost.batches - 0.95 * 600 / 32) <= 2
    assert cost.epoch == pytest.approx(cost.step * cost.batches, rel=0.5)
    assert cost.total == pytest.approx(5 * cost.epoch)
    assert cost.memory > 1e8
    assert 0 < cost.loss < 10
    assert any("parameters" in line for line in cost.lines())
    assert cost.lines()[-1] == f"first loss {cost.loss:.3f} nats per target token"


def test_a_dry_run_counts_by_what_the_task_does_and_says_its_size_once(tmp_path, capfd):
    rows = [(f"{'good' if n % 2 else 'bad'} film", n % 2) for n in range(20)]
    (tmp_path / "texts.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in rows))
    for target, unit in (("label", "nats per text"), ("number", "squared error per text")):
        asked = {"task": "classify", "files": tmp_path / "texts.tsv", "output": tmp_path / "n", "size": "tiny"}
        sections = {"data": {"target": target}, "training": {"batch_rows": 32}}
        cost = dry_run(Job(**asked, **sections, device="cpu"), Lines())
        assert cost.lines()[-1].endswith(unit)
        assert cost.lines()[1].startswith("1 batch an epoch")
        assert "parameters" not in capfd.readouterr().err  # they are among the lines


def test_the_end_that_comes_first_counts(pairs, tmp_path):
    cost = dry_run(job(pairs, tmp_path / "n", training={"epochs": 5, "max_steps": 2, "batch_rows": 32}), Silent())
    assert cost.total == pytest.approx(2 * cost.epoch / cost.batches)
    cost = dry_run(job(pairs, tmp_path / "n", training={"time": 0.5}), Silent())
    assert cost.total == 0.5


def recipe(pairs: Path, **more) -> Recipe:
    plain = {"name": "mine", "about": "a", "paper": "p 2015", "task": "translate", "train": str(pairs)}
    plain |= {"model": "gru-attention", "size": "tiny", "data": TEXT, "training": {"max_steps": 3}}
    return Recipe(**{**plain, **more})


def test_a_recipe_is_followed_and_kept(pairs, tmp_path):
    test = write_pairs(tmp_path / "test.tsv", words(40, seed=5))
    mine = recipe(pairs, test=str(test), evaluate={"beam": 2, "metrics": ["per"]}, reached={"per": 12.5})
    asked = job_of(mine, Job(task="", files=[], output=tmp_path / "run", device="cpu"))
    followed = run_recipe(mine, asked, Silent())
    assert followed.scores is not None
    assert followed.scores["count"] == 40
    assert "on record 12.5" in "\n".join(followed.lines(mine))
    kept = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())
    assert kept["training"] == {"max_steps": 3}
    result = json.loads((tmp_path / "run" / "evaluation-test.json").read_text())
    assert result["search"]["beam"] == 2
    assert "Test data" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_what_the_user_asks_for_wins_over_the_recipe(pairs):
    mine = recipe(pairs, settings={"decoder.score": "dot"})
    asked = job_of(
        mine, Job(task="", files=[], output="x", training={"max_steps": 9, "learning_rate": None}, model="lstm")
    )
    assert (asked.model, asked.size, asked.training) == ("lstm", None, {"max_steps": 9})
    assert asked.settings == {"decoder.score": "dot"}


def test_a_batch_in_tokens_replaces_one_in_rows_and_a_run_replaces_the_model(pairs):
    mine = recipe(pairs, training={"batch_rows": 64, "epochs": 2}, settings={"dropout": 0.5})
    asked = job_of(mine, Job(task="", files=[], output="x", training={"batch_tokens": 500}, start="runs/other"))
    assert asked.training == {"batch_tokens": 500, "epochs": 2}
    assert (asked.model, asked.size, asked.settings) == (None, None, {})


def test_a_recipe_without_test_data_scores_nothing(pairs, tmp_path):
    mine = recipe(pairs)
    followed = run_recipe(mine, job_of(mine, Job(task="", files=[], output=tmp_path / "run", device="cpu")), Silent())
    assert followed.scores is None
    assert followed.lines(mine) == []


def test_the_rate_counts_training_alone(pairs, tmp_path, monkeypatch):
    """A validation between two lines of the log takes its time from neither."""
    from seqloom.runs.train import session
    from seqloom.training.loop import Loop

    class Clock:
        now = 0.0

        @classmethod
        def monotonic(cls) -> float:
            return cls.now

    update, scores = Loop._update, session.Session._scores

    def slow_update(self):
        Clock.now += 1
        return update(self)

    def slow_scores(self):
        Clock.now += 1000
        return scores(self)

    monkeypatch.setattr(session, "time", Clock)
    monkeypatch.setattr(Loop, "_update", slow_update)
    monkeypatch.setattr(session.Session, "_scores", slow_scores)
    training = {"max_steps": 20, "batch_rows": 32, "log_every": 5, "valid_every": 7}
    made = run_job(job(pairs, tmp_path / "run", training=training), Silent())
    lines = [line for line in made.history() if "learning_rate" in line]
    assert len(lines) == 4
    for line in lines:
        assert line["tokens_per_second"] == pytest.approx(line["tokens"] / 5, abs=0.1)
    # What was trained before a resume does not count for the time after it.
    for steps, resume in ((8, False), (11, True)):
        training = {"max_steps": steps, "batch_rows": 32, "log_every": 5, "valid_every": 7}
        made = run_job(job(pairs, tmp_path / "resumed", training=training, resume=resume), Silent())
    line = next(line for line in made.history() if line.get("step") == 10 and "learning_rate" in line)
    assert line["tokens_per_second"] == pytest.approx(line["tokens"] / 5, rel=0.3)
