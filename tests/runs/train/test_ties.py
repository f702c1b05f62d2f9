"""Of models with the same score the one with the lower loss is kept; training goes on as if nothing had happened."""

from __future__ import annotations

import json
from functools import partial

import pytest

import seqloom
from seqloom.runs.train.session import Session

SCORES = [  # accuracy, loss
    (50.0, 0.9),
    (60.0, 0.8),
    (60.0, 0.5),  # a tie, surer
    (60.0, 0.7),
    (60.0, float("nan")),
    (40.0, 0.1),
]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A training whose validations find `SCORES`, with or without the loss."""
    path = tmp_path / "texts.tsv"
    path.write_text("".join(f"{word} {i}\t{word}\n" for i in range(20) for word in ("good", "bad")))

    def trained(folder="run", known=True, **training):
        place = iter(range(100))

        def scores(self):
            accuracy, loss = SCORES[min(next(place), len(SCORES) - 1)]
            return {"accuracy": accuracy} | ({"loss": loss} if known else {})

        monkeypatch.setattr(Session, "_scores", scores)
        settings = {"max_steps": 6, "valid_every": 1, "keep_checkpoints": 9, **training}
        return seqloom.train(
            "classify",
            path,
            output=tmp_path / folder,
            model="bag",
            size="tiny",
            valid="20%",
            training=settings,
            quiet=True,
            device="cpu",
        )

    return trained


def test_a_tie_keeps_the_model_with_the_lower_loss(run):
    found = run()
    assert found.best == {"step": 3, "scores": {"accuracy": 60.0, "loss": 0.5}}
    assert [line["best"] for line in found.history() if "valid" in line] == [True, True, True, False, False, False]
    states = sorted((found.folder / "checkpoints").glob("step-*/training.json"))
    assert [json.loads(path.read_text())["best"]["step"] for path in states] == [1, 2, 3, 3, 3, 3]


def test_where_the_loss_is_not_known_the_earliest_stays(run):
    assert run(known=False).best == {"step": 2, "scores": {"accuracy": 60.0}}


def test_a_loss_that_is_no_number_is_the_worst(monkeypatch):
    tie = partial(Session._tie, Session.__new__(Session))
    monkeypatch.setattr(Session, "_key", lambda self, scores: -scores["accuracy"])
    odd, sure = {"accuracy": 60.0, "loss": float("nan")}, {"accuracy": 60.0, "loss": 0.5}
    assert (tie(sure, odd), tie(odd, sure), tie(odd, odd)) == (True, False, False)


def test_an_average_as_good_is_kept_by_its_loss(run):
    """The mean of checkpoints is scored last, here as the best before it but for the loss."""
    SCORES.append((60.0, 0.4))
    try:
        found = run("surer", average_checkpoints=2)
        assert found.best == {"step": 6, "scores": {"accuracy": 60.0, "loss": 0.4}}
        assert "accuracy 60 at step 6" in repr(found.load("cpu")), "an average is of the last step"
        SCORES[-1] = (60.0, 0.6)
        assert run("less", average_checkpoints=2).best["step"] == 3
    finally:
        SCORES.pop()


def test_patience_goes_by_scores_alone(run):
    assert run(patience=2).step == 4  # the better of two ties is no better score
