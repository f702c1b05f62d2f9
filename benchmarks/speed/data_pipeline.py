"""How fast files become batches: reading, encoding and caching, opening the cache, planning an epoch.

    python benchmarks/speed/data_pipeline.py --pairs 10000000 --tokens chars

Pairs are generated into a temporary folder; the work is done in a fresh process, watched from outside.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

SEED, WORDS = 7, 30_000


def generate(file: Path, pairs: int, width: int) -> None:
    """Pairs of `width` characters a side: words of a language whose commonest are as common as in English."""
    draw = random.Random(SEED)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(draw.choices(letters, k=draw.randint(1, 9))) for _ in range(WORDS)]
    weights = [1 / rank for rank in range(1, WORDS + 1)]
    with file.open("w") as out:
        for start in range(0, pairs, 10_000):
            count = min(10_000, pairs - start)
            stream = " ".join(draw.choices(words, weights, k=2 * count * (width // 4 + 1)))
            sides = [stream[i * width : (i + 1) * width].strip() or "x" for i in range(2 * count)]
            out.writelines(f"{s}\t{t}\n" for s, t in zip(sides[::2], sides[1::2], strict=True))


def measure(file: Path, cache: Path, tokens: str, batch: dict[str, int]) -> dict[str, Any]:
    """Run in a process of its own."""
    from seqloom.data.batches.bucketing import plan
    from seqloom.data.files.file_groups import group_files
    from seqloom.data.formats.pairs_fast import read_bulk
    from seqloom.data.prepare.pairs import DataOptions, prepare_pairs
    from seqloom.data.prepare.request import PrepareRequest

    options = DataOptions(source_tokens=tokens, target_tokens=tokens)
    lap = Laps()
    pairs = sum(len(found) for one in group_files([str(file)]) for found in read_bulk(one))
    lap("read")
    request = PrepareRequest([str(file)], 0.05, options, seed=SEED, cache=cache)
    prepare_pairs(request)
    lap("prepare")
    data = prepare_pairs(request)
    lap("open")
    lengths = data.train.source_lengths, data.train.target_lengths
    lap("lengths")
    plan(*lengths, seed=SEED, epoch=0, **batch)
    lap("first plan")
    order = plan(*lengths, seed=SEED, epoch=1, **batch)
    lap("plan")
    data.train.batch(order[0])
    lap("batch")
    return {"pairs": pairs, "seconds": lap.seconds, "cpu": lap.cpu, "own": _most(resource.RUSAGE_SELF)}


class Laps:
    """Seconds, and seconds of processor time with that of workers, between calls."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self._last = self._now()

    def __call__(self, name: str) -> None:
        now = self._now()
        self.seconds[name], self.cpu[name] = now[0] - self._last[0], now[1] - self._last[1]
        self._last = self._now()

    def _now(self) -> tuple[float, float]:
        times = os.times()
        return time.monotonic(), times.user + times.system + times.children_user + times.children_system


def _most(who: int) -> int:
    return resource.getrusage(who).ru_maxrss * 1024


class Watch(threading.Thread):
    """The most memory that a process and its children held at one time, looked up ten times a second."""

    def __init__(self, process: int):
        super().__init__(daemon=True)
        self.process, self.most, self.done = process, 0, False

    def run(self) -> None:
        while not self.done:
            self.most = max(self.most, sum(map(_private, _family(self.process))))
            time.sleep(0.1)


def _family(process: int) -> list[int]:
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return []
    return [process, *(one for child in children for one in _family(int(child)))]


def _private(process: int) -> int:
    """Resident bytes, without the files that are mapped: those the system may drop at any time."""
    try:
        fields = Path(f"/proc/{process}/statm").read_text().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * resource.getpagesize()


def table(found: dict[str, Any], most: int, tokens: str, batch: str) -> str:
    seconds, cpu, pairs = found["seconds"], found["cpu"], found["pairs"]
    rows = [
        ("reading alone", f"{pairs / seconds['read']:,.0f} pairs/s", cpu["read"]),
        ("reading, encoding, caching", f"{pairs / seconds['prepare']:,.0f} pairs/s", cpu["prepare"]),
        ("opening the cache", f"{seconds['open']:.2f} s", cpu["open"]),
        ("lengths of all rows", f"{seconds['lengths']:.2f} s", cpu["lengths"]),
        (f"planning an epoch ({batch})", f"{seconds['plan']:.2f} s", cpu["plan"]),
        ("first batch", f"{1000 * seconds['batch']:.1f} ms", cpu["batch"]),
    ]
    lines = [f"| {pairs:,} pairs, {tokens} | | processor seconds |", "|---|---:|---:|"]
    lines += [f"| {name} | {value} | {spent:.1f} |" for name, value, spent in rows]
    lines += [f"| most memory, workers included | {most / 2**20:,.0f} MiB | |"]
    lines += [f"| main process alone, mapped files included | {found['own'] / 2**20:,.0f} MiB | |"]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--tokens", default="chars", help="chars, words, bytes or bpe:N, for both sides")
    parser.add_argument("--width", type=int, default=20, help="characters a side")
    parser.add_argument("--batch-rows", type=int, default=None)
    parser.add_argument("--batch-tokens", type=int, default=None)
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    batch = {"batch_tokens": given.batch_tokens} if given.batch_tokens else {"batch_rows": given.batch_rows or 128}
    if given.inside:
        file, cache = map(Path, given.inside)
        print(json.dumps(measure(file, cache, given.tokens, batch)))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pairs.tsv"
        generate(file, given.pairs, given.width)
        command = [sys.executable, __file__, *sys.argv[1:], "--inside", str(file), str(Path(folder) / "cache")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        watch = Watch(process.pid)
        watch.start()
        out, _ = process.communicate()
        watch.done = True
        if process.returncode:
            raise SystemExit(process.returncode)
        batching = ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in batch.items())
        print(table(json.loads(out), watch.most, given.tokens, batching))


if __name__ == "__main__":
    main()
