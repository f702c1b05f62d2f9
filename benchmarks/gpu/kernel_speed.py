"""Our kernels beside torch's on one GPU in bf16: attention over short rows, cross-entropy over many tokens, an LSTM;
and recurrent cells with self-attention, in float32.

    python benchmarks/gpu/kernel_speed.py --output results.md
    python benchmarks/gpu/kernel_speed.py --only lstm
    python benchmarks/gpu/kernel_speed.py --sweep        # also other numbers of warps and lanes
    TRITON_INTERPRET=1 python benchmarks/gpu/kernel_speed.py --tiny

Times are medians of the device's own clock, of CUDA graphs. Outputs and gradients are compared with float64: the
relative distance. GB/s counts logits read once and written once.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from seqloom.build import build
from seqloom.fast.attention import short_gpu
from seqloom.fast.attention.softmax import is_causal_alone
from seqloom.fast.loss import chunked
from seqloom.fast.triton_common import runtime
from seqloom.parts.layers.cross_entropy import cross_entropy_sum
from seqloom.parts.recurrent.cells import CELLS
from seqloom.parts.recurrent.layers import run_cell
from seqloom.parts.visibility import Visibility

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
GPU = DEVICE.type == "cuda"
HALF = torch.bfloat16 if GPU else torch.float16  # the interpreter multiplies bf16 as integers
SHAPES = [(1536, 8, 32, 64), (384, 8, 32, 64), (256, 8, 64, 64)]  # rows, heads, tokens, width of a head
LOGITS = [(12_288, 32_000, 32_000), (8_192, 50_257, 50_304)]  # rows, tokens, columns
WHOLE = (49_152, 512, 32_000)  # rows, width, tokens
LSTMS = [(100, 70, 1152), (200, 70, 1152), (100, 70, 400), (256, 12, 512), (256, 12, 256)]  # rows, steps, width
HISTORIES = [(32, 200, 128), (32, 2_000, 128)]  # rows, steps, width
LOOPED = 400  # steps up to which the loop is timed too: longer ones exceed memory
HEAD = "| what | way | forward, ms | backward, ms | GB/s | off, forward | off, backward |\n|---|---|" + "---:|" * 5


def timed(run: Callable[[], Any], times: int = 15) -> float:
    """Milliseconds, the median; on a GPU of a CUDA graph, without the host's time."""
    if not GPU:
        begun = time.perf_counter()
        run()
        return 1000 * (time.perf_counter() - begun)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        run()
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(times)]
    for begin, end in marks:
        begin.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in marks)


def passes(run: Callable[[], Tensor], leaves: list[Tensor]) -> tuple[float, float]:
    """Milliseconds of the forward and of the backward pass."""
    forward = timed(run)

    def both() -> tuple[Tensor, ...]:
        mixed = run()
        return torch.autograd.grad(mixed, leaves, torch.ones_like(mixed))

    return forward, timed(both) - forward


def off(found: Tensor, exact: Tensor) -> str:
    return f"{((found.double() - exact).norm() / exact.norm()).item():.1e}"


def row(what: str, way: str, forward: float, backward: float | None, rate: float | None, *far: str) -> str:
    cells = [f"{forward:.3f}", "" if backward is None else f"{backward:.3f}", "" if rate is None else f"{rate:,.0f}"]
    return f"| {what} | {way} | " + " | ".join([*cells, *far, *[""] * (2 - len(far))]) + " |"


def by_torch(x: Tensor, kv: Tensor | None, visible: Visibility, heads: int, scale: float) -> Tensor:
    """As Seqloom does it without our kernel."""
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in short_gpu._split_qkv(x, kv))
    square = is_causal_alone(visible, q.size(-2), k.size(-2))
    mask = None if square else visible.keep(q.size(-2), k.size(-2), x.device)
    mixed = F.scaled_dot_product_attention(q, k, v, mask, is_causal=square, scale=scale)
    return mixed.transpose(1, 2).flatten(2)


