"""Everybody is raced at its own best settings, which are said, and beside its like; who does other work is out."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import environments
import pytest
import torch
from batches import write
from environments import AbsentError
from peers.checking import checked as looked
from peers.plain import lstm, transformer, words
from peers.seqloom import Decodes, Trains
from peers.several import Several
from peers.talk import read_order
from probing import alternatives, checked, probe, said
from racing import Lane, Pace, Race, order, race, warmed
from run import Workers, arguments, threads
from tables import brief, everybody, glance, judged, like, settings
from targets import ANY, CPU, OURS, PRECISIONS, Claim, Work, entrant, works
from workers import Worker

# Takes twice as long with two threads, half as long by the flag, and says what it was ordered to run by.
WORKER = """
import json, os, sys
print(json.dumps({"versions": {}}), flush=True)
made = {}
for line in sys.stdin:
    asked = json.loads(line)
    order = made.setdefault(asked["name"], asked.get("order"))
    answer = {"parameters": 10}
    if asked["do"] == "drop":
        del made[asked["name"]]
    elif asked["do"] == "check":
        force = {name: order[name] for name in ("threads", "workers", "precision")}
        answer = {"rows": 64, "tokens": 448, **force, **json.loads(sys.argv[1])}
    elif asked["do"] == "go":
        seconds = 0.1 * order["threads"] / (2 if os.environ.get("LOOM") else 1) / (1 + (order["precision"] == "int8"))
        answer = {"seconds": seconds * asked["passes"], "lengths": [7]}
    if order["compiled"]:
        answer = {"error": "no compiler"}
    print(json.dumps(answer), flush=True)
