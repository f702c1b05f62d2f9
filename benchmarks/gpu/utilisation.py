"""How busy a GPU is while a recipe is trained: does it wait for data?

    python benchmarks/gpu/utilisation.py cmudict-attention --time 40

Trains the recipe as `seqloom train --recipe NAME` does, alone on the machine, and asks nvidia-smi ten times a second
for the share of time in which some kernel ran, and for the power drawn. `training` is from the first logged update to
the last, with its validations; before it lie imports, data and recording, after it the test scores and the report.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

SAMPLE = 100  # milliseconds


class Sample(NamedTuple):
    at: float  # seconds
    busy: float  # percent of the time in which some kernel ran
    watts: float


def parsed(line: str, at: float) -> Sample | None:
    """A line of nvidia-smi: `87 %, 412.33 W` without units; None where the card does not say."""
    try:
        busy, watts = (float(part) for part in line.split(","))
    except ValueError:
        return None
    return Sample(at, busy, watts)


class Watch:
    """Samples while it is open."""

    def __enter__(self) -> Watch:
        asked = ["--query-gpu=utilization.gpu,power.draw", "--format=csv,noheader,nounits", f"--loop-ms={SAMPLE}"]
        self.samples: list[Sample] = []
        self.process = subprocess.Popen(["nvidia-smi", *asked], stdout=subprocess.PIPE, text=True)
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        return self

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if sample := parsed(line, time.monotonic()):
                self.samples.append(sample)

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        self.process.wait()
        self.thread.join()


def followed(process: subprocess.Popen[bytes], log: Path) -> tuple[float, float]:
    """When the first and the last update were logged."""
    first = last = 0.0
    size = 0
    while process.poll() is None:
        grown = log.stat().st_size if log.exists() else 0
        if grown > size:
            size, last = grown, time.monotonic()
            first = first or last
        time.sleep(0.05)
    return first, last


def between(samples: Sequence[Sample], first: float, last: float) -> list[Sample]:
    return [sample for sample in samples if first <= sample.at <= last]


def line(name: str, samples: Sequence[Sample]) -> str:
    if not samples:
        return f"| {name} | – | – | – | – | – |"
    busy = [sample.busy for sample in samples]
    idle = 100 * sum(share < 50 for share in busy) / len(busy)
    seconds, watts = samples[-1].at - samples[0].at, statistics.fmean(sample.watts for sample in samples)
    shares = f"{statistics.fmean(busy):.1f} | {statistics.median(busy):.0f} | {idle:.1f}"
    return f"| {name} | {seconds:.0f} | {shares} | {watts:.0f} |"


def rate(log: Path) -> str:
    """Of the last logged update."""
    told = [json.loads(one) for one in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
    rates = [one["tokens_per_second"] for one in told if "tokens_per_second" in one]
    return f"{statistics.median(rates):,.0f} target tokens a second (median)" if rates else "no update was logged"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="+")
    parser.add_argument("--time", type=float, help="seconds of training for each; else what the recipe says")
    parser.add_argument("--folder", type=Path, help="where the runs stay; else they are thrown away")
    args = parser.parse_args()
    print("| recipe | seconds | busy, mean % | median % | samples under 50 %, % | W |\n|---|" + "---:|" * 5, flush=True)
    for name in args.recipe:
        with tempfile.TemporaryDirectory() as temporary, Watch() as watch:
            run = (args.folder or Path(temporary)) / name
            words = [sys.executable, "-m", "seqloom", "train", "--recipe", name, "--output", str(run), "--quiet"]
            words += ["--time", f"{args.time}s"] if args.time else []
            log = run / "metrics.jsonl"
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
            first, last = followed(process, log)
            said = rate(log)
        print(line(f"`{name}`, the whole command", watch.samples))
        print(line(f"`{name}`, training", between(watch.samples, first, last)))
        print(f"{name}: exit status {process.returncode}, {said}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
