"""Confidence, thresholds, JSON and files of predictions."""

from __future__ import annotations

import json
import math

import pytest

import seqloom as package
from tests.cli.conftest import one_line
from tests.conftest import words


@pytest.fixture
def sources(tmp_path):
    file = tmp_path / "sources.txt"
    file.write_text("".join(f"{word}\n" for word in [*words(20, seed=9, longest=14), "", "zzzz"]))
    return file


def test_confidence_is_the_geometric_mean_of_the_tokens_probabilities(run):
    """Counted again by hand, from the model's own log-probabilities, <eos> among them."""
    import torch

    from seqloom.data.batches.collate import pad
    from seqloom.data.tokenizers.tokenizers import BOS, EOS, PAD, UNK

    texts = package.load(run, "cpu").texts
    for search in (package.Search(), package.Search(beam=3)):
        ((answer,),) = texts.answers(["abcab"], search)
        tokens = torch.tensor([[BOS, *answer.tokens, EOS]])
        with torch.inference_mode():
            logits = texts.model(pad([texts.encode("abcab")]), tokens[:, :-1])[0].clone()
            logits[:, [PAD, BOS, UNK]] = -math.inf
        each = logits.log_softmax(-1)[torch.arange(len(logits)), tokens[0, 1:]]
        assert answer.confidence == pytest.approx(float(each.mean().exp()), abs=1e-5)
        assert answer.log_probability == pytest.approx(float(each.sum()), abs=1e-4)


def test_an_answer_cut_off_has_no_end_to_count(run):
    from dataclasses import replace

    from seqloom.decoding.batched import LengthLimit

    texts = package.load(run, "cpu").texts
    short = replace(texts, bound=LengthLimit(0.0, -6))  # at most 3 tokens
    ((answer,),) = short.answers(["abcdefgh"], package.Search())
    assert len(answer.tokens) == 3
    assert answer.confidence == pytest.approx(math.exp(answer.log_probability / 3))


def test_scores_and_json_agree(seqloom, run, sources):
    plain = seqloom("predict", run, sources)[1].splitlines()
    scored = [line.split("\t") for line in seqloom("predict", run, sources, "--scores")[1].splitlines()]
    objects = [json.loads(line) for line in seqloom("predict", run, sources, "--json")[1].splitlines()]
    assert [text for _, text in scored] == plain == [one["text"] for one in objects]
    assert [one["source"] for one in objects] == sources.read_text().splitlines()
    assert [float(value) for value, _ in scored] == pytest.approx([one["confidence"] for one in objects], abs=1e-4)
    assert all(0 < one["confidence"] <= 1 and one["log_probability"] <= 0 for one in objects)
    assert objects[0].keys() == {"source", "text", "confidence", "log_probability"}


def test_n_best_with_scores(seqloom, run, sources):
    arguments = ["predict", run, sources, "--beam", 3, "--n-best", 2]
    rows = [line.split("\t") for line in seqloom(*arguments, "--scores")[1].splitlines()]
    objects = [json.loads(line) for line in seqloom(*arguments, "--json")[1].splitlines()]
    assert [(int(row[0]), row[2]) for row in rows] == [(one["number"], one["text"]) for one in objects]
    assert [one["rank"] for one in objects[:4]] == [1, 2, 1, 2]
    assert [float(row[1]) for row in rows] == pytest.approx([one["confidence"] for one in objects], abs=1e-4)


def test_sources_are_typed_at_the_shell(seqloom, run, sources):
    status, out, err = seqloom("predict", run, "--text", "abc", "--text", "", "--text", "dad")
    sources.write_text("abc\n\ndad\n")
    assert (status, err) == (0, "")
    assert out == seqloom("predict", run, sources)[1]
    one_line(seqloom("predict", run, sources, "--text", "abc"), "give a file or --text, not both", "sources.txt")
    one_line(seqloom("predict", run, "--columns", "1", "--text", "abc"), "not both")
    for option in (["--header"], ["--no-header"], ["--delimiter", ";"], ["--encoding", "latin-1"]):
        one_line(seqloom("predict", run, "--text", "abc", *option), "give a file or --text, not both", option[0])
    one_line(seqloom("predict", run, "--text", "a\udcff", "--json"), "not UTF-8")


