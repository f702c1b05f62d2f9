"""Recipes: every one that ships loads, and what is wrong in one is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from seqloom.errors import SeqloomError
from seqloom.runs import config
from seqloom.runs.recipes import recipe as recipes
from seqloom.runs.recipes import run_recipe

PLAIN = {"about": "a", "paper": "p 2015", "task": "translate", "train": "words.tsv", "model": "gru"}


def write(folder: Path, **values) -> str:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({**PLAIN, **values}))
    return str(path)


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_composes_to_a_config_and_names_its_paper(name):
    recipe = recipes.load(name)
    run_recipe.check(recipe, name)
    for part in recipe.parts():
        made = config.compose(part.task, part.model, part.size, part.data, part.training, part.settings)
        assert made["preset"]["model"] == part.model
    assert any(str(year) in recipe.paper for year in range(1986, 2027))
    if not recipe.reached:
        return  # `seqloom recipes` says that it has no score on record yet
    assert {"hardware", "time", "date", "results"} <= recipe.reached.keys(), "a recipe says what it reached, and where"
    assert recipe.reached["signature"].keys() == recipe.scores().keys(), "and how that was counted"
    assert recipe.members or recipe.reached["seeds"], "and of which trainings"
    results = Path(__file__).parents[3] / recipe.reached["results"]
    assert results.is_file()
    for value in recipe.scores().values():
        assert f"{value:g}" in results.read_text(encoding="utf-8")


def test_scores_beside_those_on_record_say_if_they_were_counted_otherwise(tmp_path):
    signature = {"per": "per|refs:closest|case:mixed|version:0.1.0", "bleu": "BLEU|tok:moses|version:2.6.0"}
    recipe = recipes.load(write(tmp_path, reached={"per": 5.5, "bleu": 40.0, "signature": signature}))
    now = {"per": "per|refs:closest|case:mixed|version:0.4.0", "bleu": "BLEU|tok:13a|version:2.6.0"}
    scores = {"count": 3, "metrics": {"per": 5.0, "bleu": 39.0}, "intervals": {}, "signature": now}
    _, per, bleu = run_recipe.comparison_lines(recipe, scores)
    assert per.endswith("5.00  on record 5.5"), "another version counts alike"
    assert bleu.endswith("on record 40, counted otherwise: BLEU|tok:moses|version:2.6.0")


def test_a_recipe_of_ones_own_finds_the_files_beside_it(tmp_path):
    (tmp_path / "words.tsv").write_text("a\tb\n")
    recipe = recipes.load(write(tmp_path, valid=["words.tsv", "elsewhere.tsv"]))
    assert recipe.name == "mine"
    assert recipe.train == str(tmp_path / "words.tsv")
    assert recipe.valid == [str(tmp_path / "words.tsv"), "elsewhere.tsv"]


def test_written_is_what_was_read(tmp_path):
    recipe = recipes.load(write(tmp_path, evaluate={"beam": 5}, reached={"per": 5.5, "time": "1 min"}))
    assert recipes.load(write(tmp_path, **recipes.recipe_values(recipe))) == recipe
    assert recipe.scores() == {"per": 5.5}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"modell": "gru"}, "unknown setting of recipe mine.yaml 'modell'; did you mean 'model'"),
        ({"evaluate": {"beams": 5}}, "unknown setting of evaluate in mine.yaml 'beams'; did you mean 'beam'"),
        ({"evaluate": {"metrics": "per"}}, "evaluate in mine.yaml.metrics takes"),
        ({"evaluate": {"metrics": ["pre"]}}, "unknown metric of evaluate in mine.yaml 'pre'; did you mean 'per'"),
        ({"evaluate": {"metrics": ["f1"]}}, "mine.yaml: evaluate: f1 is no metric of the task translate"),
        ({"training": 5}, "training takes keys and values, here 5"),
        ({"train": 5}, "train takes text or a list, here 5"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, values, message):
    with pytest.raises(SeqloomError, match=message):
        recipes.load(write(tmp_path, **values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"training": {"learning_rate": "fast"}}, "training.learning_rate takes a number, here 'fast'"),
        ({"training": {"lerning_rate": 1}}, "unknown setting of training 'lerning_rate'; did you mean 'learning_rate'"),
        ({"settings": {"encoder.dropout": 7}}, "dropout of RecurrentEncoder is at least 0 and below 1, here 7"),
        ({"model": "gruu"}, "unknown model 'gruu'; did you mean 'gru'"),
        ({"task": "translat"}, "unknown task 'translat'; did you mean 'translate'"),
        ({"data": {"source_tokens": "charz"}}, "data.source_tokens: unknown kind of tokens 'charz'"),
        ({"valid": "200%"}, "a validation share lies between 0% and 100%"),
        ({"evaluate": {"beam": -3}}, "beam and n-best are at least 1"),
        ({"evaluate": {"tokenize": "foo"}}, "unknown tokenizer 'foo'"),
        ({"evaluate": {"tokenize": "moses:xy"}}, "tokenizer 'moses:xy': the languages of moses are"),
        ({"data": {"fold": "upper"}}, "unknown value of lowercase 'upper'"),
        ({"members": [{}, {"model": "gruu"}]}, "member 2: unknown model 'gruu'"),
    ],
)
def test_a_wrong_value_is_said_to_stand_in_the_recipe(tmp_path, values, message):
    path = write(tmp_path, **values)
    with pytest.raises(SeqloomError, match=f"^recipe {path}: {message}"):
        run_recipe.check(recipes.load(path), path)


def test_a_recipe_from_before_moses_took_a_language_is_followed(tmp_path):
    path = write(tmp_path, data={"lowercase": "casefold"}, evaluate={"tokenize": "moses"})
    run_recipe.check(recipes.load(path), path)


def test_what_is_missing_is_named(tmp_path):
    path = tmp_path / "short.yaml"
    path.write_text("about: nothing else\n")
    with pytest.raises(SeqloomError, match=r"short.yaml: a recipe needs about, task, train, model; task is missing"):
        recipes.load(str(path))
    path.write_text("about: a slip\ntask: tag\ntrain: ud-ewt\nmodle: lstm-crf\n")
    with pytest.raises(SeqloomError, match=r"unknown setting of recipe short.yaml 'modle'; did you mean 'model'"):
        recipes.load(str(path))


def test_a_file_that_is_no_recipe(tmp_path):
    (tmp_path / "words.tsv").write_text("a\tb\n")
    with pytest.raises(SeqloomError, match=r"words.tsv: is no recipe; .* ends in .yaml"):
        recipes.load(str(tmp_path / "words.tsv"))


def test_an_unknown_name_is_guessed():
    with pytest.raises(SeqloomError, match="unknown recipe 'cmudict-cp'; did you mean 'cmudict-cpu'"):
        recipes.load("cmudict-cp")
