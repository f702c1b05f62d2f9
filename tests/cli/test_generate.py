"""seqloom generate"""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import seqloom
from seqloom.cli.main import app
from seqloom.errors import SeqloomError


@pytest.fixture(scope="module")
def chars(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generate")
    (folder / "text.txt").write_text("the cat sat on the mat. " * 200)
    options = {"training": {"max_steps": 1}, "quiet": True, "device": "cpu"}
    return seqloom.train("generate", folder / "text.txt", output=folder / "run", model="ngram", **options).folder


def written(*arguments) -> str:
    result = CliRunner().invoke(app, ["generate", *map(str, arguments), "--device", "cpu"])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_it_goes_on_from_the_prompt(chars):
    text = written(chars, "--prompt", "the cat", "--length", 50, "--seed", 3)
    assert text.startswith("the cat sat on the ")
    assert len(text) == len("the cat") + 50 + 1
    assert text == written(chars, "--prompt", "the cat", "--length", 50, "--seed", 3)
    assert written(chars, "--prompt", "the cat", "--temperature", 0, "--stop", " on") == "the cat sat\n"


def test_several_texts_differ(chars):
    texts = written(chars, "--length", 40, "--count", 3, "--temperature", 2).split("\n\n")
    assert len(texts) == len(set(texts)) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--label", "x"], "knows no labels"),
        (["--length", "0"], "at least 1 token"),
        (["--top-p", "0"], "top-p lies above 0"),
        (["--stop", ""], "one character at least"),
    ],
)
def test_wrong_options_are_one_line(chars, arguments, message):
    with pytest.raises(SeqloomError, match=message):
        written(chars, *arguments)


def test_an_evaluation_counts_tokens(chars):
    (chars.parent / "test.txt").write_text("the mat sat.")
    out = CliRunner().invoke(app, ["evaluate", str(chars), str(chars.parent / "test.txt"), "--device", "cpu"]).output
    assert out.splitlines()[0] == "11 tokens"  # the first is given


def test_unknown_characters_are_told(chars, tmp_path):
    (tmp_path / "odd.txt").write_text("the cat\nzé zat\n")
    told = "unknown characters on 1 of 2 lines, which the model never saw: 'z' ×2, 'é' ×1"
    for command in ("evaluate", "predict"):
        result = CliRunner().invoke(app, [command, str(chars), str(tmp_path / "odd.txt"), "--device", "cpu"])
        assert told in result.stderr, command
    result = CliRunner().invoke(app, ["generate", str(chars), "--prompt", "zé zat", "--length", "3", "--device", "cpu"])
    assert "'z' ×2, 'é' ×1" in result.stderr


def test_another_tasks_run_is_refused(run):
    with pytest.raises(SeqloomError, match="is a model of the task translate; seqloom predict"):
        written(run)
