"""The workers that need nothing beyond our own environment, on toys; environments without making one; the chart."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import environments
import numpy as np
import pytest
import torch
from batches import write
from chart import drawn, read
from peers.plain import language, lstm, transformer
from peers.seqloom import Decodes, Trains
from peers.talk import Order, one_line, read_order
from profile_steps import Profile, Spent, profiled, section
from racing import Pace, order, race
from run import Workers
from targets import CPU, works
from workers import Worker

from seqloom.errors import SeqloomError

PLAIN = {"transformer": transformer, "lstm": lstm, "language": language}


def ordered(tmp_path, work, entrant=0) -> Order:
    file = tmp_path / f"{work.key}.npz"
    write(file, work, None, "abc defg\n" * 200 if work.kind == "language" else None)
    return read_order(order(work, work.entrants[entrant], file, {"device": "cpu", "threads": 1}))


@pytest.mark.parametrize("key", ["transformer", "lstm", "lstm-feeding", "letters"])
def test_plain_torch_has_as_many_parameters_as_we_have(tmp_path, key):
    """At the sizes that are raced, within the one in a hundred that the results allow."""
    work = next(work for work in CPU if work.key == key)
    work = replace(work, model={**work.model, "size": 40}, rows=2, batches=1)
    made = ordered(tmp_path, work)
    theirs = PLAIN[work.model["name"]](made)
    assert theirs.parameters == pytest.approx(Trains(made).parameters, rel=0.01)


@pytest.mark.parametrize("key", ["base-384", "fed", "gpt2"])
def test_all_learn_the_same_batches(tmp_path, key):
    """The loop of ours and the step of the peers: the loss of a token falls alike."""
    made = ordered(tmp_path, works("cuda", [key], small=True)[0])
    torch.manual_seed(1)
    for entrant in (Trains(made), PLAIN[made.model["name"]](made)):
        losses = entrant.told(entrant.go(20))["losses"]
        assert len(losses) == 20 * len(made.batches)
        assert losses[-1] < losses[0] - 0.03
        assert 2.0 < losses[0] < 7.0


@pytest.mark.parametrize("key", ["one-greedy", "one-beam", "beam"])
def test_decoding_takes_exactly_the_steps_asked_for(tmp_path, key):
    made = ordered(tmp_path, works("cuda", [key], small=True)[0])
    ours = Decodes(made)
    assert ours.told(ours.go(1)) == {"lengths": [32]}
    if made.beam == 1:
        theirs = transformer(made)
        assert theirs.told(theirs.go(1)) == {"lengths": [32]}


def test_the_race_runs_through_pipes(tmp_path):
    """Ours and plain torch as processes, on a toy."""
    work = works("cuda", ["fed"], small=True)[0]
    file, workers = tmp_path / "b.npz", Workers(None)
    holds = write(file, work, None, None)
    try:
        done = race(work, file, holds, workers, {"device": "cpu", "threads": 1}, Pace(1, 0.0, float("inf"), 60.0))
    finally:
        workers.close()
    assert [lane.absent for lane in done.lanes] == [None, None]
    assert all(lane.losses for lane in done.lanes)
    assert workers.versions()["torch"] == torch.__version__


NOISY = """
from peers.talk import serve

class Noisy:
    parameters = 3
    def go(self, passes): print("warp and weft")
    def told(self, done): return {"lengths": [1]}

