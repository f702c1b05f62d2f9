"""Commands as processes that can be killed, forked from one that has loaded torch: each starts in no time."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["seqloom.cli.main", "seqloom.runs.train.train"])


def start(words: list[str], stderr: Path | None = None) -> ForkServerProcess:
    """`seqloom WORDS`, begun; what it says on standard error goes to that file."""
    process = FORKS.Process(target=_run, args=(words, stderr))
    process.start()
    return process


def finish(words: list[str]) -> None:
    """`seqloom WORDS`, which must succeed."""
    process = start(words)
    process.join()
    assert process.exitcode == 0


def _run(words: list[str], stderr: Path | None) -> None:
    from seqloom.cli.main import run

    if stderr is not None:
        os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT), 2)
    sys.argv = ["seqloom", *words]
    run()
