"""A source of very many tokens is spoken of before it is read, which may take an hour."""

from __future__ import annotations

import pytest

import seqloom
from seqloom.decoding import batched
from tests.conftest import words, write_pairs


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    file = write_pairs(folder / "words.tsv", [*words(40), "a" * 60])
    data = {"translate": {}, "classify": {"tokens": "chars"}, "cut": {"max_length": 20}}
    training = {"max_steps": 1, "valid_decode": 0}
    return file, {
        name: seqloom.train(
            "classify" if name == "classify" else "translate",
            file,
            output=folder / name,
            model="transformer",
            size="tiny",
            data=given,
            training=training,
            valid=0,
            quiet=True,
            device="cpu",
        ).load("cpu")
        for name, given in data.items()
    }


@pytest.fixture(autouse=True)
def _short(models, monkeypatch):
    monkeypatch.setattr(batched, "LONG", 40)


@pytest.mark.parametrize("task", ["translate", "classify"])
def test_the_first_long_source_is_told_with_its_number_before_any_is_answered(models, task):
    order, made = [], models[1][task]
    for answer in made.answers(made.warn_of_long(["ab", "a" * 60, "b", "a" * 60], order.append)):
        order.append(answer[0].text)
    assert len(order) == 5, "once, whatever the number of long sources"
    assert order[0].startswith("source 2 has 61 tokens: time and memory may grow with the square")
    assert "--max-length" in order[0]


@pytest.mark.parametrize("task", ["translate", "classify"])
def test_predict_tells_it_once_a_call_and_answers_are_silent(models, task, capsys):
    made, asked = models[1][task], ["ab", "a" * 60, "a" * 60]
    list(made.answers(asked))
    assert capsys.readouterr().err == ""
    for _ in range(2):
        made.predict(asked)
        assert capsys.readouterr().err.count("warning: source 2 has 61 tokens") == 1


def test_validation_is_silent(models, tmp_path, capsys):
    how = {"model": "transformer", "size": "tiny", "device": "cpu", "quiet": True}
    training = {"max_steps": 2, "valid_every": 1, "valid_decode": 50}
    seqloom.train("translate", models[0], output=tmp_path / "run", valid=models[0], training=training, **how)
    assert capsys.readouterr().err == ""


def test_max_length_decides(models, capsys):
    file, made = models
    made["cut"].predict(["a" * 60])
    made["cut"].evaluate(str(file))
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize("task", ["translate", "classify"])
def test_evaluate_tells_it_too(models, task, capsys):
    file, made = models
    made[task].evaluate(str(file))
    assert "source 41 has 61 tokens" in capsys.readouterr().err
