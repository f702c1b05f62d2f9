"""A recipe on other data than its own, and test data for any training: what is scored, and what is not compared."""

from __future__ import annotations

import json

import pytest
import yaml

import seqloom.runs.many.recipe_members
from seqloom.errors import SeqloomError
from seqloom.runs.evaluate import test_scores
from seqloom.runs.many.cross_validation import Folds, cross_validate
from seqloom.runs.recipes import recipe as recipes
from seqloom.runs.recipes import run_recipe
from seqloom.runs.train.job import Job
from tests.cli.conftest import one_line, seqloom  # noqa: F401 - a fixture
from tests.conftest import pronounce, words, write_pairs

FEW = ["--limit", "60", "--max-steps", "1", "--size", "tiny", "--device", "cpu"]


def asked(files: list, **more) -> Job:
    return Job(task="", files=files, output="runs/x", **more)


def test_what_belongs_to_the_recipes_files_stays_behind():
    mine = recipes.load("pinyin-tags")
    own = run_recipe.on_own_data(mine, asked(["mine.conll"]))
    assert (own.train, own.valid, own.test, own.reached, own.published) == (["mine.conll"], None, None, {}, "")
    assert (own.training, own.model) == (mine.training, mine.model), "how it trains stays"
    assert run_recipe.test_files(own) == []
    assert run_recipe.on_own_data(recipes.load("trec"), asked(["mine.tsv"])).valid == "10%", "a share is of any data"
    assert run_recipe.job_of(own, asked(["mine.conll"])).valid is None


def test_the_tokens_of_a_recipes_dataset_stay(tmp_path):
    (tmp_path / "mine.yaml").write_text("about: a\ntask: translate\ntrain: cmudict-g014b2b\nmodel: gru\n")
    own = run_recipe.on_own_data(recipes.load(str(tmp_path / "mine.yaml")), asked(["mine.tsv"]))
    assert own.data == {"source_tokens": "chars", "target_tokens": "words"}


def test_on_its_own_data_a_recipe_keeps_its_record(tmp_path):
    mine = recipes.load("ewt")
    assert run_recipe.on_own_data(mine, asked([])) is mine
    assert run_recipe.on_own_data(mine, asked(["ud-ewt"])) is mine
    for test in ("ud-ewt", "ud-ewt:test"):
        assert run_recipe.on_own_data(mine, asked([], test=test)) is mine, "what it is scored on anyway"
    other = tmp_path / "test.tsv"
    other.write_text("why ?\tDESC\n")
    assert run_recipe.on_own_data(recipes.load("trec"), asked([], test=str(other))).reached == {}


def test_its_own_dataset_by_name_is_followed_as_it_was_recorded(seqloom, tmp_path, monkeypatch):  # noqa: F811
    def stop(recipe, job, progress):
        raise SeqloomError(f"{job.names} recorded {job.recorded}")

    monkeypatch.setattr(run_recipe, "run_recipe", stop)
    (tmp_path / "mine.yaml").write_text("about: a\ntask: translate\ntrain: copy\nmodel: gru\nsize: tiny\n")
    for names, recorded in (([], True), (["copy"], True), (["reverse"], False)):
        result = seqloom("train", "--recipe", tmp_path / "mine.yaml", *names, "-o", tmp_path / "run")
        assert f"{names or ['copy']} recorded {recorded}" in result[2]


def test_another_dataset_is_scored_on_its_own_test_split():
    own = run_recipe.on_own_data(recipes.load("trec"), asked(["sst2"]))
    assert (run_recipe.test_files(own), own.reached) == (["sst2:test"], {})


def test_a_recipe_on_own_files_is_scored_on_test_and_on_nothing_else(seqloom, pairs, tmp_path):  # noqa: F811
    test = write_pairs(tmp_path / "test.tsv", words(9, seed=5))
    way = ["train", "--recipe", "cmudict-cpu", *FEW]
    status, out, err = seqloom(*way, pairs, "--test", test, "-o", tmp_path / "a")
    assert status == 0
    assert "on your own data: its record (per 5.99, exact_match 74.41) is of other data and not compared" in err
    assert out.startswith("9 test examples\n  per ")
    assert "on record" not in out
    assert seqloom(*way, pairs, "--test", test, "-o", tmp_path / "b", "--quiet") == (0, "", "")
    kept = yaml.safe_load((tmp_path / "a" / "recipe.yaml").read_text())
    assert (kept["train"], kept["test"]) == ([str(pairs)], [str(test)])
    assert not {"reached", "published"} & kept.keys()
    scores = json.loads((tmp_path / "a" / "evaluation-test.json").read_text())
    assert (scores["count"], scores["search"]["beam"]) == (9, 5), "as the recipe scores"


