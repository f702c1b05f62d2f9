"""ListOps and MNIST pixel by pixel, for at least six mixers beside the published table, in minutes.

    python benchmarks/mixers/long_range.py --prepare data                     here or there, once: 30 s
    python benchmarks/mixers/long_range.py --data data --jobs 8 --seconds 480 --output longrange.json

Each pair of mixer and task is trained for its share of the time and then scored on the test split. Attention on the
pictures, of which most is expected, has all of the time; the others share what the other processes have, or have the
seconds of `--each`. To split it: `--only attention --tasks pixels,pixels-permuted --jobs 2 --seconds 240`, then the
same without attention, then `--tasks listops`; where `--output` names the file of an earlier run its results are kept.
Start CUDA MPS before, and let few share a GPU: sixteen at once had a twentieth of it each.

The data are those of the registry (`listops`, `pixels`, `pixels-permuted`), of ListOps the first 32,000 for training;
$SEQLOOM_DATA names the mirror that has MNIST. Grey values enter as numbers. The published models are larger and were
trained for hours: see PUBLISHED.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from memory import read, several
from mixer_models import KINDS, Frame, parameters, plain_windows
from process_pool import Pool, Request, serve
from recorded_updates import Updates
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.data.datasets import catalog
from seqloom.data.datasets.parsers import mnist_split, reading_order
from seqloom.errors import SeqloomError, known
from seqloom.files import write_json

TASKS = ("listops", "pixels", "pixels-permuted")
MOST = {"train": 32_000, "valid": 2_000, "test": 2_000}  # expressions
# In percent. ListOps: Tay et al. 2021, table 1, https://arxiv.org/abs/2011.04006 (6 layers of 512). Pixels: Bai et al.
# 2018, table 1, https://arxiv.org/abs/1803.01271 (70,000 parameters; their dilated convolution is causal); attention:
# as Trinh et al. 2018 report it, https://arxiv.org/abs/1803.00144.
PUBLISHED: dict[str, dict[str, float]] = {
    "listops": {
        "attention": 36.37,
        "window": 15.82,
        "longformer": 35.63,
        "linformer": 35.70,
        "reformer": 37.27,
        "bigbird": 36.05,
        "performer": 18.01,
        "linear": 16.13,
    },
    "pixels": {"rnn": 21.5, "gru": 96.2, "lstm": 87.2, "attention": 98.9, "dilated": 99.0},
    "pixels-permuted": {"rnn": 25.3, "gru": 87.3, "lstm": 85.7, "attention": 97.9, "dilated": 97.2},
}
USUAL = {
    "listops": ["attention", "window", "longformer", "bigbird", "linear", "performer", "linformer", "reformer", "lstm"],
    "pixels": ["attention", "window", "linear", "linformer", "dilated", "gru", "lstm", "mingru", "rnn"],
}
USUAL["pixels-permuted"] = USUAL["pixels"]
NAMES = {token: n for n, token in enumerate(["", "[MIN", "[MAX", "[MED", "[SM", "]", *"0123456789"])}
FULL = {"dim": 128, "rows": {"listops": 32, "pixels": 128, "pixels-permuted": 128}, "rate": 1e-3, "dropout": 0.1}
TINY = {"dim": 16, "rows": dict.fromkeys(TASKS, 8), "rate": 3e-3, "dropout": 0.0}
MARGIN = 40.0  # seconds for starting processes and scoring


def prepare(folder: Path, tasks: Sequence[str], tiny: bool = False) -> None:
    """A file of numbers for each task that has none yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for task in tasks:
        file = folder / f"{task}.npz"
        if not file.exists():
            arrays: dict[str, np.ndarray] = {}
            for split in MOST:
                made = _listops(split, tiny) if task == "listops" else _pixels(task, split, tiny)
                arrays |= dict(zip((f"{split}_tokens", f"{split}_labels"), made, strict=True))
            np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]


def _listops(split: str, tiny: bool) -> tuple[np.ndarray, np.ndarray]:
    examples = catalog.find("listops-short" if tiny else "listops").examples(split)
    rows = [(text.split(" "), int(label)) for text, label in islice(examples, 64 if tiny else MOST[split])]
    tokens = np.zeros((len(rows), 100 if tiny else 2000), np.uint8)
    for row, (words, _) in zip(tokens, rows, strict=True):
        row[: len(words)] = [NAMES[word] for word in words]
    return tokens, np.array([label for _, label in rows])