"""


def work(*peers) -> Work:
    ours = (entrant(OURS, OURS, "model", "threads"), entrant(f"{OURS} bf16", OURS, "model", precision="bf16"))
    claims = (Claim("fp32", 1.0, None), Claim("bf16", 1.0, None), Claim(ANY, 1.0, None))
    return Work("toy", "weave", "decode", "words/s", {}, 8, (*ours, *peers), claims, steps=7)


@pytest.fixture
def raced(tmp_path, monkeypatch):
    monkeypatch.setattr("racing.PAUSE", 0.0)
    script, alive = tmp_path / "worker.py", {}
    script.write_text(WORKER)

    def field(peer: str, told: dict[str, str]) -> Worker:
        if peer not in alive:
            name, *flags = peer.split()
            command = [sys.executable, str(script), told.get(name, "{}")]
            alive[peer] = Worker(command, dict(flag.split("=") for flag in flags))
        return alive[peer]

    def run(work: Work, **told: str) -> Race:
        holds, pace = {"words": 64, "tokens": 448, "batches": 8}, Pace(2, 0.0, time.monotonic() + 60, 20.0, 0.0)
        return race(work, Path("n"), holds, lambda peer: field(peer, told), {"device": "cpu", "threads": 2}, pace)

    yield run
    for worker in alive.values():
        worker.close()


def test_everybody_is_raced_at_the_settings_that_were_fastest_and_they_are_printed(raced, monkeypatch):
    monkeypatch.setattr("probing.FLAGS", ("", "LOOM=1"))
    done = raced(work(entrant("loom int8", "loom", "model", "threads", "compiled", "flags", precision="int8")))
    ours, half, loom = done.lanes
    assert (ours.settings["threads"], half.settings, loom.settings["threads"]) == (1, {}, 1)
    assert (loom.settings["compiled"], loom.settings["flags"]) == (False, "LOOM=1")
    assert loom.median == pytest.approx(0.1 / 4)
    rows = everybody([done])
    assert any(row.startswith("| weave | loom int8 | 1 thread, LOOM=1 | 2,560 | words/s |") for row in rows)
    tried = settings([done])[-1]
    assert tried.startswith("| weave | loom int8 | words/s | 1 thread, LOOM=1: 2,560; 2 threads: 640; 1 thread: 1,280;")
    assert "1 thread, compiled: absent (no compiler)" in tried


def test_what_is_slower_than_its_like_is_shown_as_a_loss(raced):
    done = raced(work(entrant("loom int8", "loom", "model", "threads", precision="int8")))
    assert like(done, done.lanes[2]) is done.lanes[0]
    assert brief([done])[-1] == "| weave | – | – | 0.50 (fp32 beside loom int8) |"
    reached = {claim.precision: judged(done, claim)[::3] for claim in done.work.claims}
    assert reached == {"fp32": ("–", "not measured"), "bf16": ("–", "not measured"), ANY: ("0.50 ×", "**fails**")}
    assert "| weave, any precision | words/s | 640 |" in glance([done])[-1]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ('{"rows": 32}', "did other work: rows 32 rather than 64"),
        ('{"tokens": 3, "threads": 4}', "did other work: tokens 3 rather than 448; threads 4 rather than 1"),
        ('{"precision": "fp32"}', "did other work: precision fp32 rather than int8"),
    ],
)
def test_one_that_does_other_work_than_was_ordered_is_out(raced, told, why):
    done = raced(work(entrant("loom int8", "loom", "model", "threads", precision="int8")), loom=told)
    assert [lane.absent for lane in done.lanes] == [None, None, why]


def test_a_part_of_a_model_that_does_not_learn_is_found():
    toy = replace(work(), kind="train")
    asked = {"threads": 1, "workers": 1, "precision": "fp32"}
    told = {"rows": 8, "tokens": 56, "parameters": 10, **asked}
    checked(toy, {"words": 8, "tokens": 56}, asked, {**told, "learns": 10})
    with pytest.raises(AbsentError, match="learns 4 rather than 10"):
        checked(toy, {"words": 8, "tokens": 56}, asked, {**told, "learns": 4})


def test_a_probe_turns_one_knob_after_the_other_and_fails_only_with_all():
    knobs = [[{"threads": 2}, {"threads": 1}], [{"compute": "bfloat16"}, {"compute": "autocast"}]]
    best, trials = probe(knobs, lambda one: one["threads"] + (one["compute"] == "bfloat16"))
    assert best == {"threads": 1, "compute": "autocast"}
    assert [trial.seconds for trial in trials] == [3, 2, 1]

    def fails(one):
        raise AbsentError("no bf16 here")

    with pytest.raises(AbsentError, match="no bf16 here"):
        probe(knobs, fails)
    few = alternatives(entrant("x", "x", "x", "workers"), 4)
    assert [said(entrant("x", "x", "x"), one) for one in few[0]] == ["4 threads", "1 thread", "4 × 1 thread"]


def test_every_work_on_the_cpu_has_its_like_beside_it_and_all_are_probed():
    for one in CPU:
        for lane in one.entrants:
            assert lane.precision in PRECISIONS
            assert {"threads", "workers"} & set(lane.knobs)
        ours = {lane.precision for lane in one.entrants if lane.peer == OURS}
        theirs = {lane.precision for lane in one.entrants if lane.peer != OURS}
        assert ours == {"fp32", "bf16"} <= theirs
        assert {claim.precision for claim in one.claims} == {"fp32", "bf16", ANY}


TRAIN, DECODE = "fed", "beam"


def made(tmp_path, key, **more):
    work = works("cuda", [key], small=True)[0]
    file, entrant = tmp_path / f"{key}.npz", replace(work.entrants[0], differs=())
    holds = write(file, work, None, None)
    return work, holds, order(work, entrant, file, {"device": "cpu", "threads": 1, **more})


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("who", [Trains, lstm])
def test_what_is_done_in_training_is_told_as_it_is(tmp_path, who, precision):
    work, holds, asked = made(tmp_path, TRAIN, precision=precision)
    entrant = who(read_order(asked))
    torch.set_num_threads(1)
    told = looked(entrant, torch.device("cpu"))
    assert told["precision"] in (precision, None)
    checked(work, holds, asked, {"parameters": entrant.parameters, **told})


@pytest.mark.parametrize(
    ("who", "compute"),
    [(Decodes, ""), (Decodes, "bfloat16"), (transformer, ""), (transformer, "bfloat16"), (transformer, "autocast")],
)
def test_what_is_done_in_decoding_is_told_as_it_is(tmp_path, who, compute):
    precision = "bf16" if compute else "fp32"
    work, holds, asked = made(tmp_path, DECODE, precision=precision, compute=compute)
    torch.set_num_threads(1)
    told = looked(who(read_order({**asked, "beam": 1})), torch.device("cpu"))
    assert told["precision"] in (precision, None)
    checked(work, holds, asked, told)


SHARING = """
import json, sys
print(json.dumps({"versions": {}}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["do"] == "make":
        first, every = asked["order"]["share"]
    answer = {"parameters": 3, "lengths": [7], "rows": 8 * (first + 1), "tokens": 56, "threads": 1, "precision": None}
    print(json.dumps(answer if asked["do"] != "go" or first < 2 else {"error": "ValueError: full"}), flush=True)
"""


def test_several_processes_answer_as_one(tmp_path, monkeypatch):
    script = tmp_path / "sharing.py"
    script.write_text(SHARING)
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setattr("peers.several._TEAM", team := [])
    both = Several("x", {"workers": 2})
    told = both.checked()
    assert (told["rows"], told["tokens"], told["threads"], told["workers"]) == (24, 112, 1, 2)
    assert both.told(both.go(1)) == {"lengths": [7]}
    three = Several("y", {"workers": 3})
    with pytest.raises(RuntimeError, match="ValueError: full"):
        three.go(1)
    assert both.told(both.go(1)) == {"lengths": [7]}  # no answer was left lying about
    assert len(team) == 3
    for process in team:
        process.kill()


@pytest.mark.slow
def test_several_workers_share_the_batches(tmp_path):
    _, holds, asked = made(tmp_path, DECODE)
    worker = Worker(*environments.command("plain", sys.executable))
    try:
        worker.ask(60, do="make", name="x", order={**asked, "beam": 1, "workers": 2, "variant": "transformer"})
        told = worker.ask(60, do="check", name="x")
        assert (told["rows"], told["tokens"], told["workers"]) == (holds["words"], holds["tokens"], 2)
        assert worker.ask(60, do="go", name="x", passes=1)["lengths"] == [32]
        assert worker.ask(60, do="drop", name="x") == {}
    finally:
        worker.close()


def test_programs_are_compiled_ahead(tmp_path):
    asked = []

    class Compiles:
        def ask(self, seconds, **request):
            asked.append(request)
            return {"seconds": 3.0}

    work = next(work for work in CPU if work.key == "letters")
    work = replace(work, entrants=work.entrants[:3])
    told = list(warmed(work, tmp_path, lambda peer: Compiles(), {"device": "cpu", "threads": 2}))
    assert told == [(OURS, "3 s"), (f"{OURS} bf16", "3 s"), ("plain GPT", "3 s")]
    assert all(one["order"]["compiled"] for one in asked if one["do"] == "make")
    assert [one["do"] for one in asked] == ["make", "go", "drop"] * 3


def test_flags_are_of_a_process_by_itself(monkeypatch):
    started = []
    monkeypatch.setattr("run.Worker", lambda *given: started.append(given))
    Workers(None)("ctranslate2 CT2_USE_MKL=1")
    assert started[0][0][-1].endswith("ctranslate2.py")
    assert started[0][1]["CT2_USE_MKL"] == "1"


def test_a_word_level_model_has_as_many_parameters_as_its_peer(tmp_path):
    work = next(work for work in CPU if work.key == "words")
    work = replace(work, model={**work.model, "size": 400}, rows=2, batches=1)
    holds = write(tmp_path / "w.npz", work, None, "a text that is not for words")
    assert holds == {"words": 2, "tokens": 70, "batches": 1}
    asked = read_order(order(work, work.entrants[0], tmp_path / "w.npz", {"device": "cpu", "threads": 1}))
    assert words(asked).parameters == pytest.approx(Trains(asked).parameters, rel=0.01)


def test_threads_are_said_to_be_probed_or_all_alike():
    assert threads(arguments([])) == "everybody at its own best settings, found before by a probe: 2 threads at most"
    assert threads(arguments(["--no-probe", "--threads", "1"])) == "threads of each: 1"


def test_a_lane_without_settings_says_nothing():
    one = entrant("nn.Transformer bf16", "plain", "transformer", precision="bf16")
    assert said(one, Lane(one).settings) == ""
