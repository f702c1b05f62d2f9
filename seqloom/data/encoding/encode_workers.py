"""Encoding in worker processes, over pipes; blocks come back in order.

They are subprocesses, not `multiprocessing`, which would import the user's script in every worker. A worker ends when
its input does, so also when its parent dies.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import IO, Any

import numpy as np

from seqloom.data.encoding.encode import EncodedBlock, PairEncoder, Rows, Side
from seqloom.data.formats.pairs_fast import Pairs
from seqloom.errors import SeqloomError

LabelledPairs = tuple[Any, Pairs]  # what the caller gets back with the ids, and the texts


def encode_blocks(
    blocks: Iterable[LabelledPairs], settings: dict[str, Any], workers: int
) -> Iterator[tuple[Any, Pairs, EncodedBlock]]:
    """Every block, encoded, in order. `settings`: see `PairEncoder.of`. No workers: all in this process."""
    if not workers:
        encoder = PairEncoder.of(settings)
        for label, pairs in blocks:
            yield label, pairs, encoder(pairs.sources, pairs.targets)
        return
    with ExitStack() as stack:
        team = deque(stack.enter_context(Worker(settings)) for _ in range(workers))
        busy: deque[tuple[Worker, Any, Pairs]] = deque()
        for label, pairs in blocks:
            if not team:
                worker, *done = busy.popleft()
                answer = worker.result()  # first: it would block on a full pipe
                worker.submit(pairs)
                busy.append((worker, label, pairs))
                yield (*done, answer)  # pyright: ignore
            else:
                worker = team.popleft()
                worker.submit(pairs)
                busy.append((worker, label, pairs))
        for worker, label, pairs in busy:
            yield label, pairs, worker.result()


class Worker:
    """A process that encodes one block at a time."""

    def __init__(self, settings: dict[str, Any]):
        # One thread each: there are as many workers as cores.
        variables = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1") | {
            "TOKENIZERS_PARALLELISM": "false"
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from seqloom.data.encoding.encode_workers import work; work()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | variables | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        self._send(json.dumps(settings).encode())

    def submit(self, pairs: Pairs) -> None:
        # No text holds a NUL.
        self._send("\0".join(pairs.sources).encode(), "\0".join(pairs.targets).encode())

    def result(self) -> EncodedBlock:
        try:
            head = json.loads(_receive(self._from))
            arrays = [np.frombuffer(_receive(self._from), dtype) for dtype in head["dtypes"]]
        except EOFError:
            raise _worker_died(self._process.wait()) from None
        hashes, *rest = arrays
        sides = (Side(Rows(*rest[at : at + 2]), tokens) for at, tokens in zip((0, 2), head["tokens"], strict=True))
        return EncodedBlock(hashes, *sides)

    def _send(self, *parts: bytes) -> None:
        try:
            _put(self._to, *parts)
        except BrokenPipeError:
            raise _worker_died(self._process.wait()) from None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def work() -> None:
    """The main loop of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends its workers
    inward, outward = sys.stdin.buffer, sys.stdout.buffer
    try:
        encoder = PairEncoder.of(json.loads(_receive(inward)))
        while True:
            sources, targets = (_receive(inward).decode().split("\0") for _ in range(2))
            block = encoder(sources, targets)
            arrays = [block.hashes, *block.source.rows, *block.target.rows]
            head = {
                "dtypes": [array.dtype.str for array in arrays],
                "tokens": [block.source.tokens, block.target.tokens],
            }
            _put(outward, json.dumps(head).encode(), *(array.tobytes() for array in arrays))
    except (EOFError, BrokenPipeError):
        os._exit(0)  # the parent is gone or done


def _put(stream: IO[bytes], *parts: bytes) -> None:
    for part in parts:
        stream.write(len(part).to_bytes(8, "little"))
        stream.write(part)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes:
    size = stream.read(8)
    if len(size) < 8:
        raise EOFError
    data = stream.read(int.from_bytes(size, "little"))
    if len(data) < int.from_bytes(size, "little"):  # killed while it was answering
        raise EOFError
    return data


def _worker_died(status: int) -> SeqloomError:
    why = "killed, perhaps for want of memory" if status < 0 else f"status {status}"
    return SeqloomError(f"a process that encodes the data has ended ({why})")
