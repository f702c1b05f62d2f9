"""What is to be remembered is in what was shown; every mixer fits the frame; toys run through the pool."""

from __future__ import annotations

import json

import pytest
import torch
from memory import TINY, Learner, arguments, chains, main, rated
from memory_report import drawn, reach, share, table
from memory_tasks import TASKS
from mixer_models import KINDS, Frame, parameters, plain_windows
from process_pool import Pool
from torch import nn

CPU = torch.device("cpu")


def test_the_ten_symbols_of_copy_are_at_the_beginning():
    x, target = TASKS["copy"].draw(4, 30, CPU)
    tokens = x.argmax(-1)
    assert x.shape == (4, 50, 10)
    assert tokens[:, :10].equal(target)
    assert (tokens[:, 10:] == 8).sum(1).tolist() == [39] * 4
    assert (tokens == 9).nonzero()[:, 1].tolist() == [39] * 4, "the sign comes `length` steps after the symbols"


def test_recall_asks_for_what_stood_with_the_key():
    x, target = TASKS["recall"].draw(5, 20, CPU)
    assert x.shape == (5, 28, 24)
    for row, wanted in zip(x, target, strict=True):
        said = dict(zip(row[:4, :8].argmax(-1).tolist(), row[:4, 8:16].argmax(-1).tolist(), strict=True))
        assert len(said) == 4
        assert [said[key] for key in row[-4:, :8].argmax(-1).tolist()] == wanted.tolist()
        assert not row[4:, 8:16].any(), "no value is shown again"
        assert not row[4:-4, :16].any()
        assert (row[4:-4, 16:].sum(-1) == 1).all()


def test_adding_marks_one_number_in_each_half_and_a_guess_has_the_known_error():
    task = TASKS["adding"]
    torch.manual_seed(0)
    x, target = task.draw(4000, 31, CPU)
    assert (x[:, :15, 1].sum(1) == 1).all()
    assert (x[:, 15:, 1].sum(1) == 1).all()
    assert target.allclose((x[..., 0] * x[..., 1]).sum(1))
    guess = torch.ones(4000, 1, 1)
    assert float(task.loss(guess, target)) == pytest.approx(1 / 6, abs=0.01)
    assert float(task.right(guess, target)) == pytest.approx(0, abs=0.06)
    assert float(task.right(target[:, None, None], target)) == 1


@pytest.mark.parametrize("name", KINDS)
def test_every_mixer_fits_the_frame_and_has_about_as_many_parameters(name):
    kind = KINDS[name]
    model, like = (Frame(nn.Linear(2, 128), 1, each, 512, asked=1) for each in (kind, KINDS["attention"]))
    most = 1.5 if name in ("linformer", "lstmn") else 1.02  # whose own parts are larger than a layer should be
    assert 0.98 < parameters(model) / parameters(like) < most
    small = Frame(nn.Linear(2, 16), 3, kind, 150, dim=16, asked=2)
    with plain_windows():
        out = small(torch.randn(2, 150, 2))
        out.sum().backward()
    assert out.shape == (2, 2, 3)
    assert all(p.grad is not None for p in small.blocks.parameters())


def test_dilated_places_stand_farther_apart_from_layer_to_layer():
    model = Frame(nn.Linear(2, 16), 3, KINDS["dilated"], 150, dim=16, layers=3)
    assert [block.mix.reach for block in model.blocks] == [8, 32, 128]


def asked(**more):
    return {
        "mixer": "attention",
        "task": "recall",
        "length": 4,
        "longest": 8,
        "seed": 1,
        "plain": False,
        **TINY,
        **more,
    }


def test_a_learner_goes_on_from_length_to_length_and_gives_up_after_two_failures():
    one = Learner(asked(rate=0.0, within=60))
    told = [one.learn(asked(length=length, within=60)) for length in (4, 8)]
    assert [answer["stop"] for answer in told] == [False, True]
    assert told[0]["tokens"] == told[0]["updates"] * 8 * 12 <= 4_000
    assert one.steps == sum(answer["updates"] for answer in told)


def test_attention_learns_to_recall():
    one = Learner(asked(dim=32, rate=1e-2, within=60))
    told = one.learn(asked(dim=32, rows=32, tokens=400_000, judged=256, within=30))
    assert told["score"] > 0.9


