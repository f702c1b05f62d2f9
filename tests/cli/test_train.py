"""What `train` prints: quiet, verbose, as JSON; why it ended."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import one_line

SMALL = ["--size", "tiny", "--target-tokens", "words", "--batch-rows", "32", "--device", "cpu"]
LOGGED = ["--set", "training.log_every=2", "--set", "training.valid_every=4"]


@pytest.fixture
def train(seqloom, pairs, tmp_path):
    return lambda *more: seqloom("train", "translate", pairs, "--output", tmp_path / "run", *SMALL, *more)


def test_quiet(train):
    assert train("--max-steps", 3, "--quiet") == (0, "", "")


def test_verbose_says_rate_norm_and_files(train, tmp_path):
    status, _, err = train("--max-steps", 6, "--verbose", *LOGGED)
    assert status == 0
    steps = [line.split() for line in err.splitlines() if line.startswith("step ") and "valid" not in line]
    assert [line[1] for line in steps] == ["2", "4", "6"]
    assert all({"epoch", "loss", "learning_rate", "norm", "tokens/s"} <= set(line) for line in steps)
    journal = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert float(steps[0][steps[0].index("norm") + 1]) == pytest.approx(journal[0]["norm"], rel=1e-3)
    assert f"checkpoint of step 4 in {tmp_path / 'run' / 'checkpoints'}" in err
    assert f"metrics in {tmp_path / 'run'}" in err
    assert "encoded data in " in err


def test_log_json_is_the_journal(train, tmp_path):
    status, out, err = train("--max-steps", 6, "--log-json", *LOGGED)
    assert (status, out) == (0, "")
    lines = [json.loads(line) for line in err.splitlines()]
    told = [line for line in lines if "note" not in line]
    assert told == [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert sum("valid" in line for line in told) == 2
    notes = [line["note"] for line in lines if "note" in line]
    assert "stopped: max_steps 6 reached" in notes
    assert not any("valid  " in note for note in notes), "told twice"


def test_the_three_exclude_one_another(train):
    for two in (["--quiet", "--verbose"], ["--quiet", "--log-json"], ["--verbose", "--log-json"]):
        one_line(train("--max-steps", 3, *two), "--quiet, --verbose and --log-json exclude one another")


def test_a_wrong_value_in_a_recipe_names_the_recipe(seqloom, pairs, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(f"about: a\ntask: translate\ntrain: {pairs}\nmodel: gru\ntraining: {{rate: fast}}\n")
    one_line(
        seqloom("train", "--recipe", path),
        f"seqloom: recipe {path}: training.learning_rate takes a number, here 'fast'",
    )


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (["--max-steps", "3"], "max_steps 3 reached"),
        (["--epochs", "2"], "epochs 2 reached"),
        (["--time", "0.1s"], "time 0.1s reached"),
        (
            ["--patience", "2", "--rate", "1e-12", "--set", "training.select=exact_match", *LOGGED],
            "no better score in 2 validations",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_why_it_ended(train, end, reason):
    status, _, err = train(*end)
    assert status == 0
    assert err.count("stopped: ") == 1
    assert f"stopped: {reason}\n" in err


def test_an_interrupted_training_stays_json(train, monkeypatch):
    """Ctrl-C at the second step: 130, and every line on stderr can still be parsed."""
    import os
    import signal

    from seqloom.runs.progress import Json

    real = Json.show
    monkeypatch.setattr(
        Json, "show", lambda self, share, facts: os.kill(os.getpid(), signal.SIGINT) or real(self, share, facts)
    )
    status, _, err = train("--max-steps", 50, "--log-json")
    assert status == 130
    notes = [json.loads(line)["note"] for line in err.splitlines()]
    assert notes[-1].startswith("saved; go on with: seqloom train translate")
    assert not any(note.startswith("stopped: ") for note in notes)


def test_old_names_of_options_and_settings(seqloom, pairs, tmp_path):
    """They mean the new ones, in any mixture; what is contradicted is refused with both names."""
    train = ("train", "translate", pairs, "--size", "tiny", "--max-steps", 1, "--quiet", "--device", "cpu")
    old = ("--rate", 0.5, "--fold", "--cut", "head", "--optimiser", "sgd", "--average", 2)
    new = ("--learning-rate", 0.5, "--casefold", "--truncate", "head", "--optimizer", "sgd")
    assert seqloom(*train, *old, "--set", "decoder.start=zero", "-o", tmp_path / "old")[0] == 0
    more = ("--average-checkpoints", 2, "--set", "decoder.initial_state=zero", "-o", tmp_path / "new")
    assert seqloom(*train, *new, *more)[0] == 0
    one, other = ((tmp_path / name / "config.yaml").read_text() for name in ("old", "new"))
    assert one == other
    assert "learning_rate: 0.5" in one
    for twice in (("--rate", 0.5, "--learning-rate", 0.4), ("--cut", "head", "--truncate", "tail")):
        one_line(seqloom(*train, *twice, "-o", tmp_path / "x"), f"{twice[0]} is the earlier name of {twice[2]}")
    assert seqloom(*train, "--rate", 0.5, "--learning-rate", 0.5, "-o", tmp_path / "same")[0] == 0
    both = ("--set", "training.rate=1", "--set", "training.learning_rate=2")
    one_line(
        seqloom(*train, *both, "-o", tmp_path / "x"), "training.rate is the earlier name of training.learning_rate"
    )
    one_line(seqloom(*train, "--rat", "1", "-o", tmp_path / "x"), "no such option: --rat")
    assert "did you mean '--rate'" not in seqloom(*train, "--rat", "1", "-o", tmp_path / "x")[2]
