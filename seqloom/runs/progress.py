"""Shows how a training goes: a bar in a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from typing import Any, Protocol

from seqloom.reporting.run_facts import metric


class Progress(Protocol):
    def note(self, text: str) -> None:
        """Show a sentence."""

    def detail(self, text: str) -> None:
        """Show a sentence with --verbose only."""

    def record(self, line: dict[str, Any]) -> None:
        """Show a line that was added to the log."""

    def show(self, share: float, facts: dict[str, Any]) -> None:
        """Show how far the training is. Called at every step; facts left out keep their last value."""

    def close(self) -> None: ...


class Silent:
    unit = "tokens"  # of the speed, per second

    def note(self, text: str) -> None: ...

    def detail(self, text: str) -> None: ...

    def record(self, line: dict[str, Any]) -> None: ...

    def show(self, share: float, facts: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


class Lines(Silent):
    """For logs and pipes: at most a line every `every` seconds, on stderr."""

    def __init__(self, every: float = 5.0) -> None:
        self.every = every
        self.start: tuple[float, float] | None = None  # time and share at the first call: a resumed run starts late
        self.last = float("-inf")
        self.facts: dict[str, Any] = {}

    def note(self, text: str) -> None:
        write_stderr(text)

    def record(self, line: dict[str, Any]) -> None:
        if text := message_of(line):
            self.note(text)

    def show(self, share: float, facts: dict[str, Any]) -> None:
        self.facts |= facts
        now = time.monotonic()
        self.start = self.start or (now, share)
        if now - self.last < self.every:
            return
        self.last = now
        passed, done = now - self.start[0], share - self.start[1]
        minutes, seconds = divmod(round(passed * (1 - share) / done), 60) if done > 0.01 else (0, 0)
        left = f"  {minutes}:{seconds:02d} left" if done > 0.01 else ""
        self.note(f"{share:4.0%}  {_values(self.facts)}{left}")


class Verbose(Lines):
    """Every line of the log, with learning rate and gradient norm, and where files are written."""

    def detail(self, text: str) -> None:
        self.note(text)

    def record(self, line: dict[str, Any]) -> None:
        self.last = time.monotonic()
        text = message_of(line)
        if "sample" in line:
            text = f"step {line['step']}  sample  {line['sample']!r}"
        if text is None:
            shown = {
                name: line[name]
                for name in ("step", "epoch", "loss", "learning_rate", "norm")
                if line[name] is not None
            }
            text = _values(shown | {"epoch": line["epoch"] + 1, f"{self.unit}/s": round(line["tokens_per_second"])})
        self.note(text)


class Json(Silent):
    """For log collectors: every line of the log as it is, and every note as {"note": …}, on stderr."""

    def note(self, text: str) -> None:
        self.record({"note": text})

    def record(self, line: dict[str, Any]) -> None:
        write_stderr(json.dumps(line, ensure_ascii=False))


class Bar(Silent):
    """For a terminal; honours NO_COLOR, as rich does."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self.console = Console(stderr=True)
        columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
        self.bar = RichProgress(*columns, console=self.console, transient=True)
        self.task = self.bar.add_task("", total=1.0)
        self.facts: dict[str, Any] = {}

    def note(self, text: str) -> None:
        with suppress(OSError):  # the terminal may be closed
            self.console.print(text, highlight=False, markup=False)

    def record(self, line: dict[str, Any]) -> None:
        if text := message_of(line):
            self.note(text)

    def show(self, share: float, facts: dict[str, Any]) -> None:
        self.facts |= facts
        self.bar.start()  # not before there is something to show: it hides the cursor
        self.bar.update(self.task, completed=share, description=_values(self.facts))

    def close(self) -> None:
        with suppress(OSError):
            self.bar.stop()


def progress(kind: str = "default") -> Progress:
    """quiet, verbose or log_json; by default a bar in a terminal that can redraw a line, and lines elsewhere."""
    kinds = {"quiet": Silent, "verbose": Verbose, "log_json": Json}
    if kind in kinds:
        return kinds[kind]()
    return Bar() if sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown") else Lines()


def write_stderr(text: str) -> None:
    """Print a line on stderr. The training goes on if that fails: Ctrl-C also ends a `tee`."""
    try:
        sys.stderr.write(text + "\n")  # one call: other threads may write too
        sys.stderr.flush()
    except OSError:  # a closed pipe or terminal, a full disk
        discard_output(sys.stderr.fileno())


def discard_output(*streams: int) -> None:
    """Redirect streams whose reader has gone to /dev/null: writing to them would be an error."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(devnull, stream)
    os.close(devnull)


def message_of(line: dict[str, Any]) -> str | None:
    """The message for a line of the log; None for a line with training loss alone."""
    if "skipped" in line:
        return f"step {line['skipped']} skipped: its loss or gradient was not finite"
    if "valid" in line and "step" in line:
        scores = "  ".join(f"{name} {value:.4g}{_percent(name)}" for name, value in line["valid"].items())
        return f"step {line['step']}  valid  {scores}{'  best' if line['best'] else ''}"
    if "averaging" in line:
        return f"step {line['averaging']}  averages from here on: the mean of the weights is what is scored and kept"
    if "average" in line:
        result = "kept" if line["best"] else "not kept: the best single checkpoint is better"
        return f"average of {line['average']} checkpoints: {result}"
    return None


def _percent(name: str) -> str:
    return " %" if metric(name).unit == "%" else ""


def _values(facts: dict[str, Any]) -> str:
    shown = {name: f"{value:.4g}" if isinstance(value, float) else f"{value:,}" for name, value in facts.items()}
    return "  ".join(f"{name} {value}" for name, value in shown.items())
