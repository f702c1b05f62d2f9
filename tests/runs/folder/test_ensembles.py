"""Runs that answer together: alike in Python and as a folder, refused where they are unlike; recipes with members."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import seqloom
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError
from seqloom.models.ensemble import StepperEnsemble
from seqloom.runs import config as configs
from seqloom.runs.folder import ensembles
from seqloom.runs.folder.metrics_log import MetricsLog
from seqloom.runs.many import recipe_members
from seqloom.runs.recipes import recipe as recipes
from seqloom.runs.train.job import Job
from seqloom.runs.train.session import METRICS_FILE
from seqloom.runs.train.validation_split import parse_valid, with_fixed_seed
from tests.conftest import words, write_pairs
from tests.tagging import sentences, write_tags

ASKED = [*words(30, seed=9, longest=12), "", "zzz"]
TEXT = {"source_tokens": "chars", "target_tokens": "words"}


def trained(task: str, file: Path, folder: Path, model: str, seed: int = 7, steps: int = 3, **more):
    training = {"max_steps": steps, "batch_rows": 32, "learning_rate": 1e-2, "seed": seed, "valid_decode": 20}
    how = {"size": "tiny", "device": "cpu", "quiet": True, "valid": "10% with seed 7", "training": training}
    return seqloom.train(task, file, output=folder, model=model, **{**how, **more})


@pytest.fixture(scope="module")
def other(pairs, tmp_path_factory) -> Path:
    """A Transformer that has the vocabularies of `run`."""
    return trained("translate", pairs, tmp_path_factory.mktemp("other") / "b", "transformer", 3, 5, data=TEXT).folder


def test_one_run_is_itself_to_the_last_bit(run, tmp_path):
    ensembles.save(tmp_path, [str(run)])
    one, again = seqloom.load(run, "cpu"), seqloom.load(tmp_path, device="cpu")
    assert not isinstance(again.model, StepperEnsemble)
    for search in (Search(), Search(beam=3, n_best=2), Search(sample=True)):
        assert list(again.answers(ASKED, search)) == list(one.answers(ASKED, search))


def test_two_copies_say_what_one_says(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    both, one = seqloom.load(run, copy, "cpu"), seqloom.load(run, "cpu")
    assert isinstance(both.model, StepperEnsemble)
    for search in (Search(), Search(beam=3)):
        assert both.predict(ASKED, search) == one.predict(ASKED, search)
    test = write_pairs(tmp_path / "test.tsv", words(30, seed=5))
    assert both.evaluate(test).metrics == pytest.approx(one.evaluate(test).metrics, abs=1e-4)


def test_models_of_any_kind_and_a_folder_that_names_them(run, other, tmp_path):
    both = seqloom.load(run, other, device="cpu")
    folder = tmp_path / "both"
    shutil.copytree(run, folder / "1")
    shutil.copytree(other, folder / "2")
    ensembles.save(folder, ["1", "2"])
    search = Search(beam=3, n_best=2)
    assert list(seqloom.load(folder, "cpu").answers(ASKED, search)) == list(both.answers(ASKED, search))
    assert len(seqloom.load(folder, run, "cpu").model.members) == 3


def test_an_evaluation_names_the_members(run, other, tmp_path):
    both = seqloom.load(run, other, device="cpu")
    test = write_pairs(tmp_path / "test.tsv", words(20, seed=5))
    told = both.evaluate(test).to_json()
    assert [(one["run"], one["model"]) for one in told["members"]] == [
        (str(run), "gru-attention"),
        (str(other), "transformer"),
    ]
    counts = [sum(p.numel() for p in seqloom.load(one, "cpu").model.parameters()) for one in (run, other)]
    assert [one["parameters"] for one in told["members"]] == counts
    record = both.evaluation_details(both.read([str(test)], both.reading())[0])
    assert told["parameters"] == record["parameters"] == sum(counts)
    assert record["members"] == told["members"]
    assert record["attention"] is None
    assert "members" not in seqloom.load(run, "cpu").evaluate(test).to_json()
    with pytest.raises(SeqloomError, match="no attention of their own: look at one of them"):
        both.attention("abc")


@pytest.mark.parametrize("target", ["label", "labels", "number"])
def test_labels_and_numbers_are_means(target, tmp_path):
    values = {"label": lambda word: word[0], "labels": lambda word: "|".join(sorted(set(word[:2]))), "number": len}
    rows = [(word, values[target](word)) for word in ASKED if word]
    file = tmp_path / "data.tsv"
    file.write_text("".join(f"{word}\t{value}\n" for word, value in rows))
    data, folders = {"tokens": "chars", "target": target}, []
    for seed, model in enumerate(("bag", "gru")):
        folders.append(trained("classify", file, tmp_path / model, model, seed, data=data, valid="0%").folder)
    both, each = seqloom.load(*folders, device="cpu"), [seqloom.load(one, "cpu") for one in folders]
    shape = {
        "label": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
        "labels": lambda x: 1 / (1 + np.exp(-x)),
        "number": lambda x: x,
    }[target]
    mean = sum(shape(one.logits(ASKED).astype(float)) for one in each) / 2
    assert np.allclose(shape(both.logits(ASKED)), mean, atol=1e-6)
    for answers, row in zip(both.answers(ASKED), mean, strict=True):
        if target == "label" and answers[0].text:
            assert answers[0].text == both.target.names[int(row.argmax())]
            assert answers[0].confidence == pytest.approx(row.max(), abs=1e-5)
    assert both.evaluate(file).to_json()["members"][1]["model"] == "gru"
    assert both.evaluation_details(both.read([str(file)], both.reading())[0])["parameters"] > 0


def test_tags_are_those_of_the_mean_marginals(tmp_path):
    file, folders = write_tags(tmp_path / "tags.tsv", sentences(60)), []
    for seed, model in enumerate(("lstm-crf", "window")):
        folders.append(trained("tag", file, tmp_path / model, model, seed, steps=10).folder)
    both, each = seqloom.load(*folders, device="cpu"), [seqloom.load(one, "cpu") for one in folders]
    asked = [tuple(word for word, _ in row) for row in sentences(20, seed=3)]
    source = both.lexicon.words_of(asked)
    with torch.no_grad():
        logs = [one.model.output.marginals(one.model.scores(source), source.lengths) for one in each]
    mean = sum(one.exp() for one in logs) / 2
    for row, (answers, words_) in enumerate(zip(both.answers(asked), asked, strict=True)):
        best = mean[row, : len(words_)].max(-1)
        assert answers[0].tokens == tuple(best.indices.tolist())
        assert answers[0].confidence == pytest.approx(float(best.values.log().mean().exp()), abs=1e-5)
    assert both.evaluate(file).to_json()["members"][0]["model"] == "lstm-crf"
    copy = shutil.copytree(folders[1], tmp_path / "copy")
    assert seqloom.load(folders[1], copy, "cpu").predict(asked) == each[1].predict(asked)


def test_unlike_runs_are_refused(run, tmp_path):
    def changed(name, section, key, value):
        folder, file = tmp_path / name, f"{section}.json"
        shutil.copytree(run, folder, ignore=shutil.ignore_patterns("checkpoints"))
        if section in ("data", "decoding"):
            config = configs.load(folder)
            configs.save(folder, {**config, section: {**config[section], key: value}})
        else:
            stored = json.loads((folder / file).read_text())
            (folder / file).write_text(json.dumps({**stored, key: value(stored[key])}))
        return folder

    for folder, told in (
        (changed("kind", "target", "kind", lambda _: "chars"), r"target.json differs \(kind: words and chars\); train"),
        (changed("fold", "source", "fold", lambda _: True), r"source.json differs \(fold: None and True\)"),
        (
            changed("turned", "source", "tokens", lambda x: x[::-1]),
            r"\(tokens, number 1: '\w' and '\w'\); train both on",
        ),
        (changed("cut", "data", "max_length", 5), r"they cut long texts in other ways \(max_length: None and 5\)"),
        (changed("first", "decoding", "first", 5), r"they decode by other rules \(first: None and 5\)"),
    ):
        with pytest.raises(SeqloomError, match=f"small and .*{folder.name} cannot answer together: .*{told}"):
            seqloom.load(run, folder, device="cpu")
    longer = seqloom.load(run, changed("longer", "decoding", "longest", 99), device="cpu")
    assert longer.config["decoding"]["longest"] == 99, "bounds may differ: the widest counts"
    assert ensembles._first_difference({"tokens": ["a"]}, {"tokens": ["a", "b"]}) == "1 and 2 tokens"
    assert ensembles._first_difference({"tokens": ["a"]}, {"tokens": ["a"], "half_width": False}) is None, (
        "an older file"
    )


def test_other_tasks_are_refused(run, tmp_path):
    plain = tmp_path / "text.txt"
    plain.write_text("once upon a time\n" * 50)
    book = trained("generate", plain, tmp_path / "book", "ngram", valid="10%").folder
    with pytest.raises(SeqloomError, match=r"book: is of the task generate; several .* in translate, classify, tag$"):
        seqloom.load(book, shutil.copytree(book, tmp_path / "copy"), device="cpu")
    with pytest.raises(SeqloomError, match="the one is of the task translate, the other of generate"):
        seqloom.load(run, book, device="cpu")


def test_a_run_does_not_answer_with_itself(run, other, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(run)
    ensembles.save(tmp_path, ["link", str(other)])
    monkeypatch.chdir(run.parent)
    for again in (run, Path(run.name), run / ".." / run.name, tmp_path / "link", tmp_path):
        with pytest.raises(SeqloomError, match="is named twice; several runs answer together, each of them once"):
            seqloom.load(other, run, again, device="cpu")


def test_what_is_no_run_is_said(run, tmp_path):
    with pytest.raises(SeqloomError, match="nowhere: no such run"):
        seqloom.load(run, tmp_path / "nowhere", device="cpu")
    for wrong in ('{"members": []}', '{"members": "1"}', "{}"):
        (tmp_path / "ensemble.json").write_text(wrong)
        with pytest.raises(SeqloomError, match=r"ensemble.json: names its runs by their paths"):
            seqloom.load(tmp_path)
    ensembles.save(tmp_path, [str(run)])
    with pytest.raises(SeqloomError, match=r"stands for several runs; name one of those in its ensemble.json"):
        seqloom.train("translate", "x.tsv", output=tmp_path / "new", start=tmp_path)


# ---------------------------------------------------------------- recipes


def recipe(folder: Path, pairs: Path, **more) -> recipes.Recipe:
    plain = {"about": "a", "paper": "p 2015", "task": "translate", "train": str(pairs), "model": "gru-attention"}
    plain |= {
        "size": "tiny",
        "data": TEXT,
        "training": {"max_steps": 3, "learning_rate": 1e-3},
        "settings": {"dropout": 0.0},
    }
    plain["members"] = [{"seed": 1}, {"seed": 2, "settings": {"tie_embeddings": False}}, {"model": "transformer"}]
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({**plain, **more}))
    return recipes.load(str(path))


def asked(folder: Path, **more) -> Job:
    return Job(task="", files=[], output=folder / "out", device="cpu", **more)


def test_a_recipe_with_members(pairs, tmp_path, monkeypatch):
    test = write_pairs(tmp_path / "test.tsv", words(40, seed=5))
    mine = recipe(tmp_path, pairs, test=str(test), evaluate={"beam": 2, "metrics": ["per"]}, reached={"per": 12.5})
    follow = recipe_members.run_recipe

    def broken(part, job, progress):
        if job.folder.name == "2":
            raise KeyboardInterrupt
        return follow(part, job, progress)

    monkeypatch.setattr(recipe_members, "run_recipe", broken)
    with pytest.raises(KeyboardInterrupt):
        recipe_members.run_members(mine, asked(tmp_path), "quiet")
    out = tmp_path / "out"
    assert not ensembles.is_run(out)
    before = MetricsLog(out / "1" / METRICS_FILE).lines()
    monkeypatch.setattr(recipe_members, "run_recipe", follow)
    with pytest.raises(SeqloomError, match="1: already holds a run; add --resume"):
        recipe_members.run_members(mine, asked(tmp_path), "quiet")
    found = recipe_members.run_members(mine, asked(tmp_path, resume=True), "quiet")
    assert MetricsLog(out / "1" / METRICS_FILE).lines()[: len(before)] == before, "it was not trained again"
    assert [one.run.folder.name for one in found.results] == ["1", "2", "3"]
    assert [configs.load(out / name)["training"]["seed"] for name in "123"] == [1, 2, 7]
    assert {configs.load(out / name)["inputs"]["valid"] for name in "123"} == {"5% with seed 7"}
    told = found.lines(mine)
    assert [line.partition(":")[0] for line in told[:3]] == ["member 1", "member 2", "member 3"]
    assert told[3] == "3 members together, 40 test examples"
    assert "on record 12.5" in told[4]
    kept = json.loads((out / "evaluation-test.json").read_text())
    assert kept["metrics"] == found.scores["metrics"]
    assert [one["model"] for one in kept["members"]] == ["gru-attention", "gru-attention", "transformer"]
    assert yaml.safe_load((out / "recipe.yaml").read_text())["members"] == mine.members
    assert "3 members" in (out / "report.html").read_text(encoding="utf-8")
    assert seqloom.load(out, "cpu").predict(ASKED) == seqloom.load(out / "1", out / "2", out / "3").predict(ASKED)


def test_an_interrupted_member_ends_the_following(pairs, tmp_path, monkeypatch):
    from seqloom.runs.recipes.run_recipe import RecipeResult
    from seqloom.runs.train.train import Run

    stopped = RecipeResult(Run(tmp_path / "1", {}, 1, None, signal=2), None)
    monkeypatch.setattr(recipe_members, "run_recipe", lambda *_: stopped)
    found = recipe_members.run_members(recipe(tmp_path, pairs), asked(tmp_path), "quiet")
    assert (len(found.results), found.signal, found.lines(recipe(tmp_path, pairs))) == (1, 2, [])
    assert not ensembles.is_run(tmp_path / "out")


def test_members_differ_as_they_say(pairs, tmp_path):
    first, second, third = recipe(tmp_path, pairs).parts()
    assert (first.training, first.settings) == ({"max_steps": 3, "learning_rate": 1e-3, "seed": 1}, {"dropout": 0.0})
    assert second.settings == {"dropout": 0.0, "tie_embeddings": False}
    assert (third.model, third.size, third.settings) == ("transformer", "tiny", {})
    assert first.members == [] == first.parts()[0].members


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([{"sed": 1}, {}], "unknown setting of member 1 in mine.yaml 'sed'; did you mean 'seed'"),
        ([{"seed": "x"}, {}], "member 1 in mine.yaml.seed takes a whole number"),
        ([1, 2], "member 1 is made of keys and values"),
        ([{"seed": 1}], "members are at least two"),
        ([{"seed": 1}, {"seed": 1}], "no two alike: give each its own seed"),
    ],
)
def test_wrong_members(pairs, tmp_path, values, message):
    with pytest.raises(SeqloomError, match=message):
        recipe(tmp_path, pairs, members=values)


def test_what_would_stop_a_member_is_said_first(pairs, tmp_path):
    mine = recipe(tmp_path, pairs)
    with pytest.raises(SeqloomError, match="have seeds of their own; leave --seed out"):
        recipe_members.member_jobs(mine, asked(tmp_path, training={"seed": 3}))
    with pytest.raises(SeqloomError, match="did you mean 'transformer'"):
        recipe_members.member_jobs(recipe(tmp_path, pairs, members=[{}, {"model": "transfomer"}]), asked(tmp_path))
    with pytest.raises(SeqloomError, match="recipe mine: is of the task generate"):
        recipe_members.member_jobs(recipe(tmp_path, pairs, task="generate", model="gru"), asked(tmp_path))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "config.yaml").touch()
    with pytest.raises(SeqloomError, match="out: already holds a run; name another --output"):
        recipe_members.member_jobs(mine, asked(tmp_path))


def test_a_share_may_have_a_seed_of_its_own(pairs, tmp_path):
    assert parse_valid("5% with seed 3") == parse_valid("0.05 with seed 3") == 0.05
    assert parse_valid("my 5% with seed 3.tsv") == ["my 5% with seed 3.tsv"]
    assert [with_fixed_seed(valid, 0) for valid in (0.1, "5%", "5% with seed 3", "dev.tsv", "0%")] == [
        *("0.1 with seed 0", "5% with seed 0", "5% with seed 3", "dev.tsv", "0%")
    ]
    held = [
        trained("translate", pairs, tmp_path / str(seed), "gru", seed, valid="20% with seed 0").folder
        for seed in (1, 2)
    ]
    told = [json.loads((one / "evaluation-valid.json").read_text())["fingerprint"] for one in held]
    assert told[0] == told[1]
