"""Several trainings at once: members of an ensemble or folds, each in a process of its own.

Started as programs, like those that number the data, and away from the terminal: Ctrl-C reaches this process alone,
which hands it on. A training whose parent dies reads the end of its input, saves and ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

import torch

from seqloom.data.files.lines import STDIN
from seqloom.errors import SeqloomError
from seqloom.runs.progress import progress, say, unheard
from seqloom.runs.recipes.follow import Followed, follow
from seqloom.runs.recipes.recipe import Recipe
from seqloom.runs.train.job import Job
from seqloom.runs.train.train import Run, carry_out
from seqloom.training.distributed.processes import Launch


@dataclass(frozen=True)
class Part:
    """One training, by a recipe or without; its name stands before every line that it says."""

    name: str
    job: Job
    recipe: Recipe | None = None

    def carry_out(self, kind: str) -> Followed:
        if self.recipe is not None:
            return follow(self.recipe, self.job, progress(kind))
        return Followed(carry_out(self.job, progress(kind)), None)


def check(count: int) -> None:
    if count < 1:
        raise SeqloomError(f"--jobs takes 1 or more, here {count}")
    if count > 1 and Launch.of().world > 1:
        raise SeqloomError("--jobs and torchrun exclude one another: all of its processes train one model")


def abreast(parts: Sequence[Part], count: int, kind: str = "usual") -> tuple[list[Followed], int | None]:
    """Carry out all parts, `count` at a time. `kind` of progress: see `progress`. -> What became of those that were
    begun, and the signal that interrupted them. If one fails, the others save and end before its error is raised."""
    if any(STDIN in one.job.names for one in parts):
        raise SeqloomError("trainings at once cannot share standard input; write the data to a file first")
    team = _Team(kind, threads=max(1, (os.cpu_count() or 1) // count))
    with team.signals(), ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(team.carry_out, part) for part in _over_gpus(parts)]
    if team.fault is not None:
        raise team.fault
    return [found for future in futures if (found := future.result()) is not None], team.asked


def _over_gpus(parts: Sequence[Part]) -> Sequence[Part]:
    """Where there are several GPUs and none is named, the parts take them in turn."""
    gpus = torch.cuda.device_count()
    if gpus < 2:
        return parts
    jobs = [replace(one.job, device=f"cuda:{place % gpus}") for place, one in enumerate(parts)]
    free = [one.job.device in ("auto", "cuda") for one in parts]
    return [replace(one, job=job) if ours else one for one, job, ours in zip(parts, jobs, free, strict=True)]


class _Team:
    """The processes under way, and whether they were asked to end."""

    def __init__(self, kind: str, threads: int) -> None:
        self.kind, self.threads = kind, threads
        self.busy: set[subprocess.Popen[str]] = set()
        self.asked: int | None = None
        self.fault: SeqloomError | None = None

    def carry_out(self, part: Part) -> Followed | None:
        """In a thread of its own: start, listen, wait. None if it was asked to end before it had begun."""
        if self.asked is not None:
            return None
        process = self._start(part)
        self.busy.add(process)
        if self.asked is not None:  # while it started, behind the back of `ask`
            process.send_signal(self.asked)
        said = threading.Thread(target=_relay, args=(process.stderr, part.name, self.kind))
        said.start()
        answer = process.stdout.read() if process.stdout else ""
        said.join()
        status = process.wait()
        self.busy.discard(process)
        told: dict[str, Any] = json.loads(answer) if answer else {"error": f"its process ended with status {status}"}
        if "error" in told and self.asked is None:
            self.fault = SeqloomError(f"{part.name}: {told['error']}")
            self.ask(signal.SIGTERM)
        if "error" in told:
            return None
        return Followed(Run(**{**told["run"], "folder": Path(told["run"]["folder"])}), told["scores"])

    def ask(self, number: int) -> None:
        """Ask all to save and end."""
        self.asked = number
        for process in list(self.busy):
            process.send_signal(number)  # which looks first whether it still lives

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Hand on Ctrl-C and SIGTERM, which a training answers with a checkpoint; asked twice, it leaves at once."""
        asked = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, lambda number, _: self.ask(number)) for number in asked}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _start(self, part: Part) -> subprocess.Popen[str]:
        paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        process = subprocess.Popen(
            [sys.executable, "-c", "from seqloom.runs.many.parallel_jobs import work; work()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"OMP_NUM_THREADS": str(self.threads), **os.environ, **paths, "PYTHONIOENCODING": "utf-8"},
            text=True,
            encoding="utf-8",
            errors="replace",  # libraries in C say what they like
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps({"part": asdict(part), "kind": self.kind}, default=str) + "\n")
        process.stdin.flush()
        return process


def work() -> None:
    """What such a process does: carry out the part that its first line names."""
    answer, sys.stdout = sys.stdout, sys.stderr  # whatever else is printed is not the answer
    told = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    part = told["part"]
    recipe = None if part["recipe"] is None else Recipe(**part["recipe"])
    try:
        found = Part(part["name"], Job(**part["job"]), recipe).carry_out(told["kind"])
    except KeyboardInterrupt:
        return
    except SeqloomError as error:
        said: dict[str, Any] = {"error": str(error)}
    else:
        said = {"run": asdict(found.run), "scores": found.scores}
    print(json.dumps(said, default=str), file=answer, flush=True)


def _end_with_parent() -> None:
    while os.read(0, 1):  # the buffered reader's lock would be held while Python ends
        pass
    unheard(1, 2)
    os.kill(os.getpid(), signal.SIGTERM)


def _relay(stream: IO[str], name: str, kind: str) -> None:
    for line in stream:
        marked = f"{name}: {line.rstrip()}"
        if kind == "log_json" and line.startswith("{"):
            with suppress(ValueError):  # a library's line may begin so too
                marked = json.dumps({"part": name, **json.loads(line)}, ensure_ascii=False)
        say(marked)