def test_time_that_is_up_cuts_a_length_off():
    told = Learner(asked(within=0)).learn(asked(within=0, tokens=10**6))
    assert told["cut"]
    assert told["tokens"] < 10**6


def test_the_rate_rises_and_falls():
    rates = [rated(step, 300, step) for step in range(1, 301)]
    assert max(rates) == 1
    assert rates[0] < 0.05
    assert rates[-1] == pytest.approx(0.1)
    assert rated(1, 300, 1000) < 0.1 < rated(30, 300, 1030)


def result(mixer, length, score, task="copy", **more):
    return {"mixer": mixer, "task": task, "length": length, "score": score, "parameters": 10, **more}


FOUND = [
    *(result("rnn", length, score) for length, score in ((50, 0.95), (100, 0.2), (200, 0.13))),
    *(result("attention", length, 1.0) for length in (50, 100, 200, 500)),
    result("lstmn", 50, 0.9, cut=True),
    result("attention", 50, 0.994, "adding"),
    {"mixer": "rnn", "task": "adding", "length": 50, "absent": "no time was left"},
]


def test_the_table_says_what_was_found_and_why_not():
    text = table(FOUND)
    assert "| simple RNN | 10 | 95.0 | 20.0 | 13.0 | ✗ | – | – |" in text, "that time was short is not to forget"
    assert "| LSTM with a tape | 10 | 90.0 ~ | – | – | – |" in text
    assert "| 100.0 | 100.0 | 100.0 | 100.0 | 0.001 |" in text
    assert [reach(FOUND, mixer, "copy") for mixer in ("rnn", "attention", "lstmn")] == [50, 500, 0]
    assert share("copy", 1 / 8) == 0
    assert share("adding", -3.0) == 0


def test_the_picture_has_a_square_for_each():
    picture = str(drawn(FOUND))
    assert picture.count('class="edge"') == 3 * 2 * 4
    assert picture.count('class="cell"') == sum("score" in one for one in FOUND)
    assert "simple RNN" in picture
    assert ">89~<" in picture, "of the one that the clock cut off"


def test_toys_run_through_processes_and_are_joined(tmp_path, capsys):
    file = tmp_path / "found.json"
    words = ["--tiny", "--jobs", "2", "--output", str(file)]
    main([*words, "--only", "rnn,linear", "--tasks", "adding"])
    main([*words, "--only", "mingru", "--tasks", "adding", "--lengths", "8"])
    found = json.loads(file.read_text())["results"]
    assert {(one["mixer"], one["length"]) for one in found} == {
        ("rnn", 8), ("rnn", 16), ("linear", 8), ("linear", 16), ("mingru", 8)
    }  # fmt: skip
    assert all(one["updates"] for one in found)
    assert "| minGRU |" in capsys.readouterr().out
    main(["--draw", str(file), "--output", str(tmp_path / "found.svg")])
    assert (tmp_path / "found.svg").read_text().startswith("<svg")


DIES = """
import sys
from process_pool import serve

def answered(asked):
    if not asked["plain"]:
        sys.exit("CUDA error: operation not permitted when stream is capturing")
    return {"ran": asked["first"]}

serve(answered)
"""


def test_a_chain_whose_process_dies_is_tried_once_more_the_plain_way(tmp_path):
    script, told = tmp_path / "dies.py", []
    script.write_text(DIES)
    Pool(script, 1, 60, lambda request, answer: told.append((request["n"], answer))).run([[{"n": 1}, {"n": 2}]])
    why = {"absent": "CUDA error: operation not permitted when stream is capturing"}
    assert told == [(1, why), (1, {"ran": True}), (2, {"ran": False})]


def test_what_the_command_line_asks_for():
    args = arguments(["--only", "lstm,lstmn,attention", "--tasks", "copy", "--tokens", "5", "--rows", "2"])
    made = chains(args)
    assert [chain[0]["mixer"] for chain in made] == ["lstm", "attention", "lstmn"]
    assert [one["length"] for one in made[0]] == [10, 20, 50, 100, 200, 500, 1000, 2000]
    assert (made[0][0]["tokens"], made[0][0]["rows"]) == (5, 2)
    with pytest.raises(SystemExit, match="did you mean 'lstm'"):
        main(["--only", "lsmt"])
