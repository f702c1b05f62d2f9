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
from seqloom.runs.progress import discard_output, progress, write_stderr
from seqloom.runs.recipes.recipe import Recipe
from seqloom.runs.recipes.run_recipe import RecipeResult, run_recipe
from seqloom.runs.train.job import Job
from seqloom.runs.train.train import Run, run_job
from seqloom.training.distributed.processes import Launch


@dataclass(frozen=True)
class Part:
    """One training, by a recipe or without; its name is put before every line that it prints."""

    name: str
    job: Job
    recipe: Recipe | None = None

    def run(self, kind: str) -> RecipeResult:
        if self.recipe is not None:
            return run_recipe(self.recipe, self.job, progress(kind))
        return RecipeResult(run_job(self.job, progress(kind)), None)


def check(count: int) -> None:
    if count < 1:
        raise SeqloomError(f"--jobs takes 1 or more, here {count}")
    if count > 1 and Launch.of().world > 1:
        raise SeqloomError("--jobs and torchrun exclude one another: all of its processes train one model")


def run_parallel(parts: Sequence[Part], count: int, kind: str = "usual") -> tuple[list[RecipeResult], int | None]:
    """Train all parts, `count` at a time. `kind` of progress: see `progress`. -> The results of those that started,
    and the signal that interrupted them. If one fails, the others save and end before its error is raised."""
    if any(STDIN in one.job.names for one in parts):
        raise SeqloomError("trainings at once cannot share standard input; write the data to a file first")
    team = _Team(kind, threads=max(1, (os.cpu_count() or 1) // count))
    with team.signals(), ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(team.run, part) for part in _over_gpus(parts)]
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

    def run(self, part: Part) -> RecipeResult | None:
        """In its own thread: start the process, pass on its output, wait. None if asked to end before."""
        if self.asked is not None:
            return None
        process = self._start(part)
        self.busy.add(process)
        if self.asked is not None:  # while it started, when `ask` did not know it yet
            process.send_signal(self.asked)
        relay = threading.Thread(target=_relay, args=(process.stderr, part.name, self.kind))
        relay.start()
        answer = process.stdout.read() if process.stdout else ""
        relay.join()
        status = process.wait()
        self.busy.discard(process)
        result: dict[str, Any] = json.loads(answer) if answer else {"error": f"its process ended with status {status}"}
        if "error" in result and self.asked is None:
            self.fault = SeqloomError(f"{part.name}: {result['error']}")
            self.ask(signal.SIGTERM)
        if "error" in result:
            return None
        return RecipeResult(Run(**{**result["run"], "folder": Path(result["run"]["folder"])}), result["scores"])

    def ask(self, number: int) -> None:
        """Ask all processes to save and end."""
        self.asked = number
        for process in list(self.busy):
            process.send_signal(number)  # which looks first whether it still lives

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Pass on Ctrl-C and SIGTERM: a training saves a checkpoint then; asked twice, it ends at once."""
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
            errors="replace",  # libraries in C print what they like
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps({"part": asdict(part), "kind": self.kind}, default=str) + "\n")
        process.stdin.flush()
        return process


def work() -> None:
    """The main function of such a process: train the part that its first line of input describes."""
    answer, sys.stdout = sys.stdout, sys.stderr  # whatever else is printed is not the answer
    task = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    part = task["part"]
    recipe = None if part["recipe"] is None else Recipe(**part["recipe"])
    try:
        found = Part(part["name"], Job(**part["job"]), recipe).run(task["kind"])
    except KeyboardInterrupt:
        return
    except SeqloomError as error:
        result: dict[str, Any] = {"error": str(error)}
    else:
        result = {"run": asdict(found.run), "scores": found.scores}
    print(json.dumps(result, default=str), file=answer, flush=True)


def _end_with_parent() -> None:
    while os.read(0, 1):  # the buffered reader's lock would be held while Python ends
        pass
    discard_output(1, 2)
    os.kill(os.getpid(), signal.SIGTERM)


def _relay(stream: IO[str], name: str, kind: str) -> None:
    for line in stream:
        marked = f"{name}: {line.rstrip()}"
        if kind == "log_json" and line.startswith("{"):
            with suppress(ValueError):  # a library's line may begin so too
                marked = json.dumps({"part": name, **json.loads(line)}, ensure_ascii=False)
        write_stderr(marked)
