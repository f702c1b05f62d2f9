"""What is shown, and when."""

from __future__ import annotations

import io
import os
import re
import signal
import sys

import pytest

import seqloom
from seqloom.runs import progress as shown
from seqloom.runs.progress import Bar, Json, Lines, Silent, Verbose, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch) -> Terminal:
    """No fixture: pytest puts its own stderr in place after those."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return made


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""

    class Clock:
        now = 0.0

        def monotonic(self) -> float:
            return self.now

    clock = Clock()
    monkeypatch.setattr(shown, "time", clock)
    return clock


def test_kinds(monkeypatch):
    terminal(monkeypatch)
    assert [type(progress(kind)) for kind in ("quiet", "verbose", "log_json")] == [Silent, Verbose, Json]
    assert isinstance(progress(), Bar)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(progress(), Lines)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert isinstance(progress(), Lines)


def test_slow_steps_move_it_too(clock, capsys):
    """A step in three seconds, a line of the log every fifty steps: something is seen every six seconds."""
    lines = Lines(every=5.0)
    for step in range(1, 11):
        clock.now += 3.0
        lines.show(step / 100, {"step": step, "epoch": 1} | ({"loss": 2.5} if step == 5 else {}))
    err = capsys.readouterr().err.splitlines()
    assert [re.search(r"step (\d+)", line)[1] for line in err] == ["1", "3", "5", "7", "9"]  # pyright: ignore
    assert ["loss 2.5" in line for line in err] == [False, False, True, True, True], "the last known stays"
    assert err[-1].endswith("4:33 left")  # 8 % took 24 s, 91 % are left


def test_verbose_is_not_silent_between_lines(clock, capsys):
    verbose = Verbose(every=5.0)
    verbose.record(
        {"step": 50, "epoch": 0, "loss": None, "learning_rate": 1e-3, "norm": 0.5, "tokens_per_second": 12.0}
    )
    clock.now = 2.0
    verbose.show(0.1, {"step": 51})
    clock.now = 7.0
    verbose.show(0.2, {"step": 52})
    err = capsys.readouterr().err.splitlines()
    assert err[0] == "step 50  epoch 1  learning_rate 0.001  norm 0.5  tokens/s 12"
    assert len(err) == 2
    assert "step 52" in err[1]


def test_every_line_of_a_journal_can_be_told(capsys):
    lines = [
        ({"skipped": 3, "epoch": 0, "rows": [1]}, "step 3 skipped"),
        (
            {"step": 4, "epoch": 0, "valid": {"loss": 1.5}, "best": True, "seconds": 0.1},
            "step 4  valid  loss 1.5  best",
        ),
        ({"step": 4, "sample": "the cat\nsat"}, "step 4  sample  'the cat\\nsat'"),
        ({"averaging": 4, "epoch": 0}, "step 4  averages from here on"),
        ({"average": 2, "valid": {}, "best": False}, "average of 2 checkpoints: not kept"),
    ]
    for line, told in lines:
        Verbose().record(line)
        assert capsys.readouterr().err.startswith(told)
        Lines().record(line)
        assert capsys.readouterr().err.startswith("" if "sample" in line else told)


def test_a_bar_without_colour(monkeypatch):
    def drawn() -> str:
        screen = terminal(monkeypatch)
        bar = Bar()
        bar.show(0.5, {"step": 5, "loss": 1.25})
        bar.note("a [bold]note[/bold]")
        bar.close()
        return screen.getvalue()

    colour = re.compile(r"\x1b\[[\d;]*(3[0-8]|9[0-7])[;m]")
    monkeypatch.setenv("NO_COLOR", "1")
    plain = drawn()
    assert "step 5  loss 1.25" in plain
    assert "a [bold]note[/bold]" in plain
    assert not colour.search(plain)
    monkeypatch.delenv("NO_COLOR")
    assert colour.search(drawn())


def test_records_in_words(capsys):
    lines = Lines()
    lines.record({"skipped": 3, "epoch": 0, "rows": [1]})
    lines.record({"step": 4, "epoch": 0, "valid": {"loss": 1.23456, "per": 20.0}, "best": True, "seconds": 1})
    lines.record({"average": 3, "valid": {}, "best": False})
    lines.record({"step": 5, "epoch": 0, "loss": 1.0})
    assert capsys.readouterr().err.splitlines() == [
        "step 3 skipped: its loss or gradient was not finite",
        "step 4  valid  loss 1.235  per 20 %  best",
        "average of 3 checkpoints: not kept: the best single checkpoint is better",
    ]


def test_every_step_is_shown_whatever_the_log(pairs, tmp_path):
    """One's own display: what is logged every fifty steps may move at each."""

    class Steps(Silent):
        def __init__(self) -> None:
            self.seen: list[tuple[float, int]] = []

        def show(self, share: float, facts: dict) -> None:
            self.seen.append((share, facts["step"]))

    steps = Steps()
    seqloom.train("translate", pairs, output=tmp_path / "run", size="tiny", training={"max_steps": 4}, progress=steps)
    assert steps.seen == [(0.25, 1), (0.5, 2), (0.75, 3), (1.0, 4)]


def test_a_training_outlives_its_listener(pairs, tmp_path, monkeypatch):
    """`seqloom train … 2>&1 | tee log`: Ctrl-C ends tee, and what is said then is heard by nobody, but no error."""
    ear, mouth = os.pipe()
    os.close(ear)
    with open(mouth, "w", buffering=1) as deaf:
        monkeypatch.setattr(sys, "stderr", deaf)
        with pytest.raises(BrokenPipeError):
            print("anything", file=deaf, flush=True)
        ran = train(pairs, tmp_path / "run")
        assert (ran.step, ran.signal) == (3, None)
        deaf.write("also what is said without us\n")


def test_a_closed_terminal_ends_no_training(monkeypatch):
    """Lines and bars: to write there is an error of input and output."""
    master, slave = os.openpty()
    with open(slave, "w", buffering=1) as closed:
        monkeypatch.setattr(sys, "stderr", closed)
        monkeypatch.setenv("TERM", "xterm")
        bar = progress()
        assert isinstance(bar, Bar)
        bar.show(0.5, {"step": 1})
        os.close(master)
        with pytest.raises(OSError, match="Input/output error"):
            print("anything", file=closed, flush=True)
        bar.note("said to nobody")
        bar.close()
        Lines().note("said to nobody")


def test_a_signal_amid_a_line_still_saves(pairs, tmp_path, monkeypatch):
    """Python refuses to write a line while it writes one, and a signal's handler runs wherever it finds us."""

    class Interrupting(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data) -> int:
            if b"  valid  " in bytes(data):
                assert callable(signal.getsignal(signal.SIGTERM))  # else it would end the tests
                os.kill(os.getpid(), signal.SIGTERM)  # its handler runs before the next line of this
            return len(data)

    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BufferedWriter(Interrupting()), line_buffering=True))
    ran = train(pairs, tmp_path / "run", max_steps=30, valid_every=2)
    assert (ran.step, ran.signal) == (2, signal.SIGTERM)
    assert [one.name for one in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-000000002"]


def train(pairs, output, **training):
    text = {"source_tokens": "chars", "target_tokens": "words"}
    settings = {"max_steps": 3, "batch_rows": 32, "valid_decode": 10, **training}
    return seqloom.train(
        "translate", pairs, output=output, valid="10%", model="gru", size="tiny", data=text, training=settings
    )
