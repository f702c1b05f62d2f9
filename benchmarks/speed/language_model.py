"""How fast a word-level LSTM language model trains beside a plain nn.LSTM loop, alternating on the same batches.

    python benchmarks/speed/language_model.py --data train.txt --output benchmarks/results/today.md

Every round times ours, then the peer, over the same stretch of batches with the state carried along; the ratio is that
of the medians over all rounds. Both have the sizes, the dropout, the optimizer (fused AdamW) and the clipping of the
other. Each is in a process of its own, as a user would run it: our loop makes the allocator keep freed
memory, and in one process the peer would profit too. The claim under test: ours is at least as fast.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import multiprocessing
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.data.batches.language import Stream, StreamOptions
from seqloom.data.prepare.language import prepare_language
from seqloom.data.prepare.request import PrepareRequest
from seqloom.models.language_model import LanguageModel
from seqloom.training.loop import Loop
from seqloom.training.objectives.next_token import NextToken
from seqloom.training.settings import Training

EMBEDDING, DIM, LAYERS, DROPOUT, RATE, CLIP = 256, 512, 1, 0.2, 1e-3, 1.0
ROWS, LENGTH, VOCABULARY = 20, 35, 33_278  # a batch of the usual size; as many words as WikiText-2 has


class Plain(nn.Module):
    """The plain model: nn.Embedding, nn.LSTM, nn.Linear."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, EMBEDDING)
        self.lstm = nn.LSTM(EMBEDDING, DIM, LAYERS, batch_first=True)
        self.output = nn.Linear(DIM, size)

    def forward(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        x = F.dropout(self.embedding(tokens), DROPOUT, self.training)
        states, state = self.lstm(x, state)
        return self.output(F.dropout(states, DROPOUT, self.training)), state


class Peer:
    """The loop of a tutorial: carry the state, cross-entropy, clip, step."""

    def __init__(self, stream: Stream, size: int, device: torch.device, half: bool) -> None:
        torch.manual_seed(0)
        self.stream, self.device, self.half = stream, device, half
        self.model = Plain(size).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE, fused=True)
        self.batches = list(stream.plan(seed=1, epoch=0, batch_rows=ROWS, batch_tokens=None))
        self.at, self.state = 0, None

    def steps(self, count: int) -> float:
        total = torch.zeros((), device=self.device)
        for rows in self.batches[self.at : self.at + count]:
            tokens = self.stream.batch(rows).tokens.to(self.device, non_blocking=True)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
                logits, self.state = self.model(tokens[:, :-1], self.state)
                loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            self.state = tuple(part.detach() for part in self.state)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            self.optimizer.step()
            total += loss.detach()
        self.at += count
        return float(total) / count


class Ours:
    """Seqloom's own loop, as `seqloom train` runs it."""

    def __init__(self, stream: Stream, size: int, device: torch.device, half: bool) -> None:
        torch.manual_seed(0)
        encoder = {"kind": "lstm", "dim": DIM, "layers": LAYERS}
        model = LanguageModel(size, 0, encoder, embedding=EMBEDDING, dropout=DROPOUT).to(device)
        settings = Training.of(
            {"max_steps": 10**9, "batch_rows": ROWS, "rate": RATE, "clip": CLIP, "schedule": "constant", "warmup": 0}
            | {"precision": "bf16" if half else "fp32"}
        )
        self.updates = iter(Loop(NextToken(model), stream, settings, device))

    def steps(self, count: int) -> float:
        done = [next(self.updates) for _ in range(count)]
        return float(torch.stack([update.loss / update.count for update in done]).mean())


class Worker:
    """One contestant in its own process, which waits while the other is timed."""

    def __init__(self, make: Callable[..., Any], args: argparse.Namespace) -> None:
        context = multiprocessing.get_context("spawn")
        self.line, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(make, args, theirs), daemon=True)
        self.process.start()

    def timed(self, count: int) -> tuple[float, float]:
        """Seconds of so many updates, and their loss."""
        self.line.send(count)
        return self.line.recv()


def _serve(make: Callable[..., Any], args: argparse.Namespace, line: Any) -> None:
    device = torch.device(args.device)
    one = make(*text(args), device, args.precision == "bf16")
    for count in iter(line.recv, 0):
        gc.collect()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        loss = one.steps(count)
        line.send((time.perf_counter() - start, loss))


def text(args: argparse.Namespace) -> tuple[Stream, int]:
    """Words of a file; without one, numbers drawn as words are: the n-th as often as 1/n."""
    options = StreamOptions(tokens="words", length=LENGTH)
    if args.data:
        ready = prepare_language(PrepareRequest([args.data], 0.0, options, seed=1))
        return ready.train, ready.codec.size
    weights = 1 / np.arange(1, VOCABULARY - 3)
    ids = np.random.default_rng(1).choice(len(weights), 2_000_000, p=weights / weights.sum()) + 4
    return Stream(ids, None, options), VOCABULARY


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="a text file; default: made-up words")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--steps", type=int, default=20, help="updates a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output")
    args = parser.parse_args()
    size = text(args)[1]
    contestants = {"seqloom": Worker(Ours, args), "nn.LSTM": Worker(Peer, args)}
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    losses: dict[str, float] = {}
    for turn in range(args.rounds + 1):
        for name, one in contestants.items():
            spent, losses[name] = one.timed(args.steps)
            if turn:  # the first is the warm-up
                seconds[name].append(spent)
    for one in contestants.values():
        one.line.send(0)
    written = report(args, seconds, losses, size)
    print(written)
    if args.output:
        Path(args.output).write_text(written)


def report(args: argparse.Namespace, seconds: dict[str, list[float]], losses: dict[str, float], size: int) -> str:
    tokens = ROWS * LENGTH * args.steps
    # Less the folders of the data: they mean nothing on another machine.
    typed = shlex.join(Path(word).name if word == args.data else word for word in sys.argv[1:])
    ratio = statistics.median(seconds["nn.LSTM"]) / statistics.median(seconds["seqloom"])
    each = [theirs / ours for theirs, ours in zip(seconds["nn.LSTM"], seconds["seqloom"], strict=True)]
    where = torch.cuda.get_device_name(args.device) if "cuda" in args.device else platform.processor()
    lines = [
        f"# A word-level LSTM beside nn.LSTM, {datetime.date.today()}",
        "",
        f"`python benchmarks/speed/language_model.py {typed}`; torch {torch.__version__}, "
        f"{where or platform.machine()}, {torch.get_num_threads()} threads of {os.cpu_count()}, {args.precision}; "
        f"{size:,} words, embedding {EMBEDDING}, {LAYERS} layer of {DIM}, "
        f"batches of {ROWS} × {LENGTH}, {args.rounds} rounds of {args.steps} "
        "updates.",
        "",
        "| who | tokens/s | slowest–fastest round | loss at the end |",
        "|---|---:|---:|---:|",
        *(
            f"| {name} | {tokens / statistics.median(spent):,.0f} | {tokens / max(spent):,.0f}–"
            f"{tokens / min(spent):,.0f} | {losses[name]:.3f} |"
            for name, spent in seconds.items()
        ),
        "",
        f"seqloom ÷ nn.LSTM: {ratio:.2f} (round by round {min(each):.2f}–{max(each):.2f})",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
