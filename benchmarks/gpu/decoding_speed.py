"""How fast one GPU decodes in bf16: the plain search, steps of fixed shapes, and those recorded and replayed.

    python benchmarks/gpu/decoding_speed.py --limit 150 --output decode.md

A Transformer that never ends by itself writes as many steps as it may, over and over; its tokens stand beside the plain
search's. `--only` takes parts of the lines' names; `--limit` is in seconds: what would begin after it is left out.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from seqloom.data.batches.collate import Padded, pad
from seqloom.data.tokenizers.tokenizers import EOS
from seqloom.decoding.search import decode
from seqloom.decoding.search_options import Search
from seqloom.fast.cuda_graphs.decoding_graphs import DecodingGraphs, using
from seqloom.fast.cuda_graphs.fixed_shape_decoder import fused_attention, matmul_attention
from seqloom.fast.cuda_graphs.fixed_shape_search import FixedShapeBeam
from seqloom.models.seq2seq import Seq2Seq

STARTED = time.monotonic()
HEAD = "| what | ms a step | k tok/s | a step's goal | ready, s | peak GB | as plain |\n|---|" + "---:|" * 6


@dataclass(frozen=True)
class Case:
    name: str
    rows: int
    beam: int
    goal: str


CASES = (
    Case("batch 1 greedy", 1, 1, "0.4 / 0.2"),
    Case("batch 1 beam 4", 1, 4, "0.6 / 0.3"),
    Case("batch 64 beam 4", 64, 4, "1.07 / 0.64"),
    Case("batch 64 greedy", 64, 1, ""),
)


@dataclass(frozen=True)
class Sizes:
    dim: int = 512
    layers: int = 6
    heads: int = 8
    hidden: int = 2048
    vocabulary: int = 32_000
    width: int = 32
    steps: int = 32
    seconds: float = 1.0  # a line's timing


TINY = Sizes(32, 2, 4, 64, 300, 6, 12, 0.1)


def whole(self: FixedShapeBeam, logits: Any) -> Any:
    """One top-k over all tokens."""
    value, token = logits.topk(self.candidates)
    return value, token + self.rows


def compiled(step: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(step, dynamic=False)


def efficient(q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
    """By torch's own kernel, not cuDNN's."""
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        return fused_attention(q, k, v, mask, scale)


WAYS: dict[str, Callable[[], DecodingGraphs | None]] = {
    "plain": lambda: None,
    "fixed": lambda: DecodingGraphs(any_device=True, record=False),
    "captured": lambda: DecodingGraphs(any_device=True),
    "captured, efficient": lambda: DecodingGraphs(any_device=True, attend=efficient),
    "captured, products": lambda: DecodingGraphs(any_device=True, attend=matmul_attention),
    "captured, whole top-k": lambda: DecodingGraphs(any_device=True),
    "captured, compiled": lambda: DecodingGraphs(any_device=True, wrap_step=compiled),
    "captured, compiled, products": lambda: DecodingGraphs(
        any_device=True, wrap_step=compiled, attend=matmul_attention
    ),
}


def model_of(sizes: Sizes, device: torch.device, dtype: torch.dtype, endless: bool = True) -> Seq2Seq:
    torch.manual_seed(1)
    stack = {"kind": "transformer", "dim": sizes.dim, "layers": sizes.layers, "heads": sizes.heads}
    stack |= {"hidden": sizes.hidden, "dropout": 0.1}
    both = (sizes.vocabulary, sizes.vocabulary)
    model = Seq2Seq(*both, stack, stack, embedding=sizes.dim, dropout=0.0, tie_embeddings=True)
    with torch.no_grad():
        model.output.bias[EOS] = -1e9 if endless else 1.0
    return model.to(device, dtype).eval()


def sources(sizes: Sizes, rows: int, device: torch.device, ragged: bool = False) -> Padded:
    draw = np.random.default_rng(7)
    lengths = draw.integers(2, sizes.width + 1, rows) if ragged else np.full(rows, sizes.width)
    return pad([[*draw.integers(4, sizes.vocabulary, n - 1).tolist(), EOS] for n in lengths]).to(device)


def by_graphs(graphs: DecodingGraphs | None, model: Seq2Seq, *request: Any) -> list[list[Any]]:
    with using(graphs, model):
        return decode(model, *request)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def tokens_of(found: list[list[Any]]) -> list[tuple[int, ...]]:
    return [one.tokens for answers in found for one in answers]


def timed(case: Case, graphs: DecodingGraphs | None, model: Seq2Seq, sizes: Sizes, plain: list[Any]) -> list[str]:
    device = model.output.weight.device
    source, limits, search = sources(sizes, case.rows, device), [sizes.steps] * case.rows, Search(beam=case.beam)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    begun = time.monotonic()
    found = [by_graphs(graphs, model, source, limits, search) for _ in range(3)]
    assert graphs is None or graphs.shapes, "it was decoded without graphs"
    wait(device)
    ready, times = time.monotonic() - begun, []
    while sum(times) < sizes.seconds or len(times) < 3:
        start = time.perf_counter()
        by_graphs(graphs, model, source, limits, search)
        times.append(time.perf_counter() - start)
    took = statistics.median(times)
    peak = f"{torch.cuda.max_memory_allocated() / 1e9:.2f}" if device.type == "cuda" else ""
    ours = tokens_of(found[-1])
    if not plain:
        plain.extend(ours)
    same = sum(a == b for a, b in zip(ours, plain, strict=True))
    steps = [f"{1000 * took / sizes.steps:.3f}", f"{case.rows * sizes.steps / took / 1000:.1f}", case.goal]
    return [*steps, f"{ready:.1f}", peak, f"{same} of {len(plain)}"]


def checked(sizes: Sizes, device: torch.device) -> list[str]:
    """In float32 with various lengths and limits: tokens and scores compared with the plain search."""
    notes, model = [], model_of(replace(sizes, layers=2), device, torch.float32, endless=False)
    source, draw = sources(sizes, 21, device, ragged=True), np.random.default_rng(3)
    with torch.no_grad():
        model.output.weight.mul_(3.0)
    graphs = DecodingGraphs(any_device=True)
    for search in (Search(), Search(beam=4, n_best=4), Search(beam=3, alpha=0.6, first=5, close=True, never=(7, 9))):
        worst, same, total, lengths = 0.0, 0, 0, set()
        for _ in range(3):
            limits = draw.integers(1, 80, 21).tolist()
            wanted = [one for found in by_graphs(None, model, source, limits, search) for one in found]
            ours = [one for found in by_graphs(graphs, model, source, limits, search) for one in found]
            alike = [(a, b) for a, b in zip(ours, wanted, strict=True) if a.tokens == b.tokens]
            worst = max([worst, *(abs(a.score - b.score) for a, b in alike)])
            same, total = same + len(alike), total + len(wanted)
            lengths |= {len(one.tokens) for one in wanted}
        notes.append(
            f"- fp32, {search.beam=}, first {search.first}: {same} of {total} as plain, scores at most {worst:.1e} "
            f"apart, {len(lengths)} lengths, graphs {sum(len(frame.graphs) for frame in graphs.shapes.values())}"
        )
    return notes


def profile(case: Case, graphs: DecodingGraphs | None, model: Seq2Seq, sizes: Sizes) -> str:
    """Where the time of the kernels of a request goes."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watch

    device = model.output.weight.device
    source, limits, search = sources(sizes, case.rows, device), [sizes.steps] * case.rows, Search(beam=case.beam)
    for _ in range(3):
        by_graphs(graphs, model, source, limits, search)
    with watch(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        by_graphs(graphs, model, source, limits, search)
        wait(device)
    kernels = [event for event in seen.key_averages() if event.device_type.name == "CUDA"]
    kernels.sort(key=lambda event: -event.self_device_time_total)
    total, count = sum(event.self_device_time_total for event in kernels), sum(event.count for event in kernels)
    a_step = 1 / sizes.steps
    rows = [
        f"{e.self_device_time_total * a_step:8.2f} µs {e.count * a_step:7.2f} × {e.key[:120]}" for e in kernels[:30]
    ]
    head = f"## {case.name}: {total * a_step:.0f} µs of kernels a step, {count * a_step:.1f} of them"
    return "\n".join([head, "", "```", *rows, "```", ""])


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
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of lines")
    parser.add_argument("--limit", type=float, default=150, help="seconds after which no line is begun")
    parser.add_argument("--output", type=Path, help="Markdown file")
    parser.add_argument("--tiny", action="store_true", help="small sizes: does it work at all?")
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    device, sizes = torch.device(args.device), TINY if args.tiny else Sizes()
    model, lines, notes, plain = model_of(sizes, device, torch.bfloat16), [], [], {case: [] for case in CASES}
    notes += [guarded("checks", lambda: "\n".join(checked(sizes, device)))]
    print(notes[-1], flush=True)
    for way, make in WAYS.items():
        for case in CASES:
            name = f"{case.name}, {way}"
            slow, late = "compiled" in way, time.monotonic() - STARTED > args.limit
            asked = way == "plain" or not args.only or any(part in name for part in args.only)
            if (
                not asked
                or late
                or ("whole" in way and case.beam == 1)
                or (slow and (args.no_compile or case is CASES[-1]))
            ):
                notes += [f"- {name}: left out, no time"] if asked and late else []
                continue
            with patch.object(FixedShapeBeam, "top_codes", whole if "whole" in way else FixedShapeBeam.top_codes):
                found = guarded(name, lambda c=case, m=make: timed(c, m(), model, sizes, plain[c]))
            (notes if isinstance(found, str) else lines).append(
                found if isinstance(found, str) else "| " + " | ".join([name, *found]) + " |"
            )
            print("   ", found, flush=True)
    if device.type == "cuda":
        for case in CASES[:3]:
            notes.append(guarded(f"profile {case.name}", lambda c=case: profile(c, DecodingGraphs(), model, sizes)))
    where = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    report = [f"# Decoding on {where}, torch {torch.__version__}, bf16", "", HEAD, *lines, "", *notes, ""]
    print("\n".join(report))
    if args.output:
        args.output.write_text("\n".join(report), encoding="utf-8")


if __name__ == "__main__":
    main()
