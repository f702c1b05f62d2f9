"""Is a checkout slower than another? The race's rows by Seqloom alone, old and new in turns.

    python benchmarks/race/checkouts.py OLD NEW --device cpu --output benchmarks/results/today-checkouts.md
    python benchmarks/race/checkouts.py OLD NEW --device cuda --seconds 300

Each checkout runs in a process of its own, by its own benchmarks/race/peers/seqloom.py, on the same batches. In every
round each runs once, in turns the other first. A figure is the median over rounds of new ÷ old, in seconds: below 1 the
new one is faster. The interval holds the median of such ratios with a probability of 96 % for nine rounds (the second
smallest to the second largest: Thompson 1936). A row fails where the interval lies wholly above the bound.
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from batches import text_of, write
from environments import AbsentError
from racing import PASSES, PAUSE, order
from run import IDLE, machine
from targets import OURS, Entrant, Work, works
from words import Words
from workers import Worker

BOUND, ROUNDS, TURN = 1.02, 9, 1.0


class Row(NamedTuple):
    """A work in one precision: seconds a pass of old and new by rounds, or why there are none."""

    name: str
    old: list[float]
    new: list[float]
    absent: str = ""

    @property
    def ratios(self) -> list[float]:
        return sorted(new / old for new, old in zip(self.new, self.old, strict=True))

    @property
    def interval(self) -> tuple[float, float]:
        ratios = self.ratios
        edge = 1 if len(ratios) >= 7 else 0
        return ratios[edge], ratios[-1 - edge]

    @property
    def slower(self) -> bool:
        return not self.absent and self.interval[0] > BOUND


def started(checkout: Path) -> Worker:
    race = checkout / "benchmarks" / "race"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(race), str(checkout)))}
    return Worker([sys.executable, "-P", str(race / "peers" / f"{OURS}.py")], environment)


def timed(workers: tuple[Worker, Worker], asked: dict[str, Any], rounds: int, turn: float) -> list[list[float]]:
    """Seconds a pass, of old and new."""
    for worker in workers:
        worker.ask(600, do="make", name="row", order=asked)
    first = [0.0, 0.0]
    for _ in range(2 + asked["compiled"]):
        first = [worker.ask(600, do="go", name="row", passes=1)["seconds"] for worker in workers]
    passes = max(1, min(PASSES, math.ceil(turn / max(*first, 1e-9))))
    seconds: list[list[float]] = [[], []]
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            time.sleep(PAUSE)
            told = workers[which].ask(600, do="go", name="row", passes=passes)
            seconds[which].append(told["seconds"] / passes)
    for worker in workers:
        worker.ask(60, do="drop", name="row")
    return seconds


def compared(args: argparse.Namespace, folder: Path) -> list[Row]:
    words = Words(None) if args.device == "cpu" else None
    text = text_of(None, folder) if args.device == "cpu" else None
    workers, rows = (started(args.old), started(args.new)), list[Row]()
    until = time.monotonic() + args.seconds
    for work in works("cuda" if args.device.startswith("cuda") else "cpu", args.only, args.quick):
        file = folder / f"{work.key}.npz"
        write(file, work, words, text)
        for one in (one for one in work.entrants if one.peer == OURS):
            if one.label.endswith("compiled") and not args.compiled:
                continue
            rows.append(row(work, one, file, workers, args, until))
            print(line(rows[-1]), flush=True)
    for worker in workers:
        worker.close()
    return rows


def row(
    work: Work, one: Entrant, file: Path, workers: tuple[Worker, Worker], args: argparse.Namespace, until: float
) -> Row:
    name = f"{work.title}, {one.label.removeprefix(OURS).strip() or 'fp32'}"
    if time.monotonic() > until:
        return Row(name, [], [], "no time was left")
    asked = order(work, one, file, {"device": args.device, "threads": args.threads})
    try:
        return Row(name, *timed(workers, asked, args.rounds, args.turn))
    except AbsentError as error:
        return Row(name, [], [], str(error))


def line(row: Row) -> str:
    if row.absent:
        return f"| {row.name} | – | – | – | {row.absent} |"
    low, high = row.interval
    old, new = (f"{1000 * statistics.median(seconds):.1f}" for seconds in (row.old, row.new))
    verdict = "slower" if row.slower else "not slower"
    return f"| {row.name} | {old} | {new} | {statistics.median(row.ratios):.3f} [{low:.3f}, {high:.3f}] | {verdict} |"


def report(args: argparse.Namespace, rows: list[Row]) -> str:
    load = "" if args.device != "cpu" or args.load <= IDLE else f"; NOT IDLE: load {args.load:.1f} at the start"
    return "\n".join(
        [
            f"# Two checkouts on {'one GPU' if args.device.startswith('cuda') else 'the CPU'}",
            "",
            f"- date: {datetime.date.today().isoformat()}; command: `python benchmarks/race/checkouts.py OLD NEW "
            f"--device {args.device}`; OLD is {args.old_name}, NEW {args.new_name}",
            f"- machine: {machine(args.device)}; {args.threads} threads{load}",
            f"- {args.rounds} rounds; a ratio is new ÷ old in seconds; slower: its interval lies above {BOUND}",
            "",
            "| row | old, ms a pass | new | new ÷ old, median and interval | |",
            "|---|---:|---:|---:|---|",
            *map(line, rows),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("old", type=lambda word: Path(word).resolve())
    add("new", type=lambda word: Path(word).resolve())
    add("--old-name", default="the commit before", help="for the page")
    add("--new-name", default="this commit", help="for the page")
    add("--device", default="cpu", help="cpu or cuda")
    add("--only", type=lambda text: text.split(","), default=[], help="kinds or keys of works, commas between")
    add("--rounds", type=int, default=ROUNDS)
    add("--turn", type=float, default=TURN, help="seconds a turn should last")
    add("--seconds", type=float, default=float("inf"), help="what would begin after that is left out")
    add("--threads", type=int, default=2)
    add("--compiled", action="store_true", help="torch.compile's rows too")
    add("--quick", action="store_true", help="toy models: does it run?")
    add("--output", type=Path)
    args = parser.parse_args()
    args.load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        rows = compared(args, Path(folder))
    text = report(args, rows)
    print(text)
    if args.output:
        args.output.write_text(text, encoding="utf-8")
    sys.exit(any(row.slower for row in rows))


if __name__ == "__main__":
    main()
