"""A source of very many tokens is spoken of before it is read, which may take an hour."""

from __future__ import annotations

import pytest

import seqloom
from seqloom.decoding import texts
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
    monkeypatch.setattr(texts, "LONG", 40)


@pytest.mark.parametrize("task", ["translate", "classify"])
def test_a_long_source_is_told_with_its_number_first(models, monkeypatch, task):
    order = []
    monkeypatch.setattr(texts, "print", lambda *told, **more: order.append(told[0]), raising=False)
    for answer in models[1][task].answers(["ab", "a" * 60, "b"]):
        order.append(answer[0].text)
    [place] = [number for number, line in enumerate(order) if "warning" in line]
    assert place == 0, "before any is answered"
    assert "source 2 has 61 tokens" in order[0]
    assert "--max-length" in order[0]


def test_max_length_decides(models, capsys):
    file, made = models
    made["cut"].predict(["a" * 60])
    made["cut"].evaluate(str(file))
    assert "warning" not in capsys.readouterr().err


def test_evaluate_tells_it_too(models, capsys):
    file, made = models
    made["translate"].evaluate(str(file))
    assert "source 41 has 61 tokens" in capsys.readouterr().err