def _pixels(task: str, split: str, tiny: bool) -> tuple[np.ndarray, np.ndarray]:
    if tiny:  # no picture at all: the brighter, the higher the digit
        draw = np.random.default_rng(1)
        labels = draw.integers(0, 10, 64)
        return (draw.integers(0, 28, (64, 16)) + 25 * labels[:, None]).astype(np.uint8), labels
    pictures, labels = zip(*mnist_split(catalog.find(task), split), strict=True)
    return np.stack(pictures).reshape(len(pictures), -1)[:, reading_order(task)], np.array(labels)


class Tokens(nn.Module):
    """[B, T] numbers of tokens -> [B, T, dim]."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(len(NAMES), dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        # A product is quicker than to gather gradients for so few rows of so many tokens.
        return self.linear(torch.eye(len(NAMES), device=x.device)[x.int()])


class Greys(nn.Module):
    """[B, T] grey values, 0 … 255 -> [B, T, dim]."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(1, dim)
        nn.init.normal_(self.linear.weight, std=dim**-0.5)  # no larger than a place's vector, or that is not seen
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear((x.float()[:, :, None] / 255 - 0.13) / 0.31)


class Learner:
    """One model on one task."""

    def __init__(self, asked: Request) -> None:
        torch.manual_seed(asked["seed"])
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        with np.load(asked["file"], allow_pickle=False) as stored:
            self.data = {name: torch.from_numpy(stored[name]).to(self.device) for name in stored.files}
        longest, kind = self.data["train_tokens"].size(1), KINDS[asked["mixer"]]
        self.ragged = asked["task"] == "listops"
        enter = (Tokens if self.ragged else Greys)(asked["dim"])
        position = "rotary" if self.ragged else {"kind": "learned", "longest": longest}
        sizes = {"dim": asked["dim"], "layers": 2 if kind.cell is not None else 4, "dropout": asked["dropout"]}
        self.model = Frame(enter, 10, kind, longest, position=position, **sizes).to(self.device)
        self.updates = Updates(self.model, asked["rate"], self.device, asked["plain"])
        self.rows = asked["rows"][asked["task"]]
        self.groups = grouped((self.data["train_tokens"] != 0).sum(1)) if self.ragged else [(longest, None)]
        self.chances = [1 if rows is None else len(rows) for _, rows in self.groups]

    def learn(self, asked: Request) -> Request:
        limit, started = asked["within"] if not asked.get("steps") else math.inf, time.monotonic()
        steps, step, done = asked.get("steps") or 10**9, 0, 0.0
        self.updates.on(*(partial(self.loss, *group) for group in self.groups))
        draw = random.Random(asked["seed"])
        while step < steps and done < 1:
            step += 1
            [which] = draw.choices(range(len(self.groups)), self.chances)
            self.updates.update(min(1.0, step / 200) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done))), which)
            if step % 20 == 0 or asked.get("steps"):
                self.updates.total.item()  # a wait: else the host runs far ahead of the clock
                done = max((time.monotonic() - started) / limit, step / steps)
        seen = step * self.rows
        return {
            "score": self.accuracy("test"),
            "valid": self.accuracy("valid"),
            "updates": step,
            "epochs": round(seen / len(self.data["train_labels"]), 2),
            "seconds": round(time.monotonic() - started, 1),
            "parameters": parameters(self.model),
            "plain": not self.updates.capture,
        }

    def loss(self, longest: int, among: Tensor | None) -> Tensor:
        """Of rows drawn from `among`, none of which is longer; None: from all."""
        labels = self.data["train_labels"]
        many = len(labels) if among is None else len(among)
        rows = torch.randint(0, many, (self.rows,), device=self.device)
        rows = rows if among is None else among[rows]
        return F.cross_entropy(self.scores(self.data["train_tokens"][rows, :longest]), labels[rows])

    def scores(self, tokens: Tensor) -> Tensor:
        return self.model(tokens, (tokens != 0).sum(1) if self.ragged else None)

    @torch.no_grad()
    def accuracy(self, split: str) -> float:
        self.model.eval()
        tokens, labels = (self.data[f"{split}_{name}"] for name in ("tokens", "labels"))
        right = torch.zeros((), device=self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            for part, wanted in zip(tokens.split(2 * self.rows), labels.split(2 * self.rows), strict=True):
                right += (self.scores(part).argmax(-1) == wanted).sum()
        self.model.train()
        return float(right) / len(labels)


def grouped(lengths: Tensor, parts: int = 4) -> list[tuple[int, Tensor]]:
    """Rows of like lengths together, as many in each part: the longest, a multiple of 8, and which rows. Half of all
    places would be padding, were all rows as long as the longest."""
    order = lengths.argsort()
    return [(-8 * (-int(lengths[part].max()) // 8), part) for part in order.tensor_split(parts)]


def answered(asked: Request) -> Request:
    with plain_windows():
        return Learner(asked).learn(asked)


def works(args: argparse.Namespace) -> list[list[Request]]:
    """Those with all of the time first; the others share what is left of the processes."""
    sizes = TINY if args.tiny else FULL
    pairs = [(task, name) for task in args.tasks for name in (args.only or USUAL[task])]
    heavy = [pair for pair in pairs if pair[1] == "attention" and pair[0] != "listops"]
    light = [pair for pair in pairs if pair not in heavy]
    time_ = max(args.seconds - MARGIN, 5.0)
    if args.jobs <= len(heavy):
        heavy, light = [], pairs
    each = args.each or min(time_, time_ * (args.jobs - len(heavy)) / max(len(light), 1))
    found = []
    for task, name in [*heavy, *light]:
        within = time_ if (task, name) in heavy else each
        file = str(args.data.resolve() / f"{task}.npz")
        asked = {"mixer": name, "task": task, "file": file, "within": within, "seed": args.seed, **sizes}
        found.append([asked | ({"steps": 6} if args.tiny else {})])
    return found


def table(found: Sequence[dict[str, Any]]) -> str:
    head = ["mixer", "parameters"]
    for task in TASKS:
        head += [task, "published", "epochs"]
    rows = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    by_place = {(one["mixer"], one["task"]): one for one in found}
    for mixer in (name for name in KINDS if any(one["mixer"] == name for one in found)):
        sizes = [one["parameters"] for one in found if one["mixer"] == mixer and "parameters" in one]
        cells = [KINDS[mixer].about, f"{max(sizes):,}" if sizes else ""]
        for task in TASKS:
            one, known_ = by_place.get((mixer, task), {}), PUBLISHED[task].get(mixer)
            score = one.get("absent") or (f"{100 * one['score']:.2f}" if "score" in one else "")
            cells += [score.replace("|", "/"), "" if known_ is None else str(known_), str(one.get("epochs", ""))]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join([*rows, "", "Accuracy on the test split, in %."])


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=several, default=[], help=f"mixers, commas between: {', '.join(KINDS)}")
    parser.add_argument("--tasks", type=several, default=list(TASKS), help=",".join(TASKS))
    parser.add_argument("--jobs", type=int, default=8, help="processes at once")
    parser.add_argument("--seconds", type=float, default=480.0, help="for everything")
    parser.add_argument("--each", type=float, help="seconds of training for each but those that have all of the time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, default=Path("longrange-data"), help="folder of the numbers")
    parser.add_argument("--prepare", type=Path, metavar="FOLDER", help="write the numbers there, and no more")
    parser.add_argument("--tiny", action="store_true", help="a toy, to see that everything runs")
    parser.add_argument("--output", type=Path, help="JSON of all results")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    for name in args.only:
        known(name, KINDS, "mixer")
    for name in args.tasks:
        known(name, TASKS, "task")
    return args


def main(words: list[str] | None = None) -> None:
    try:
        args = arguments(words)
        if args.worker:
            serve(answered)
            return
        prepare(args.prepare or args.data, args.tasks, args.tiny)
        if args.prepare:
            return
        found = read(args.output)["results"] if args.output and args.output.exists() else []

        def record(request: Request, told: Request) -> None:
            kept = {name: request[name] for name in ("mixer", "task")}
            found[:] = [one for one in found if any(one[name] != value for name, value in kept.items())]
            found.append({**kept, **told})
            if args.output:
                write_json(args.output, {"torch": torch.__version__, "results": found})
            print(json.dumps(found[-1]), file=sys.stderr, flush=True)

        Pool(Path(__file__).resolve(), args.jobs, args.seconds, record).run(works(args))
    except SeqloomError as error:
        raise SystemExit(str(error)) from error
    print(table(found))


if __name__ == "__main__":
    main()