def attention_lines(shape: tuple[int, int, int, int], sweep: bool) -> Iterator[str]:
    rows, heads, t, dim = shape
    lengths = torch.randint(max(1, t * 3 // 4), t + 1, (rows,), device=DEVICE)
    draw = lambda *size: torch.randn(*size, device=DEVICE, dtype=HALF, requires_grad=True)  # noqa: E731
    whole, q, pair = (draw(rows, t, n * heads * dim) for n in (3, 1, 2))
    cases = [
        ("self, causal", (whole, None), Visibility(causal=True)),
        ("self", (whole, None), Visibility()),
        ("self, lengths", (whole, None), Visibility(lengths=lengths)),
        ("cross, lengths", (q, pair), Visibility(lengths=lengths)),
    ]
    for name, inputs, visible in cases:
        what = f"{name}, {rows} × {heads} × {t} × {dim}"
        exact = attended(
            short_gpu.reference, [None if x is None else x.detach().double() for x in inputs], visible, heads
        )
        for way, form, around in attention_ways(sweep):
            try:
                with around():
                    yield attention_line(what, way, form, inputs, visible, heads, exact)
            except RuntimeError as error:
                yield f"| {what} | {way} | {str(error).splitlines()[0][:60]} |"


def attention_ways(sweep: bool) -> Iterator[tuple[str, Callable[..., Tensor], Callable[[], Any]]]:
    for name in ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH") if GPU else ("MATH",):
        yield name.lower(), by_torch, lambda name=name: sdpa_kernel([getattr(SDPBackend, name)])
    yield "ours", short_gpu.attention, nullcontext
    for warps in (1, 2, 4, 8) if sweep else ():
        from seqloom.fast.attention import short_triton as inner

        sizes = dict.fromkeys(inner.WARPS, warps)
        yield f"ours, {warps} warps", short_gpu.attention, lambda sizes=sizes: patch.object(inner, "WARPS", sizes)


def attended(form: Callable[..., Tensor], inputs: Any, visible: Visibility, heads: int) -> list[Tensor]:
    leaves = [part.requires_grad_() for part in inputs if part is not None]
    mixed = form(*inputs, visible, heads, (inputs[0].size(-1) // heads) ** -0.5)
    grad = torch.linspace(0, 999, mixed.numel(), device=DEVICE, dtype=torch.float64).sin().view(mixed.shape)
    found = torch.autograd.grad(mixed, leaves, grad.to(mixed.dtype))
    return [mixed.detach(), torch.cat([part.flatten() for part in found])]


def attention_line(
    what: str, way: str, form: Callable[..., Tensor], inputs: Any, visible: Visibility, heads: int, exact: list[Tensor]
) -> str:
    far = [off(mine, best) for mine, best in zip(attended(form, inputs, visible, heads), exact, strict=True)]
    leaves = [part for part in inputs if part is not None]
    return row(what, way, *passes(lambda: form(*inputs, visible, heads, 0.125), leaves), None, *far)


def loss_lines(shape: tuple[int, int, int], sweep: bool) -> Iterator[str]:
    from seqloom.fast.loss import triton_kernels as kernels

    rows, size, width = shape
    torch.manual_seed(1)
    logits = torch.randn(rows, width, device=DEVICE, dtype=torch.bfloat16)
    logits[:, size:] = float("-inf")
    labels = torch.randint(0, size, (rows,), device=DEVICE)
    how = chunked.ChunkOptions(0.1, 0, torch.bfloat16, 1)
    reference = lambda x: chunked.loss_and_gradient(x, labels, size, how, True)  # noqa: E731
    ours = lambda x: (kernels.cross_entropy(x, labels, size, 0.1, 0, True).sum(), x)  # noqa: E731
    ways: list[tuple[str, Callable[[Tensor], Any], Any]] = [("torch", reference, nullcontext())]
    if GPU:
        ways.append(("torch, compiled", torch.compile(reference, dynamic=False), nullcontext()))
    ways.append(("ours", ours, nullcontext()))
    for lanes, warps in ((256, 4), (512, 4), (512, 8), (512, 16), (1024, 8), (1024, 16), (1024, 32)) if sweep else ():
        ways.append((f"ours, {lanes} lanes, {warps} warps", ours, patch.multiple(kernels, LANES=lanes, WARPS=warps)))
    few = slice(0, min(rows, 512))
    exact = logits[few, :size].double().requires_grad_()
    F.cross_entropy(exact, labels[few], reduction="sum", label_smoothing=0.1, ignore_index=0).backward()
    for way, form, around in ways:
        with around:
            losses, grad = form(logits.clone())
            real = (labels[few] != 0)[:, None]
            assert exact.grad is not None
            far = off(grad[few, :size].double() * real, exact.grad)
            work = logits.clone()
            took = timed(lambda form=form, work=work: form(work))
            yield row(f"loss {rows:,} × {width:,}", way, took, None, 4e-6 * logits.numel() / took, f"{losses:.4e}", far)


def whole_lines(rows: int, dim: int, size: int) -> Iterator[str]:
    """The loss with its matmuls, and the gradient by the bias."""
    torch.manual_seed(1)
    output, labels = nn.Linear(dim, size, device=DEVICE), torch.randint(0, size, (rows,), device=DEVICE)
    states = torch.randn(rows, dim, device=DEVICE, requires_grad=True)

    def run() -> Tensor:
        with torch.autocast(DEVICE.type, torch.bfloat16):
            return cross_entropy_sum(states, output, labels, 0.1, 0)

    leaves, ready, sums = [states, *output.parameters()], runtime.READY, runtime.MIXED_ADDMM
    for name, flags in (("torch", (False, False)), ("kernel", (ready, False)), ("kernel and sums", (ready, sums))):
        with patch.multiple(runtime, READY=flags[0], MIXED_ADDMM=flags[1]):
            what = f"whole loss {rows:,} × {dim} × {size:,}"
            yield row(what, name, *passes(run, leaves), None, f"{run().item():.6e}")
    yield from bias_grad_lines(rows // 6, size)
    yield f"\naddmm of bf16 into float32 in one kernel: {sums}."


def bias_grad_lines(rows: int, size: int) -> Iterator[str]:
    """The gradient by the bias: as a matmul with ones, and as a sum over rows."""
    grad = torch.randn(rows, size, device=DEVICE, dtype=torch.bfloat16)
    ones = grad.new_ones(1, rows)
    ways = {"matmul": lambda: ones @ grad, "sum": lambda: grad.sum(0, dtype=torch.float32)}
    for way, form in ways.items():
        took = timed(form)
        yield row(f"by bias {rows:,} × {size:,}", way, took, None, 2e-6 * grad.numel() / took)


def lstm_lines(rows: int, steps: int, dim: int) -> Iterator[str]:
    """One layer as training runs it: torch's kernel, in TF32, and a matmul and a Triton kernel a step, in bf16."""
    torch.manual_seed(1)
    cell = build(CELLS, "lstm", input_dim=dim, dim=dim).to(DEVICE)
    x = torch.randn(rows, steps, dim, device=DEVICE, requires_grad=True)
    leaves, what = [x, *cell.parameters()], f"lstm, {rows} × {steps} × {dim}"

    def run(form: torch.dtype = torch.bfloat16) -> Tensor:
        with torch.autocast(DEVICE.type, form, enabled=form == torch.bfloat16):
            return run_cell(cell, x.to(cell.weight.dtype), Visibility(causal=True), None)[0]

    cell.double()
    exact = lstm_values(run(torch.float64), leaves)
    cell.float()
    for way, ready in (("torch", False), ("ours", True)):
        with patch.object(runtime, "READY", ready):
            far = [off(mine, best) for mine, best in zip(lstm_values(run(), leaves), exact, strict=True)]
            yield row(what, way, *passes(run, leaves), None, *far)


def lstm_values(y: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    grad = torch.linspace(0, 999, y.numel(), device=DEVICE, dtype=torch.float64).sin().view(y.shape)
    found = torch.autograd.grad(y, leaves, grad.to(y.dtype))
    return [y.detach().double(), torch.cat([part.flatten().double() for part in found])]


def history_lines(rows: int, steps: int, dim: int) -> Iterator[str]:
    """All steps by one kernel, and one by one."""
    for name in ("attentive-rnn", "lstmn"):
        torch.manual_seed(1)
        cell = build(CELLS, name, input_dim=dim, dim=dim).to(DEVICE)
        x = torch.randn(rows, steps, dim, device=DEVICE, requires_grad=True)
        run = lambda cell=cell, x=x: run_cell(cell, x, Visibility(), None)[0]  # noqa: E731
        leaves, what = [x, *cell.parameters()], f"{name}, {rows} × {steps:,} × {dim}"
        for way, ready in (("steps", False), ("ours", True))[steps > LOOPED :]:
            with patch.object(runtime, "READY", ready):
                yield row(what, way, *passes(run, leaves), None, f"{run().norm().item():.6e}")


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--output", type=Path)
    words.add_argument("--sweep", action="store_true", help="other numbers of warps and lanes too")
    words.add_argument("--tiny", action="store_true", help="a smoke test: small sizes, for Triton's interpreter")
    words.add_argument("--only", nargs="+", choices=("attention", "loss", "whole", "lstm", "tape"), help="these alone")
    chosen = words.parse_args()
    if runtime.INTERPRETED:
        runtime.READY = True
    runtime.prepare(DEVICE)
    if not runtime.READY:
        raise SystemExit("the kernels do not run here: they take Triton and CUDA, or TRITON_INTERPRET=1 with --tiny")
    machine = torch.cuda.get_device_name() if GPU else "CPU, interpreted"
    lines = [f"- {machine}; torch {torch.__version__}; bf16\n", HEAD]
    shapes, logits, whole, lstms, histories = (
        (SHAPES, LOGITS, WHOLE, LSTMS, HISTORIES)
        if not chosen.tiny
        else ([(2, 2, 5, 16)], [(4, 60, 64)], (40, 8, 60), [(2, 3, 16)], [(2, 3, 16)])
    )
    if chosen.tiny:
        chunked.MAX_LOGITS = 1000
    print("\n".join(lines), flush=True)
    parts = [
        *(("attention", attention_lines(shape, chosen.sweep)) for shape in shapes),
        *(("loss", loss_lines(shape, chosen.sweep)) for shape in logits),
        ("whole", whole_lines(*whole)),
        *(("lstm", lstm_lines(*shape)) for shape in lstms),
        *(("history", history_lines(*shape)) for shape in histories),
    ]
    for name, part in parts:
        for line in part if not chosen.only or name in chosen.only else ():
            lines.append(line)
            print(line, flush=True)
    if chosen.output:
        chosen.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