def test_unknown_characters_are_told_with_their_lines(seqloom, run, tmp_path):
    file = tmp_path / "odd.tsv"
    file.write_text("azza\tAH\nabc\tB\nß\u200bz\tB\n")
    _, out, err = seqloom("predict", run, file, "--json")
    assert err == "note: 5 unknown characters on 2 of 3 lines, which the model never saw: 'z' ×3, 'ß' ×1, U+200B ×1\n"
    assert [json.loads(line).get("unknown") for line in out.splitlines()] == [["z", "z"], None, ["ß", "\u200b", "z"]]
    _, out, err = seqloom("evaluate", run, file, "--json")
    assert "note: 5 unknown characters on 2 of 3 lines" in err
    told = json.loads(out)["unknown"]
    assert (told["count"], told["lines"], told["of"]) == (5, 2, 3)
    assert told["which"] == {"z": 3, "ß": 1, "\u200b": 1}


def test_the_terminal_names_scores_of_pronunciations_as_papers_do(seqloom, run, pairs, tmp_path):
    _, out, _ = seqloom("evaluate", run, pairs)
    rows = {line[2:20].strip(): line.split() for line in out.splitlines()[1:]}
    said = json.loads(seqloom("evaluate", run, pairs, "--json")[1])["metrics"]
    assert said["wer"] == said["per"], "JSON keeps every key"
    assert "wer" not in rows
    share = next(line for line in out.splitlines() if "word error rate" in line)
    assert f"{100 - said['exact_match']:.2f}" in share
    assert "100 − exact_match" in share
    assert "wer" in seqloom("evaluate", run, pairs, "--metrics", "per,wer")[1], "it was asked for"
    phrases = tmp_path / "phrases.tsv"
    phrases.write_text("ab cd\tAH B K D\nabc\tAH B K\n")
    assert "word error rate" not in seqloom("evaluate", run, phrases)[1], "these sources are no single words"


def test_answers_below_the_threshold_are_left_out_and_counted(seqloom, run, sources):
    objects = [json.loads(line) for line in seqloom("predict", run, sources, "--json")[1].splitlines()]
    middle = sorted(one["confidence"] for one in objects)[len(objects) // 2]
    doubted = [one["confidence"] < middle for one in objects]
    status, out, err = seqloom("predict", run, sources, "--threshold", middle)
    assert status == 0
    assert out.splitlines() == ["" if doubt else one["text"] for doubt, one in zip(doubted, objects, strict=True)]
    assert f"{sum(doubted)} of {len(objects)} predictions are below" in err
    _, out, _ = seqloom("predict", run, sources, "--threshold", middle, "--below", "???", "--scores")
    assert [line.split("\t")[1] == "???" for line in out.splitlines()] == doubted


def test_output_is_whole_or_not_there(seqloom, run, sources, tmp_path):
    file = tmp_path / "answers.txt"
    status, out, err = seqloom("predict", run, sources, "--output", file)
    assert (status, out) == (0, "")
    assert err == "note: 4 unknown characters on 1 of 22 lines, which the model never saw: 'z' ×4\n"
    before = file.read_text()
    assert before == seqloom("predict", run, sources)[1]
    sources.write_bytes(b"abc\n" * 2000 + b"\xff\n")
    one_line(seqloom("predict", run, sources, "-o", file), "sources.txt:2001", "UTF-8")
    assert file.read_text() == before
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--threshold", "1.5"], "0 to 1"),
        (["--threshold", "nan"], "0 to 1"),
        (["--below", "?"], "--threshold"),
        (["--scores", "--json"], "leave --scores out"),
        (["--output", "no/such/folder/x"], "could not be written"),
        (["--output", f"{__file__}/x"], "could not be written"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_wrong_options(seqloom, run, sources, arguments, told):
    one_line(seqloom("predict", run, sources, *arguments), told)
