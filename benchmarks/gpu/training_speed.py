"""How fast one GPU trains in bf16: the loop itself on one batch over and over, plain, captured, compiled and both.

    python benchmarks/gpu/training_speed.py --output results.md --limit 200

Each line is a training by `Loop`: the batch from the host, forward, backward, clipping, fused AdamW. Losses of the
fast ways stand beside the plain way's. `--only` takes parts of the lines' names; `--limit` is in seconds: what would
begin after it is left out.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

from seqloom.acceleration import TWINS, load
from seqloom.data.batches.bucketing import Plan
from seqloom.data.batches.collate import Batch, pad
from seqloom.data.batches.language import LanguageBatch
from seqloom.data.tokenizers.tokenizers import BOS, EOS
from seqloom.fast.attention import qkv_gpu
from seqloom.fast.loss import chunked
from seqloom.models.language_model import LanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.parts.layers.cross_entropy import cross_entropy_sum
from seqloom.training.loop import Loop
from seqloom.training.objectives.next_token import NextToken
from seqloom.training.objectives.teacher_forcing import TeacherForcing
from seqloom.training.settings import Training

STARTED = time.monotonic()


@dataclass(frozen=True)
class Sizes:
    vocabulary: int = 32_000
    dim: int = 512
    layers: int = 6
    heads: int = 8
    hidden: int = 2048
    width: int = 32
    rows: tuple[int, int, int] = (384, 1536, 256)  # Transformer, the same with more, LSTM
    gpt: tuple[int, int, int, int, int, int] = (50_257, 768, 12, 12, 1024, 32)  # …, layers, heads, block, rows
    steps: int = 200
    seconds: float = 2.5  # a line's timing


FULL = Sizes()
TINY = Sizes(120, 32, 1, 2, 64, 6, (6, 8, 5), (150, 32, 1, 2, 16, 3), 6, 0.2)


class Same:
    """A batch source with one batch."""

    fingerprint, folder = "", None

    def __init__(self, batch: Any) -> None:
        self.one = batch

    def plan(self, **_: Any) -> Plan:
        ends = np.arange(1, 100_001)
        return Plan(ends - 1, ends)

    def batch(self, rows: np.ndarray) -> Any:
        return self.one

    def count(self, rows: np.ndarray) -> int:
        return self.one.count


def tokens(draw: np.random.Generator, size: int, shape: tuple[int, ...]) -> np.ndarray:
    """Words as unequal as in a text, so that there is something to learn; <eos> not among them."""
    return 4 + (draw.zipf(1.2, shape) - 1) % (size - 4)


def pairs(sizes: Sizes, rows: int, ragged: bool) -> Batch:
    draw, width = np.random.default_rng(1), sizes.width
    lengths = draw.integers(width * 3 // 4, width + 1, rows) if ragged else np.full(rows, width)
    lengths[0] = width
    source, target = (tokens(draw, sizes.vocabulary, (rows, width)) for _ in range(2))
    return Batch.of(
        pad([[*row[: n - 1], EOS] for row, n in zip(source, lengths, strict=True)]),
        pad([[BOS, *row[: width - 1], EOS] for row in target]),
    )


def transformer(sizes: Sizes, dropout: float = 0.1) -> nn.Module:
    stack = {"kind": "transformer", "dim": sizes.dim, "layers": sizes.layers, "heads": sizes.heads}
    stack |= {"hidden": sizes.hidden, "dropout": dropout}
    sizes_ = (sizes.vocabulary, sizes.vocabulary)
    return TeacherForcing(Seq2Seq(*sizes_, stack, stack, embedding=sizes.dim, dropout=0.0, tie_embeddings=True), 0.1)


def undropped(sizes: Sizes) -> nn.Module:
    """Without dropout, for a compiler draws other numbers: the losses of two ways can stand side by side."""
    return transformer(sizes, 0.0)


def lstm(sizes: Sizes) -> nn.Module:
    decoder = {"kind": "attentive", "cell": "lstm", "dim": sizes.dim, "input_feeding": True, "score": "general"}
    encoder = {"kind": "lstm", "dim": sizes.dim // 2}
    return TeacherForcing(
        Seq2Seq(sizes.vocabulary, sizes.vocabulary, encoder, decoder, embedding=sizes.dim, dropout=0.2)
    )


def gpt(sizes: Sizes, bias: bool = True) -> nn.Module:
    size, dim, layers, heads, block, _ = sizes.gpt
    position = {"kind": "learned", "longest": block}
    stack = {"kind": "transformer", "dim": dim, "layers": layers, "heads": heads, "hidden": 4 * dim}
    stack |= {"position": position, "dropout": 0.0, "scale": False, "bias": bias}
    language = LanguageModel(size, 0, stack, embedding=dim, dropout=0.0, tie_embeddings=True)
    language.output.linear.bias = None  # GPT-2 has none  # pyright: ignore
    return NextToken(language)


def unbiased_gpt(sizes: Sizes) -> nn.Module:
    """Without the biases of linear maps, as nanoGPT is benchmarked."""
    return gpt(sizes, bias=False)


def stretches(sizes: Sizes) -> LanguageBatch:
    size, _, _, _, block, rows = sizes.gpt
    ids = torch.from_numpy(tokens(np.random.default_rng(2), size, (rows, block + 1)))
    return LanguageBatch(ids, None, tuple(range(rows)), rows * block)


@dataclass
class Line:
    """One training: its settings and results."""

    name: str
    make: Callable[[Sizes], nn.Module]
    batch: Callable[[Sizes], Any]
    settings: dict[str, Any]
    around: Callable[[], Any] = nullcontext  # what is changed for it
    goal: float = 0.0  # thousand tokens a second
    rate: float = 0.0
    found: list[str] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)


def train(line: Line, sizes: Sizes, device: torch.device) -> None:
    torch.manual_seed(3)
    torch._dynamo.reset()
    gpu = device.type == "cuda"
    objective, batch = line.make(sizes).to(device), line.batch(sizes)
    settings = Training.of({"max_steps": 10**6, "precision": "bf16", "rate": 3e-4, "warmup": 20, **line.settings})
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    loop, losses, marks = Loop(objective, Same(batch), settings, device), [], []  # pyright: ignore
    begun, timing = time.monotonic(), None
    for update in loop:
        losses.append(update.loss / update.count)
        if update.step == 8:
            wait(device)
            timing = time.monotonic()
        if timing is not None and update.step % 20 == 8:
            wait(device)
            marks.append(time.monotonic())
            if marks[-1] - timing > sizes.seconds and update.step > 28 and (update.step >= line_steps(line, sizes)):
                break
    wait(device)
    took = statistics.median(b - a for a, b in pairwise(marks)) / 20
    line.losses = torch.stack(losses).float().tolist()
    line.rate = batch.count / took / 1000
    graphs = len(getattr(loop.forward_backward, "graphs", ()))
    ready = (timing or begun) - begun
    line.found = [f"{line.rate:,.0f}", f"{1000 * took:.2f}", f"{line.goal:,.0f}" if line.goal else "", f"{ready:.0f}"]
    if gpu:
        peak, held = torch.cuda.max_memory_allocated() / 1e9, torch.cuda.max_memory_reserved() / 1e9
        line.found += [f"{peak:.1f}", f"{held:.1f}"]
    else:
        line.found += ["", ""]
    line.found += [str(graphs), f"{line.losses[0]:.3f} → {line.losses[-1]:.3f} ({len(losses)})"]


def line_steps(line: Line, sizes: Sizes) -> int:
    """Steps at least: lines whose losses are compared run as long as the plain ones."""
    names = ("base-384 plain", "base-384 captured", "lstm plain", "lstm captured")
    return sizes.steps if line.name in names or line.name.startswith("undropped") else 0


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def whole_logits() -> Any:
    """The loss over a matrix of all logits, in float32."""
    return patch.object(chunked, "MAX_LOGITS", 1 << 60)


def never(*_: Any) -> bool:
    return False


@contextmanager
def without_twins(name: str) -> Iterator[None]:
    """The plain form of a function of `seqloom.parts`."""
    load()
    twins = TWINS[f"seqloom.parts.{name}"]
    kept = twins[:]
    twins.clear()
    try:
        yield
    finally:
        twins[:] = kept


def blocks_apart() -> Any:
    """Without the fused residual and norm between blocks."""
    return without_twins("transformer.block.run_blocks")


def activation_by_torch() -> Any:
    """GELU by torch, and the gradient of the bias before it by a sum."""
    return without_twins("transformer.feed_forward.FeedForward.forward")


def qkv_gradients_by_torch() -> Any:
    """Gradients of queries, keys and values concatenated by torch, and summed for their bias."""
    return patch.object(qkv_gpu, "supported", never)


def lines() -> list[Line]:
    base = lambda sizes: pairs(sizes, sizes.rows[0], False)  # noqa: E731
    more = lambda sizes: pairs(sizes, sizes.rows[1], False)  # noqa: E731
    fed = lambda sizes: pairs(sizes, sizes.rows[2], True)  # noqa: E731
    off, on, both = {"capture": "off"}, {"capture": "auto"}, {"capture": "auto", "compile": True}
    return [
        Line("base-384 plain, whole logits", transformer, base, off, whole_logits, goal=500),
        Line("base-384 plain", transformer, base, off, goal=500),
        Line("base-384 captured", transformer, base, on, goal=500),
        Line("lstm plain", lstm, fed, off, goal=450),
        Line("lstm captured", lstm, fed, on, goal=450),
        Line("gpt plain", gpt, stretches, off, goal=520),
        Line("gpt captured", gpt, stretches, on, goal=520),
        Line("gpt captured, no biases", unbiased_gpt, stretches, on, goal=520),
        Line("gpt captured, blocks apart", gpt, stretches, on, blocks_apart),
        Line("gpt captured, activation by torch", gpt, stretches, on, activation_by_torch),
        Line("gpt captured, qkv gradients by torch", gpt, stretches, on, qkv_gradients_by_torch),
        Line("base-1536 captured", transformer, more, on, goal=900),
        Line("base-384 compiled, captured", transformer, base, both, goal=500),
        Line("base-1536 compiled, captured", transformer, more, both, goal=900),
        Line("gpt compiled, captured", gpt, stretches, both, goal=520),
        Line("gpt compiled, captured, no biases", unbiased_gpt, stretches, both, goal=520),
        Line("base-384 compiled", transformer, base, {"capture": "off", "compile": True}, goal=500),
        Line("undropped plain", undropped, base, off),
        Line("undropped captured", undropped, base, on),
        Line("undropped compiled, captured", undropped, base, both),
    ]


HEAD = "| what | k tok/s | ms a step | goal | ready, s | peak GB | reserved GB | graphs | loss |\n|---|" + "---:|" * 8


def table(done: list[Line]) -> list[str]:
    return [HEAD, *("| " + " | ".join([line.name, *line.found]) + " |" for line in done)]


def compared(done: list[Line]) -> list[str]:
    """How far apart the losses of the fast and the plain way are over the same steps."""
    by_name = {line.name: line for line in done if line.losses}
    found = []
    for line in by_name.values():
        plain = by_name.get(f"{line.name.split()[0]} plain")
        if plain is None or plain is line:
            continue
        both = list(zip(line.losses, plain.losses, strict=False))
        first, most = abs(both[0][0] - both[0][1]), max(abs(a - b) for a, b in both)
        found.append(f"- {line.name} beside plain, {len(both)} steps: at most {most:.2e} apart, at first {first:.1e}")
    return found


def loss_in_pieces(sizes: Sizes, device: torch.device) -> str:
    """The loss in pieces against the same in float64, beside the plain form in bf16."""
    torch.manual_seed(1)
    rows, size, dim = (4096, 50_257, 512) if device.type == "cuda" else (64, 150, 32)
    output, labels = nn.Linear(dim, size).to(device), torch.randint(4, size, (rows,), device=device)
    states = torch.randn(rows, dim, device=device, requires_grad=True)
    found = {}
    for name, cells in (("pieces", rows * size // 5), ("plain", 1 << 60)):
        with patch.object(chunked, "MAX_LOGITS", cells), torch.autocast(device.type, torch.bfloat16):
            loss = cross_entropy_sum(states, output, labels, 0.1)
        found[name] = [loss.detach(), *torch.autograd.grad(loss, [states, output.weight, output.bias])]
    with patch.object(chunked, "MAX_LOGITS", 1 << 60):
        exact = cross_entropy_sum(states, output, labels, 0.1)
    best = [exact.detach(), *torch.autograd.grad(exact, [states, output.weight, output.bias])]
    far = {
        name: [f"{((a - b).norm() / b.norm()).item():.1e}" for a, b in zip(parts, best, strict=True)]
        for name, parts in found.items()
    }
    return f"- loss in pieces beside fp32 (loss, states, W, b): {far['pieces']}; plain bf16: {far['plain']}"


def tests(seconds: float) -> str:
    words = [sys.executable, "-m", "pytest", "-q", "tests/training/test_forward_backward.py", "-p", "no:cacheprovider"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)
    return "- tests/training/test_forward_backward.py:\n\n```\n" + (done.stdout + done.stderr)[-2500:] + "\n```"


def profile(line: Line, sizes: Sizes, device: torch.device) -> str:
    """Where the time of the kernels of a step goes."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watch

    torch.manual_seed(3)
    objective = line.make(sizes).to(device)
    settings = Training.of({"max_steps": 99, "precision": "bf16", **line.settings})
    loop = iter(Loop(objective, Same(line.batch(sizes)), settings, device))  # pyright: ignore
    for _ in range(8):
        next(loop)
    with watch(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        next(loop)
        wait(device)
    kernels = [event for event in seen.key_averages() if event.device_type.name == "CUDA"]
    kernels.sort(key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in kernels) / 1000
    rows = [f"{e.self_device_time_total / 1000:8.2f} ms {e.count:5d} × {e.key[:110]}" for e in kernels[:40]]
    return f"## {line.name}: {total:.1f} ms of kernels a step, {sum(e.count for e in kernels)} of them\n" + "\n".join(
        rows
    )


def guarded(name: str, work: Callable[[], Any]) -> Any:
    """Errors are reported and do not stop the other measurements."""
    started = time.monotonic()
    try:
        return work()
    except Exception as error:
        traceback.print_exc(limit=-6)
        return f"- {name}: {type(error).__name__}: {str(error)[:300]}"
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        print(f"[{time.monotonic() - STARTED:5.0f} s] {name}: {time.monotonic() - started:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of lines, profiles too")
    parser.add_argument("--limit", type=float, default=200, help="seconds after which no line is begun")
    parser.add_argument("--output", type=Path, help="Markdown file")
    parser.add_argument("--tiny", action="store_true", help="small sizes: does it work at all?")
    parser.add_argument("--no-tests", action="store_true")
    parser.add_argument("--no-profile", action="store_true")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sizes, done, notes = TINY if args.tiny else FULL, [], []
    notes.append(guarded("loss in pieces", lambda: loss_in_pieces(sizes, device)))
    if not args.no_tests:
        notes.append(guarded("tests", lambda: tests(90)))
    for line in lines():
        if args.only and not any(part in line.name for part in args.only):
            continue
        if time.monotonic() - STARTED > args.limit:
            notes.append(f"- {line.name}: left out, no time")
            continue
        with line.around():
            if problem := guarded(line.name, lambda line=line: train(line, sizes, device)):
                notes.append(problem)
                continue
        done.append(line)
        print("   ", *line.found, flush=True)
        if args.output:
            args.output.write_text("\n".join([*table(done), "", *notes]), encoding="utf-8")
    profiles = []
    for name in (
        ()
        if args.no_profile or device.type != "cuda"
        else ("base-1536 captured", "gpt captured", "gpt compiled, captured")
    ):
        if args.only and not any(part in name for part in args.only):
            continue
        line = next(line for line in lines() if line.name == name)
        profiles.append(guarded(f"profile {name}", lambda line=line: profile(line, sizes, device)))
    where = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    report = [f"# Training on {where}, torch {torch.__version__}, bf16", "", *table(done), "", *compared(done), *notes]
    text = "\n".join([*profiles, "", *report, ""])
    print(text)
    if args.output:
        args.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
