"""What every mixer costs as rows grow: time and largest memory, forward and backward, and the power of n they grow by.

    python benchmarks/mixers/attention_cost.py --output benchmarks/results/today-attention-cost-cpu.md --chart cost.svg
    python benchmarks/mixers/attention_cost.py --device cuda --output results.md
    python benchmarks/mixers/attention_cost.py --draw results.md --chart cost.svg

Queries, keys and values of one row are given, [1, heads, n, 64]; the maps before and after are the same for all and
left out. `writes`: a place sees no farther than itself; `reads`: all. Beside our mixers stand torch's own kernels, as
one calls them by hand. Only torch is needed; a chart needs matplotlib.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from seqloom.files import write_atomic  # noqa: E402
from seqloom.parts.mixers.efficient_attention import dense_attention  # noqa: E402
from seqloom.parts.mixers.mixer_table import MIXERS  # noqa: E402
from seqloom.parts.mixers.sparse import Longformer  # noqa: E402
from seqloom.parts.visibility import Visibility  # noqa: E402

HEAD_DIM, FITTED = 64, 4096  # exponents are fitted from here on
WINDOW = 256  # of the mixers by default
FUSED, FLEX = "torch's fused kernel", "torch's FlexAttention, window of 256"
Call = Callable[[Tensor, Tensor, Tensor], Tensor]


class Cost(NamedTuple):
    forward: float  # seconds
    backward: float
    memory: float  # MiB above what was there before; nan where nobody counts

    @property
    def time(self) -> float:
        return self.forward + self.backward


def entries(only: Sequence[str], gpu: bool) -> Iterator[tuple[str, str, bool]]:
    """A label, a kind, and whether it writes. FlexAttention has kernels worth the name on a GPU only."""
    for kind in (FUSED, FLEX)[: 1 + gpu]:
        if not only or any(word in kind for word in only):
            yield f"{kind}, writes", kind, True
    for kind, make in MIXERS.items():
        if hasattr(make, "mix") or kind == "attention":  # what has queries and keys
            for writes in (True, False) if make.causal else (False,):
                label = f"{kind}, {'writes' if writes else 'reads'}"
                if not only or any(word in label for word in only):
                    yield label, kind, writes


def called(kind: str, writes: bool, heads: int, n: int, like: dict[str, Any]) -> Call:
    """The mixer as a function of q, k and v."""
    visible = Visibility(causal=writes)
    if kind == FUSED:
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    if kind == FLEX:
        return _flex(n)
    if kind == "attention":
        return lambda q, k, v: dense_attention(q * HEAD_DIM**-0.5, k, v, visible)
    options = {"longest": n} if kind == "linformer" else {}
    mixer = MIXERS[kind](heads * HEAD_DIM, heads, "scaled", **options).to(**like)
    if isinstance(mixer, Longformer):
        return lambda q, k, v: mixer.attend_local_and_global((q, k, v), (q[:, :, : mixer.first], k, v), visible)
    scale = 1.0 if mixer.own_formula else HEAD_DIM**-0.5
    return lambda q, k, v: mixer.mix(q * scale, k, v, visible, None)[0]


def _flex(n: int) -> Call:
    """As torch's documentation has it; its plan is made beforehand."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def seen(b: Tensor, h: Tensor, at: Tensor, key: Tensor) -> Tensor:
        return (at >= key) & (at - key < WINDOW)

    plan = create_block_mask(seen, None, None, n, n, device="cuda", _compile=True)
    compiled = torch.compile(flex_attention)
    return lambda q, k, v: compiled(q, k, v, block_mask=plan)  # pyright: ignore


def measured(call: Call, heads: int, n: int, like: dict[str, Any], rounds: int) -> Cost:
    """The median of several rounds after one to warm up; slow ones get fewer. Without rounds: memory alone."""
    generator = torch.Generator().manual_seed(1)
    draw = [torch.randn(1, heads, n, HEAD_DIM, generator=generator).to(**like).requires_grad_() for _ in range(4)]
    _round(call, draw, like["device"])
    memory, found, begun = _peak(lambda: _round(call, draw, like["device"]), like["device"]), [], time.perf_counter()
    while len(found) < rounds and (not found or time.perf_counter() - begun < 4.0):
        found.append(_round(call, draw, like["device"]))
    return Cost(*(statistics.median(part) for part in zip(*found or [(0.0, 0.0)], strict=True)), memory)


