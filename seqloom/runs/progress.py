"""What a person sees while a model trains: a bar in a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol


class Progress(Protocol):
    def note(self, text: str) -> None: ...
    def show(self, share: float, facts: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


class Silent:
    def note(self, text: str) -> None: ...

    def show(self, share: float, facts: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


class Lines:
    """For logs and pipes: at most a line every `every` seconds, on stderr."""

    def __init__(self, every: float = 5.0) -> None:
        self.every = every
        self.begun: tuple[float, float] | None = None  # time and share of the first line: a resumed run starts late
        self.last = float("-inf")

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def show(self, share: float, facts: dict[str, Any]) -> None:
        now = time.monotonic()
        if now - self.last < self.every:
            return
        self.last = now
        self.begun = self.begun or (now, share)
        passed, done = now - self.begun[0], share - self.begun[1]
        left = f"  {_clock(passed * (1 - share) / done)} left" if done > 0.01 else ""
        self.note(f"{share:4.0%}  {_facts(facts)}{left}")

    def close(self) -> None: ...


class Bar:
    """For a terminal; honours NO_COLOR, as rich does."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self.console = Console(stderr=True)
        columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
        self.bar = RichProgress(*columns, console=self.console, transient=True)
        self.task = self.bar.add_task("", total=1.0)

    def note(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False)

    def show(self, share: float, facts: dict[str, Any]) -> None:
        self.bar.start()  # not before there is something to show: it hides the cursor
        self.bar.update(self.task, completed=share, description=_facts(facts))

    def close(self) -> None:
        self.bar.stop()


def progress(quiet: bool = False) -> Progress:
    return Silent() if quiet else Bar() if sys.stderr.isatty() else Lines()


def _facts(facts: dict[str, Any]) -> str:
    shown = {name: f"{value:.4g}" if isinstance(value, float) else f"{value:,}" for name, value in facts.items()}
    return "  ".join(f"{name} {value}" for name, value in shown.items())


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02d}"
