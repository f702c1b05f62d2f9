"""What each way to mix a sequence remembers: copy, recall and adding over 10 to 2,000 steps, on one budget of tokens.

    python benchmarks/mixers/memory.py --jobs 4 --seconds 560 --output remembering.json
    python benchmarks/mixers/memory.py --draw remembering.json --output docs/remembering.svg

A mixer learns a task by a chain of lengths: at each it goes on from the weights of the length before, so that its
tokens are spent on remembering longer and not on learning anew what is asked. Every mixer has the same tokens for a
length (`--tokens`, and of short ones no more than `--updates` take), in batches of the same rows, in a frame of the
same width and about the same parameters (mixer_models.py). What is solved sooner stops sooner, and what has forgotten
at two lengths in a row is not asked for longer ones. Batches are drawn on the device and an update is one CUDA graph,
small enough for a few processes to share a GPU; start CUDA MPS before (`nvidia-cuda-mps-control -d`).

To split it: `--tasks copy`, then recall, then adding; or `--only attention,lstm`. Where `--output` names the file of an
earlier run its results are kept. Cells that step one by one take minutes for what others do in seconds: they are last.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import torch
from memory_report import FORGOTTEN, SOLVED, drawn, share, table
from memory_tasks import TASKS
from mixer_models import KINDS, Frame, parameters, plain_windows
from process_pool import Pool, Request, serve
from recorded_updates import Updates
from torch import nn

from seqloom.errors import SeqloomError, known
from seqloom.files import write_atomic, write_json

LENGTHS = (10, 20, 50, 100, 200, 500, 1000, 2000)  # the first two only to learn what is asked
FULL = {"dim": 128, "layers": 2, "rows": 32, "tokens": 8_000_000, "updates": 3_000, "judged": 512, "rate": 1e-3}
AT_ONCE = 1 << 17  # tokens of a batch that is only scored
TINY = {"dim": 16, "layers": 1, "rows": 8, "tokens": 4_000, "updates": 100, "judged": 16, "rate": 3e-3}


class Learner:
    """A model and its updates, from length to length."""

    def __init__(self, asked: Request) -> None:
        torch.manual_seed(asked["seed"])
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.task, self.kind = TASKS[asked["task"]], KINDS[asked["mixer"]]
        self.longest = asked["longest"] + self.task.extra
        enter = nn.Linear(self.task.width, asked["dim"])
        sizes = {"dim": asked["dim"], "layers": asked["layers"], "asked": self.task.asked}
        self.model = Frame(enter, self.task.outputs, self.kind, self.longest, **sizes).to(self.device)
        self.updates = Updates(self.model, asked["rate"], self.device, asked["plain"])
        self.failed = self.steps = 0

    def learn(self, asked: Request) -> Request:
        """Train on one length, until it is solved or tokens or seconds are spent; and what is remembered then."""
        length, rows, judged = asked["length"], asked["rows"], asked["judged"]
        each = rows * (length + self.task.extra)
        steps = max(1, min(asked["tokens"] // each, asked["updates"]))
        every, solved, started = max(5, steps // 15), 0, time.monotonic()
        self.updates.on(lambda: self.loss(rows, length))
        step = 0
        for step in range(1, steps + 1):
            self.updates.update(rated(step, steps, self.steps + step))
            if step % every == 0:
                solved = solved + 1 if self.score(length, judged // 4) > SOLVED else 0
                if solved == 2 or time.monotonic() - started > asked["within"]:
                    break
        self.steps += step
        score = self.score(length, judged)
        self.failed = self.failed + 1 if share(asked["task"], score) < FORGOTTEN else 0
        return {
            "score": score,
            "tokens": step * each,
            "updates": step,
            "cut": step < steps and solved < 2,
            "seconds": round(time.monotonic() - started, 1),
            "parameters": parameters(self.model),
            "plain": not self.updates.capture,
            "stop": self.failed >= 2,
        }

    def loss(self, rows: int, length: int) -> torch.Tensor:
        x, target = self.task.draw(rows, length, self.device)
        return self.task.loss(self.model(x), target)

    @torch.no_grad()
    def score(self, length: int, rows: int) -> float:
        """Of so many fresh sequences; what is not finite counts as nothing."""
        self.model.eval()
        each = max(1, min(rows, AT_ONCE // (length + self.task.extra)))
        found = torch.zeros((), device=self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            for _ in range(times := math.ceil(rows / each)):
                x, target = self.task.draw(each, length, self.device)
                found += self.task.right(self.model(x), target)
        self.model.train()
        score = float(found) / times
        return score if math.isfinite(score) else 0.0


def rated(step: int, steps: int, ever: int) -> float:
    """The share of the rate: rising over the first 100 updates and a few of every length, falling in the last third."""
    warm = min(1.0, ever / 100, step / min(20, max(steps // 10, 1)))
    return warm * min(1.0, 0.1 + 0.9 * (steps - step) / max(steps / 3, 1))


def answer() -> Any:
    """A worker's: the first request of a chain makes the learner, which the others go on with."""
    kept: list[Learner] = []

    def answered(asked: Request) -> Request:
        with plain_windows():
            if asked["first"]:
                kept.clear()
                torch.cuda.empty_cache()
                kept.append(Learner(asked))
            return kept[0].learn(asked)

    return answered


