"""Scores beside the literature: what is trained once, what is judged how, and a training that is asked to end."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import papers
import pytest
import scoring as judging
import yaml
from published import ROWS, Goal, Row

from seqloom.runs.recipes import recipe as recipes

OWN = {
    "about": "a",
    "paper": "p 2015",
    "task": "translate",
    "train": "copy",
    "model": "gru-attention",
    "size": "tiny",
    "data": {"source_tokens": "words", "target_tokens": "words"},
    "training": {"epochs": 1},
    "evaluate": {"metrics": ["per", "exact_match"]},
}


@pytest.fixture(scope="module")
def found():
    return papers.pieces_of(ROWS)


def parsed(*words: str):
    return papers.arguments(list(map(str, words)))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_every_row_is_scored_by_what_its_recipe_measures(row):
    recipe = recipes.load(row.recipe)
    assert {goal.metric for goal in row.goals} <= set(recipe.evaluate["metrics"])
    for goal in row.goals:
        assert goal.verdict(goal.must) in ("must", "aim")
        assert goal.aim is None or (goal.aim > goal.must) == goal.rises


def test_members_that_are_rows_of_their_own_are_trained_once(found):
    *_, together = found["cmudict-ensemble"]
    attentive, transformers = ([f"cmudict-ensemble-{number}" for number in part] for part in ((1, 2, 3), (7, 8, 9)))
    assert together.needs == (*attentive, *(f"cmudict-lstm-{seed}" for seed in (7, 8, 9)), *transformers)
    assert found["sigmorphon-ensemble"][0] is found["sigmorphon"][0]
    few = papers.chosen(found, [row for row in ROWS if row.key in ("cmudict-transformer", "cmudict-ensemble")], 1)
    assert list(few) == ["cmudict-transformer-7", *together.needs, "cmudict-ensemble"]
    assert papers.facts(found["multi30k-gru"][0])["fold"] == "lower"
    assert not papers.facts(found["multi30k-gru, cased"][0])["fold"]


def test_a_table_has_means_and_verdicts(found):
    rows = [row for row in ROWS if row.key in ("cmudict-lstm", "cmudict-ensemble")]
    outcomes = [
        {"key": f"cmudict-lstm-{seed}", "scores": {"per": per, "exact_match": 74.0}, "seconds": 60.0, "epochs": 9}
        for seed, per in ((7, 6.5), (8, 6.7))
    ]
    lines = papers.table(found, rows, outcomes).splitlines()
    assert lines[2].startswith("| cmudict-lstm | PER | 6.60 (6.50 6.70), must | 7 | 6 | ≈7.6 | 60 s, 9 epochs; ")
    assert "| WER | 26.00 (26.00 26.00), must | 27 | 25 | ≈28.6 |" in lines[3]
    assert "| cmudict-ensemble | PER | – | 4.7 |" in lines[4]
    assert Goal("BLEU", "bleu", 36, 39, rises=True).verdict(35.9) == "short"


def test_a_trial_has_settings_besides_the_recipes(found):
    given = papers.settings_of(["training.r_drop=3", "encoder.cell=gru"])
    assert given == {"training.r_drop": 3, "encoder.cell": "gru"}
    row = next(row for row in ROWS if row.key == "sigmorphon")
    [piece] = papers.pieces_of([row], given)["sigmorphon"]
    assert piece.job.settings["training.r_drop"] == 3
    assert "training.r_drop" not in found["sigmorphon"][0].job.settings
    both = papers.pieces_of(ROWS, {"encoder.heads": 2}, [r for r in ROWS if r.key == "cmudict-transformer"])
    assert both["cmudict-transformer"][0].job.settings["encoder.heads"] == 2
    assert "encoder.heads" not in both["sigmorphon"][0].job.settings, "an LSTM would refuse it"


def test_scores_are_made_of_predictions(monkeypatch):
    pairs = [("ⒶA man", ("Der Mann.",)), ("Ⓑb", ("Ein B, c und d.",))]
    monkeypatch.setattr(judging, "examples", lambda name: pairs)
    told = {"task": "translate", "test": [judging.TONGUES], "fold": True}
    told |= {"predictions": ["der mann.", "ein b , c und x."], "evaluate": {"metrics": ["bleu"], "tokenize": "moses"}}
    found = judging.scores_of(told)
    assert found["scores"]["bleu"] > found["scores"]["sacrebleu"] - 1e-9 > 0
    assert all(one.endswith("|folded") for one in found["signature"].values())
    assert found["languages"] == {"Ⓐ": 100.0, "Ⓑ": 100.0}
    told |= {"fold": "lower", "evaluate": {"metrics": ["bleu"], "tokenize": "moses:de"}}
    pairs[:] = [("ⒶA man", ("Die Straße in Weiß.",)), ("Ⓑb", ("Ein B, c und d.",))]
    assert judging.references(told) == [("die straße in weiß.",), ("ein b, c und d.",)], "ß stays"
    found = judging.scores_of(told)
    assert all(one.endswith("|lowercase") for one in found["signature"].values())
    assert "tok:moses-de|" in found["signature"]["bleu"]
    pairs[:] = [("a b", "x"), ("c", "y"), ("not asked", "z")]
    assert judging.scores_of({"task": "classify", "test": ["t"], "predictions": ["x", "x"]}) == {
        "scores": {"accuracy": 50.0}
    }
    pairs[:] = [[("a", "N"), ("b", "V")], [("c", "N")]]
    found = judging.scores_of({"task": "tag", "test": ["t"], "predictions": ["N V", "V"]})
    assert found["scores"]["accuracy"] == pytest.approx(200 / 3)
    assert judging.scores_of({"task": "generate", "scores": {"loss": 1.0}}) == {}


def test_a_piece_is_trained_answered_and_scored_again(tmp_path, monkeypatch):
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(OWN | {"members": [{"seed": 1}, {"seed": 2}]}))
    row = Row("own", str(file), (Goal("PER", "per", 7.0),))
    found = papers.pieces_of([row])
    monkeypatch.setattr(papers, "ROWS", [row])
    args = parsed("--folder", tmp_path, "--steps", 2, "--limit", 50, "--tests", 7, "--device", "cpu")
    for piece in found["own"]:
        papers.work(piece, args)
    told = json.loads(papers.outcome(tmp_path, "own").read_bytes())
    assert len(told["predictions"]) == 7
    assert told["scores"].keys() == {"per", "exact_match"}
    assert (tmp_path / "own" / "ensemble.json").is_file()
    papers.saved(tmp_path / "papers.jsonl.gz", [told | {"scores": {}}])
    papers.main(["--score", str(tmp_path / "papers.jsonl.gz")])
    [again] = [json.loads(line) for line in gzip.decompress((tmp_path / "papers.jsonl.gz").read_bytes()).splitlines()]
    assert again["scores"] == told["scores"]


def test_what_is_not_done_in_time_is_asked_to_end(found, tmp_path, monkeypatch, capsys):
    sleeps = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); print(1, flush=True); "
    sleeps += "time.sleep(60)"

    def process(self, piece):
        (tmp_path / f"{piece.key}.log").write_text("said\n")
        if piece.key.endswith("8"):
            return subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"])
        asleep = subprocess.Popen([sys.executable, "-c", sleeps], stdout=subprocess.PIPE)
        assert asleep.stdout is not None
        asleep.stdout.readline()  # before that a signal would end it
        return asleep

    monkeypatch.setattr(papers.Pool, "_process", process)
    monkeypatch.setattr(papers, "GRACE", 4.0)
    args = parsed("--folder", tmp_path, "--jobs", 2, "--seconds", 6)
    pool = papers.Pool(found["cmudict-lstm"], args, lambda: None)
    pool.run()
    said = capsys.readouterr().out
    assert "cmudict-lstm-8: failed (1): said" in said
    assert "cmudict-lstm-7: saved, to go on" in said
    assert not pool.running


def test_rows_start_as_they_were_named_and_what_is_done_is_kept_at_once(tmp_path, monkeypatch):
    """The first is done; while the second runs, what came of the first is there already."""
    there, started = tmp_path / "papers.jsonl.gz", []

    def process(self, piece):
        started.append((piece.key, there.exists()))
        (tmp_path / f"{piece.key}.log").write_text("said\n")
        papers.outcome(tmp_path, piece.key).write_text(json.dumps({"key": piece.key, "scores": {}}))
        return subprocess.Popen([sys.executable, "-c", ""])

    monkeypatch.setattr(papers.Pool, "_process", process)
    papers.main(["--folder", str(tmp_path), "--only", "trec", "sst2", "ewt"])
    assert started == [("trec-7", False), ("sst2-7", True), ("ewt-7", True)]
    kept = [json.loads(line)["key"] for line in gzip.decompress(there.read_bytes()).splitlines()]
    assert kept == ["trec-7", "sst2-7", "ewt-7"]


def test_an_unknown_row_is_refused(capsys):
    with pytest.raises(SystemExit):
        parsed("--only", "cmudict-gru")
    assert "no row 'cmudict-gru'; there are: wikitext2; cmudict-lstm;" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        papers.arguments(["--set", "training.learning_rate"])
    assert "--set takes NAME=VALUE, not 'training.learning_rate'" in capsys.readouterr().err