def test_without_test_data_validation_alone_is_said_to_be_it():
    mine = recipes.load("cmudict-cpu")
    told = run_recipe.own_data_note(mine, run_recipe.on_own_data(mine, asked(["mine.tsv"])))
    assert told.endswith("without --test FILE it is scored on the validation data alone")


def test_any_training_is_scored_on_test(seqloom, pairs, tmp_path):  # noqa: F811
    test = write_pairs(tmp_path / "test.tsv", words(9, seed=5))
    way = ["train", "translate", pairs, "--test", test, "-o", tmp_path / "run", "--target-tokens", "words", *FEW]
    status, out, _ = seqloom(*way)
    assert status == 0
    assert out.startswith("9 test examples\n")
    rows = {line[2:20].strip(): line[20:].split()[0] for line in out.splitlines()[1:]}
    assert "wer" not in rows, "it would be the per again"
    assert float(rows["word error rate"]) == 100 - float(rows["exact_match"])
    assert json.loads((tmp_path / "run" / "evaluation-test.json").read_text())["count"] == 9
    assert "Test data" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert seqloom(*way, "--resume", "--quiet") == (0, "", ""), "quiet prints nothing"
    assert (tmp_path / "run" / "evaluation-test.json").exists()


def test_long_names_of_scores_keep_the_columns():
    scores = {"count": 2, "metrics": {"accuracy": 1.0, "calibration_error": 22.0}, "intervals": {}}
    assert test_scores.lines(scores)[1:] == ["  accuracy              1.00", "  calibration_error    22.00"]
    told = Folds([], {"loss": (1.0, 0.5), "calibration_error": (22.0, 0.5)}).lines()[1:]
    assert told == ["  loss                  1.00 ± 0.50", "  calibration_error    22.00 ± 0.50"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["a", "b"], "a: no such file or dataset, and no task; --recipe brings its task, and its own data if no files"),
        (["transalte", "b"], "transalte: no such file or dataset, and no task; did you mean the task 'translate'?"),
        (["tag", "b"], "recipe cmudict-cpu is of the task translate, not of tag"),
    ],
)
def test_words_beside_a_recipe_that_make_no_sense(seqloom, arguments, told):  # noqa: F811
    result = seqloom("train", "--recipe", "cmudict-cpu", *arguments)
    one_line(result, told)
    assert result[0] == 2


def test_what_cannot_be_scored_is_said_before_the_training(seqloom, pairs, tmp_path):  # noqa: F811
    for test, told in (
        (tmp_path / "nix.tsv", "nix.tsv: no such file"),
        ("-", "--test names files or a dataset"),
        ("ud-ewt", "ud-ewt: is a dataset for the task tag, not for translate"),
    ):
        one_line(seqloom("train", "translate", pairs, "--test", test, "-o", tmp_path / "run", *FEW), told)
        one_line(seqloom("train", "--recipe", "cmudict-cpu", pairs, "--test", test, "-o", tmp_path / "run", *FEW), told)
    assert not (tmp_path / "run").exists()
    with pytest.raises(SeqloomError, match="--folds and --test exclude one another"):
        cross_validate(asked([str(pairs)], test=str(pairs)), 2, "quiet")


@pytest.mark.parametrize("start", [["translate"], ["--recipe", "cmudict-cpu"]])
def test_notes_on_the_test_data_are_told_unless_quiet(seqloom, pairs, tmp_path, start):  # noqa: F811
    rows = "".join(f"ö{word}\t{pronounce(word)}\n" for word in words(9, seed=5))
    (tmp_path / "test.tsv").write_text(f"source\ttarget\n{rows}", encoding="latin-1")
    way = ["train", *start, pairs, "--test", tmp_path / "test.tsv", *FEW]
    status, _, err = seqloom(*way, "-o", tmp_path / "a")
    told = [line for line in err.splitlines() if line.startswith("test data: ")]
    assert (status, len(told)) == (0, 3), err
    for note, part in zip(
        told, ("read as", "the first line (source,target) is taken", "9 unknown characters"), strict=True
    ):
        assert part in note
    assert seqloom(*way, "-o", tmp_path / "b", "--quiet") == (0, "", "")