def chains(args: argparse.Namespace) -> list[list[Request]]:
    """Recurrent ones first, which take longest for long rows; last those that step one by one."""
    sizes = TINY if args.tiny else FULL
    sizes = {**sizes, **{name: given for name in ("tokens", "updates", "rows") if (given := getattr(args, name))}}
    names = sorted(args.only or KINDS, key=lambda name: (KINDS[name].slow, KINDS[name].cell is None))
    return [
        [
            {"mixer": name, "task": task, "length": length, "longest": max(args.lengths), "seed": args.seed, **sizes}
            for length in args.lengths
        ]
        for name in names
        for task in args.tasks
    ]


class Results:
    """All that was found, in a file after every answer."""

    def __init__(self, file: Path | None, facts: dict[str, Any]) -> None:
        self.file, self.facts, self.found = file, facts, []
        if file is not None and file.exists():
            self.found = read(file)["results"]

    def __call__(self, request: Request, told: Request) -> None:
        kept = {name: request[name] for name in ("mixer", "task", "length")}
        self.found = [one for one in self.found if any(one[name] != value for name, value in kept.items())]
        self.found.append({**kept, **{name: value for name, value in told.items() if name != "stop"}})
        if self.file is not None:
            write_json(self.file, {**self.facts, "results": self.found})
        said = told.get("absent") or f"{told['score']:.3f} in {told['updates']} updates, {told['seconds']} s"
        print(f"{kept['mixer']:>14} {kept['task']} {kept['length']}: {said}", file=sys.stderr, flush=True)


def read(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SeqloomError(f"{file}: no results of this script: {error}") from error


def several(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=several, default=[], help=f"mixers, commas between: {', '.join(KINDS)}")
    parser.add_argument("--tasks", type=several, default=list(TASKS), help="copy,recall,adding")
    parser.add_argument("--lengths", type=several, default=[], help="default: " + ",".join(map(str, LENGTHS)))
    parser.add_argument("--tokens", type=int, help=f"for each length; default {FULL['tokens']:,}")
    parser.add_argument("--updates", type=int, help=f"for each length, at most; default {FULL['updates']:,}")
    parser.add_argument("--rows", type=int, help=f"sequences a batch; default {FULL['rows']}")
    parser.add_argument("--jobs", type=int, default=4, help="processes at once")
    parser.add_argument("--seconds", type=float, default=360.0, help="for everything")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tiny", action="store_true", help="a toy, to see that everything runs")
    parser.add_argument("--output", type=Path, help="JSON of all results; with --draw the picture, SVG")
    parser.add_argument("--draw", type=Path, metavar="FILE.json", help="the table and the picture of earlier results")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    args.lengths = sorted(map(int, args.lengths)) or ([8, 16] if args.tiny else list(LENGTHS))
    for name in args.only:
        known(name, KINDS, "mixer")
    for name in args.tasks:
        known(name, TASKS, "task")
    return args


def main(words: list[str] | None = None) -> None:
    try:
        args = arguments(words)
        if args.worker:
            serve(answer())
            return
        if args.draw:
            found = read(args.draw)["results"]
            if args.output:
                write_atomic(args.output, str(drawn(found)) + "\n")
        else:
            facts = {"torch": torch.__version__, "lengths": args.lengths, "tokens": args.tokens or FULL["tokens"]}
            results = Results(args.output, facts)
            Pool(Path(__file__).resolve(), args.jobs, args.seconds, results).run(chains(args))
            found = results.found
    except SeqloomError as error:
        raise SystemExit(str(error)) from error
    print(table(found))


if __name__ == "__main__":
    main()
