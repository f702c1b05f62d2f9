"""A source of very many tokens is spoken of before it is read, which may take an hour."""

from __future__ import annotations

import pytest

import seqloom
from seqloom.decoding import texts
from tests.conftest import words, write_pairs


def train(task, file, output, **data):
    return seqloom.train(
        task,
        file,
        output=output,
        model="transformer",
        size="tiny",
        data=data,
        training={"max_steps": 1, "valid_decode": 0},
        valid=0,
        quiet=True,
        device="cpu",
    ).load("cpu")


@pytest.mark.parametrize("task", ["translate", "classify"])
def test_a_long_source_is_told_with_its_number_first(tmp_path, capsys, monkeypatch, task):
    monkeypatch.setattr(texts, "LONG", 40)
    file = write_pairs(tmp_path / "words.tsv", words(40))
    tokens = "source_tokens" if task == "translate" else "tokens"
    model = train(task, file, tmp_path / "run", **{tokens: "chars"})
    capsys.readouterr()
    order = []
    monkeypatch.setattr(texts, "print", lambda *told, **more: order.append(told[0]), raising=False)
    for answer in model.answers(["ab", "a" * 60, "b"]):
        order.append(answer[0].text)
    [place] = [number for number, line in enumerate(order) if "warning" in line]
    assert place == 0, "before any is answered"
    assert "source 2 has 61 tokens" in order[0]
    assert "--max-length" in order[0]


def test_max_length_decides(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(texts, "LONG", 40)
    file = write_pairs(tmp_path / "words.tsv", words(40))
    model = train("translate", file, tmp_path / "run", max_length=20)
    model.predict(["a" * 60])
    model.evaluate(str(file))
    assert "warning" not in capsys.readouterr().err


def test_evaluate_tells_it_too(tmp_path, capsys, monkeypatch):
    file = write_pairs(tmp_path / "words.tsv", [*words(40), "a" * 60])
    model = train("translate", file, tmp_path / "run")
    monkeypatch.setattr(texts, "LONG", 40)
    capsys.readouterr()
    model.evaluate(str(file))
    assert "source 41 has 61 tokens" in capsys.readouterr().err