serve({"model": lambda order: Noisy()})
"""


def test_what_a_library_prints_does_not_disturb_the_talk(tmp_path):
    work, file, script = works("cuda", ["fed"], small=True)[0], tmp_path / "b.npz", tmp_path / "noisy.py"
    write(file, work, None, None)
    script.write_text(NOISY)
    worker = Worker([sys.executable, "-P", str(script)], environments.command("plain", "")[1])
    asked = order(work, work.entrants[0], file, {"device": "cpu", "threads": 1})
    assert worker.ask(60, do="make", name="x", order=asked) == {"parameters": 3}
    assert worker.ask(60, do="go", name="x", passes=1)["lengths"] == [1]
    with pytest.raises(environments.AbsentError, match=r"^KeyError: 'y'$"):
        worker.ask(60, do="go", name="y", passes=1)
    worker.close()


def test_drawn_sentences_are_whole(tmp_path):
    made = ordered(tmp_path, works("cuda", ["fed"], small=True)[0])
    for raw in made.batches:
        ends = raw.source[torch.arange(len(raw.source)), raw.source_lengths - 1]
        assert (ends == 2).all()
        assert ((raw.source == 0).sum(1) == raw.source.size(1) - raw.source_lengths).all()
        assert raw.source_lengths.unique().numel() > 1


def test_what_is_counted(tmp_path):
    work = works("cuda", ["fed"], small=True)[0]
    assert write(tmp_path / "b.npz", work, None, None) == {"words": 16, "tokens": 16 * 32, "batches": 2}
    with np.load(tmp_path / "b.npz", allow_pickle=False) as file:
        assert file["target_0"].shape == (8, 33)


def test_installing_that_fails_is_one_line(tmp_path, monkeypatch):
    failed = SimpleNamespace(returncode=1, stderr="WARNING: x\nERROR: No matching distribution found for eole\nnote: y")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(environments.AbsentError, match=r"^not installed: ERROR: No matching distribution found for eo"):
        environments.interpreter("eole", tmp_path)


def test_peers_of_our_own_environment_and_made_ones_install_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("installs"))
    assert environments.interpreter("plain", tmp_path) == sys.executable
    assert environments.interpreter("eole", None) == sys.executable
    mark = tmp_path / "eole" / environments.READY
    mark.parent.mkdir()
    mark.write_text(environments._asked(environments.ENVIRONMENTS["eole"]))
    assert environments.interpreter("eole", tmp_path) == str(tmp_path / "eole" / "bin" / "python")


def test_an_error_is_told_in_one_line():
    assert one_line(ValueError("a\nb")) == "ValueError: a"
    assert one_line(KeyError()) == "KeyError"


def test_a_profile_counts_operations_of_a_step(tmp_path):
    work = works("cuda", ["one-greedy"], small=True)[0]
    found = profiled(work, work.entrants[0], ordered(tmp_path, work))
    assert found.step > 0
    assert any(one.name == "aten::addmm" and one.calls >= 1 for one in found.operations)
    assert section(found)[2].startswith("A step takes ")


def test_the_gpu_is_busy_for_the_time_of_its_kernels():
    found = Profile("x", 0.001, [Spent("aten::mm", 3, 10.0)], [Spent("gemm", 2, 300.0), Spent("copy", 1, 100.0)])
    assert found.busy == pytest.approx(0.4)
    assert "2 kernels" not in section(found)[2]
    assert "3 kernels; the GPU works for 40% of the time" in section(found)[2]
    assert "| `gemm` | 2.0 | 300 | 75.0% |" in section(found)


RESULTS = """# The race

| work | who | figure | seqloom ÷ who | round by round |
|---|---|---:|---:|---:|
| weave | seqloom | 200 |  |  |
| weave | seqloom bf16 | 300 | 0.67 | 0.60–0.70 |
| weave | loom & <co> | 100 | 2.00 | 1.80–2.20 |
| weave | other | 400 | 0.50 | 0.50–0.50 |
| weave | third | absent: not installed |  |  |

| work | who |
|---|---|
"""


def test_the_chart_draws_what_the_table_says():
    rows = read(RESULTS)
    assert [(row.who, row.ratio) for row in rows] == [("loom & <co>", 2.0), ("other", 0.5)]
    chart = drawn(rows)
    assert "loom &amp; &lt;co&gt;" in chart
    assert chart.count('class="faster"') == chart.count('class="slower"') == 1
    assert "2.00 ×" in chart
    assert "0.50 ×" in chart


def test_a_work_that_was_raced_again_is_drawn_once_as_it_is_now():
    older = RESULTS.replace("2.00", "9.00").replace("0.50", "9.00")
    assert read(RESULTS + "\n## Before\n" + older) == read(RESULTS)


def test_the_chart_of_the_readme_is_that_of_the_results():
    root = Path(__file__).parents[2]
    files = sorted((root / "benchmarks" / "results").glob("*-race-cpu.md"), reverse=True)
    results = "\n".join(file.read_text(encoding="utf-8") for file in files)
    assert (root / "docs" / "race-cpu.svg").read_text(encoding="utf-8") == f"{drawn(read(results))}\n"


def test_the_chart_wants_a_table():
    with pytest.raises(SeqloomError, match=r"x.md: has no table"):
        read("nothing", "x.md")
    with pytest.raises(SeqloomError, match="nothing to draw"):
        drawn([])