def _round(call: Call, draw: list[Tensor], device: str) -> tuple[float, float]:
    *given, slope = draw
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    times = [time.perf_counter()]
    y = call(*given)
    wait()
    times.append(time.perf_counter())
    torch.autograd.grad(y, given, slope.detach(), allow_unused=True)
    wait()
    times.append(time.perf_counter())
    return times[1] - times[0], times[2] - times[1]


def _peak(call: Callable[[], Any], device: str) -> float:
    """The most memory in MiB that a call takes: by CUDA's count, or by the kernel's where it can be set back."""
    gc.collect()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = _resident("VmRSS")
        call()
        return _resident("VmHWM") - before
    except OSError:
        call()
        return math.nan


def _resident(name: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def exponent(costs: dict[int, Cost], of: Callable[[Cost], float]) -> float:
    """The slope of a straight line through the logarithms."""
    points = [(math.log(n), math.log(of(cost))) for n, cost in costs.items() if n >= FITTED and of(cost) > 0]
    return statistics.linear_regression(*zip(*points, strict=True)).slope if len(points) > 1 else math.nan


def told(found: dict[str, dict[int, Cost]], sizes: Sequence[int]) -> list[str]:
    """Two tables."""
    lines: list[str] = []
    for title, of, cell in (
        (
            "Milliseconds, forward + backward",
            lambda c: c.time,
            lambda c: f"{1e3 * c.forward:.1f} + {1e3 * c.backward:.1f}",
        ),
        ("Largest memory, MiB", lambda c: c.memory, lambda c: f"{c.memory:,.0f}"),
    ):
        lines += [f"## {title}", "", f"| mixer | {' | '.join(f'{n:,}' for n in sizes)} | grows by n^ |"]
        lines += ["|---" * (len(sizes) + 2) + "|"]
        for label, costs in found.items():
            cells = [cell(costs[n]) if n in costs else "–" for n in sizes]
            lines.append(f"| {label} | {' | '.join(cells)} | {exponent(costs, of):.2f} |")
        lines.append("")
    return lines


def read(text: str) -> dict[str, dict[int, Cost]]:
    """What `told` wrote, from its tables."""
    found: dict[str, dict[int, Cost]] = {}
    sizes: list[int] = []
    for line in text.splitlines():
        sizes = sizes if line.startswith("|") else []  # another table may follow
        label, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        cells = [cell.replace(",", "") for cell in cells]
        if label == "mixer" and cells[-1].startswith("grows"):
            sizes = [int(cell) for cell in cells[:-1]]
        for n, cell in zip(sizes, cells, strict=False) if label not in ("mixer", "---") else ():
            cost = found.setdefault(label, {}).get(n, Cost(math.nan, math.nan, math.nan))
            if "+" in cell:
                found[label][n] = cost._replace(**dict(zip(Cost._fields, _seconds(cell), strict=False)))
            elif cell != "–":
                found[label][n] = cost._replace(memory=float(cell))
    return found


def _seconds(cell: str) -> list[float]:
    return [float(part) / 1e3 for part in cell.split("+")]


def drawn(found: dict[str, dict[int, Cost]], file: Path) -> None:
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SystemExit("a chart needs matplotlib: pip install 'seqloom[plots]'") from error
    kinds = list(dict.fromkeys(label.rpartition(", ")[0] for label in found))
    own = [kind for kind in kinds if kind in MIXERS]
    figure = Figure(figsize=(12, 5), layout="constrained")
    views = (("milliseconds", lambda c: 1e3 * c.time), ("MiB", lambda c: c.memory))
    for axes, (unit, of) in zip(figure.subplots(1, 2), views, strict=True):
        for label, costs in found.items():
            kind = label.rpartition(", ")[0]
            style = ":" if kind not in own else "-" if label.endswith("writes") else "--"
            color = f"C{own.index(kind)}" if kind in own else ("black", "grey")[kind == FLEX]
            axes.plot(list(costs), [of(cost) for cost in costs.values()], style, color=color, label=label)
        axes.set(xscale="log", yscale="log", xlabel="places", ylabel=f"{unit}, forward and backward")
        ticks = [n for n in (512, 2048, 8192, 32768, 131072) if any(n in costs for costs in found.values())]
        axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right", fontsize="small")
    with rc_context({"svg.fonttype": "none"}):  # letters as letters: a tenth of the size
        figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def costs(
    only: Sequence[str], sizes: Sequence[int], heads: int, like: dict[str, Any], rounds: int
) -> Iterator[tuple[str, dict[int, Cost]]]:
    """A mixer after the other: one who is cut off has what came before."""
    for label, kind, writes in entries(only, like["device"] == "cuda"):
        found: dict[int, Cost] = {}
        for n in sizes:
            try:
                cost = measured(called(kind, writes, heads, n, like), heads, n, like, rounds)
            except torch.OutOfMemoryError:  # larger ones would not fit either
                break
            found[n] = cost
            print(f"{label} {n}: {1e3 * cost.time:.1f} ms, {cost.memory:.0f} MiB", file=sys.stderr, flush=True)
        yield label, found


def counted(sizes: Sequence[int], args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Memory on the CPU, by a process whose allocator keeps nothing for itself, so that the system's count is ours."""
    asked = ["--rounds", "0", "--sizes", ",".join(map(str, sizes)), "--threads", str(args.threads)]
    asked += ["--only", ",".join(args.only)] if args.only else []
    asked += ["--heads", str(args.heads)] if args.heads else []
    strict = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    said = subprocess.run([sys.executable, __file__, *asked], env=strict, stdout=subprocess.PIPE, check=True).stdout
    return json.loads(said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sizes", type=lambda text: [int(n) for n in text.split(",")], help="places, by commas")
    parser.add_argument("--heads", type=int, help="of 64 (default: 4, on a GPU 8)")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], help="parts of the mixers' names")
    parser.add_argument("--rounds", type=int, default=5, help="0: memory alone, as JSON")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, help="Markdown file")
    parser.add_argument("--chart", type=Path, help="SVG or PNG file; needs matplotlib")
    parser.add_argument("--draw", type=Path, metavar="FILE.md", help="measure nothing: the chart of earlier results")
    args = parser.parse_args()
    if args.draw:
        drawn(read(args.draw.read_text(encoding="utf-8")), args.chart)
        return
    torch.set_num_threads(args.threads)
    gpu = args.device == "cuda"
    sizes = args.sizes or [2**power for power in range(9, 18 if gpu else 15)]
    like = {"device": args.device, "dtype": torch.bfloat16 if gpu else torch.float32}
    heads = args.heads or (8 if gpu else 4)
    if args.rounds == 0:
        each = costs(args.only, sizes, heads, like, 0)
        print(json.dumps({label: {n: cost.memory for n, cost in of.items()} for label, of in each}))
        return
    name = torch.cuda.get_device_name() if gpu else f"{platform.machine()}, {args.threads} threads"
    title = f"torch {torch.__version__}, {name}, {like['dtype']}, {heads} heads of 64."
    found: dict[str, dict[int, Cost]] = {}

    def text() -> str:
        return "\n".join(["# What attention costs", "", title, "", *told(found, sizes)]) + "\n"

    for label, of in costs(args.only, sizes, heads, like, args.rounds):
        found[label] = of
        if args.output:
            write_atomic(args.output, text())
    if not gpu:
        for label, of in counted(sizes, args).items():
            found[label] = {n: found[label][n]._replace(memory=of[str(n)]) for n in found[label]}
    print(text())
    if args.output:
        write_atomic(args.output, text())
    if args.chart:
        drawn(found, args.chart)


if __name__ == "__main__":
    main()
