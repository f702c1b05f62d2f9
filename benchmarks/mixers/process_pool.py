"""Work shared out among living processes: chains of requests, each chain to one process, several at once.

A process that dies or does not answer in time says why and is replaced; its chain is tried once more, with `plain` set,
since what most often fails is recording for the GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import Empty, Queue
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "race"))

from environments import AbsentError
from workers import Worker

Request = dict[str, Any]
GRACE = 60.0  # seconds beyond its limit for one answer


class Pool:
    """`record(request, answer)` is told of every answer; an answer with `stop` ends its chain."""

    def __init__(self, script: Path, jobs: int, seconds: float, record: Callable[[Request, Request], None]) -> None:
        self.script, self.jobs, self.record = script, jobs, record
        self.deadline = time.monotonic() + seconds
        self.lock = threading.Lock()

    def run(self, chains: Iterable[list[Request]]) -> None:
        waiting: Queue[list[Request]] = Queue()
        for chain in chains:
            waiting.put(chain)
        threads = [threading.Thread(target=self._serve, args=(waiting,)) for _ in range(self.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _serve(self, waiting: Queue[list[Request]]) -> None:
        worker = None
        with contextlib.suppress(Empty):
            while True:
                chain = waiting.get_nowait()
                worker, done = self._chain(worker, chain, plain=False)
                if not done:
                    worker, _ = self._chain(worker, chain, plain=True)
        if worker is not None:
            worker.close()

    def _chain(self, worker: Worker | None, chain: list[Request], plain: bool) -> tuple[Worker | None, bool]:
        """The process, None if it is gone; and whether all that can be had was had."""
        for number, request in enumerate(chain):
            left = self.deadline - time.monotonic()
            if left < 2:
                self._tell(chain[number:], {"absent": "no time was left"})
                return worker, True
            limit = min(left, request.get("within", left))
            try:
                worker = worker or started(self.script)
                answer = worker.ask(limit + GRACE, **{**request, "plain": plain, "first": number == 0, "within": limit})
            except AbsentError as error:
                if worker is not None:
                    worker.close()
                self._tell(chain[number:] if plain else [request], {"absent": str(error)})
                return None, False
            self._tell([request], answer)
            if answer.get("stop"):
                break
        return worker, True

    def _tell(self, requests: list[Request], answer: Request) -> None:
        with self.lock:
            for request in requests:
                self.record(request, answer)


def started(script: Path) -> Worker:
    here = Path(__file__).resolve().parent
    path = os.pathsep.join((str(here.parents[1]), str(here), os.environ.get("PYTHONPATH", "")))
    return Worker([sys.executable, str(script), "--worker"], {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"})


def serve(answer: Callable[[Request], Request]) -> None:
    """What a worker does: an answer for every line it is told. What libraries print goes elsewhere."""
    import torch

    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    print(json.dumps({"versions": {"torch": torch.__version__}}), file=out, flush=True)
    for line in sys.stdin:
        try:
            told = answer(json.loads(line))
        except Exception as error:
            traceback.print_exc()
            told = {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]}
        print(json.dumps(told), file=out, flush=True)
