"""Runs several trainings at the same time, members of an ensemble or folds, each in a process of its own.

The processes have a session of their own, so that Ctrl-C reaches this process alone, which passes it on. A training
whose parent dies reads the end of its standard input, saves and ends.
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
class NamedJob:
    """One training, with or without a recipe; its name stands before every line that it prints."""

    name: str
    job: Job
    recipe: Recipe | None = None

    def run(self, kind: str) -> RecipeResult:
        if self.recipe is not None:
            return run_recipe(self.recipe, self.job, progress(kind))
        return RecipeResult(run_job(self.job, progress(kind)), None)


def check_jobs(count: int) -> None:
    if count < 1:
        raise SeqloomError(f"--jobs takes 1 or more, here {count}")
    if count > 1 and Launch.of().world > 1:
        raise SeqloomError("--jobs and torchrun exclude one another: all of its processes train one model")


def run_parallel(jobs: Sequence[NamedJob], count: int, kind: str = "default") -> tuple[list[RecipeResult], int | None]:
    """Run all jobs, `count` at a time, and return the results of those that started and the signal that interrupted
    them. If one fails, the others save and end before its error is raised. `kind` of progress: see `progress`."""
    if any(STDIN in one.job.names for one in jobs):
        raise SeqloomError("trainings at once cannot share standard input; write the data to a file first")
    workers = _Workers(kind, threads=max(1, (os.cpu_count() or 1) // count))
    with workers.signals(), ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(workers.run, one) for one in _with_gpus(jobs)]
    if workers.error is not None:
        raise workers.error
    return [result for future in futures if (result := future.result()) is not None], workers.signal


def _with_gpus(jobs: Sequence[NamedJob]) -> Sequence[NamedJob]:
    """If there are several GPUs, the jobs that name none take them in turn."""
    gpus = torch.cuda.device_count()
    if gpus < 2:
        return jobs
    return [
        replace(one, job=replace(one.job, device=f"cuda:{number % gpus}"))
        if one.job.device in ("auto", "cuda")
        else one
        for number, one in enumerate(jobs)
    ]


class _Workers:
    """The running processes, the signal they got and the first error."""

    def __init__(self, kind: str, threads: int) -> None:
        self.kind, self.threads = kind, threads
        self.running: set[subprocess.Popen[str]] = set()
        self.signal: int | None = None
        self.error: SeqloomError | None = None

    def run(self, job: NamedJob) -> RecipeResult | None:
        """In a thread of its own: start the process, relay its output, wait. None after a signal or an error."""
        if self.signal is not None:
            return None
        process = self._start(job)
        self.running.add(process)
        if self.signal is not None:  # it came before `stop` knew this process
            process.send_signal(self.signal)
        relay = threading.Thread(target=_relay, args=(process.stderr, job.name, self.kind))
        relay.start()
        output = process.stdout.read() if process.stdout else ""
        relay.join()
        status = process.wait()
        self.running.discard(process)
        result: dict[str, Any] = json.loads(output) if output else {"error": f"its process ended with status {status}"}
        if "error" in result and self.signal is None:
            self.error = SeqloomError(f"{job.name}: {result['error']}")
            self.stop(signal.SIGTERM)
        if "error" in result:
            return None
        return RecipeResult(Run(**{**result["run"], "folder": Path(result["run"]["folder"])}), result["scores"])

    def stop(self, number: int) -> None:
        """Send a signal to all processes: they save and end."""
        self.signal = number
        for process in list(self.running):
            process.send_signal(number)  # does nothing if it has ended

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Pass on Ctrl-C and SIGTERM: a training saves a checkpoint and ends; at the second signal it ends at once."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, lambda number, _: self.stop(number)) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _start(self, job: NamedJob) -> subprocess.Popen[str]:
        paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        process = subprocess.Popen(
            [sys.executable, "-c", "from seqloom.runs.many.parallel_jobs import work; work()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"OMP_NUM_THREADS": str(self.threads), **os.environ, **paths, "PYTHONIOENCODING": "utf-8"},
            text=True,
            encoding="utf-8",
            errors="replace",  # libraries in C may print other bytes
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps({"job": asdict(job), "kind": self.kind}, default=str) + "\n")
        process.stdin.flush()
        return process


def work() -> None:
    """The main function of a process: run the job on the first line of its input."""
    output, sys.stdout = sys.stdout, sys.stderr  # other prints must not mix with the result
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    job = request["job"]
    recipe = None if job["recipe"] is None else Recipe(**job["recipe"])
    try:
        done = NamedJob(job["name"], Job(**job["job"]), recipe).run(request["kind"])
    except KeyboardInterrupt:
        return
    except SeqloomError as error:
        result: dict[str, Any] = {"error": str(error)}
    else:
        result = {"run": asdict(done.run), "scores": done.scores}
    print(json.dumps(result, default=str), file=output, flush=True)


def _end_with_parent() -> None:
    while os.read(0, 1):  # not sys.stdin, whose lock would be held while Python ends
        pass
    discard_output(1, 2)
    os.kill(os.getpid(), signal.SIGTERM)


def _relay(stream: IO[str], name: str, kind: str) -> None:
    for line in stream:
        text = f"{name}: {line.rstrip()}"
        if kind == "log_json" and line.startswith("{"):
            with suppress(ValueError):  # a library may print such a line too
                text = json.dumps({"part": name, **json.loads(line)}, ensure_ascii=False)
        write_stderr(text)
