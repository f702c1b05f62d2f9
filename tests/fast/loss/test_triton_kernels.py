"""The cross-entropy kernel equals its reference: losses, gradients, rows without a label, padding columns."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from seqloom.fast.loss import chunked as module
from seqloom.fast.loss import triton_kernels
from seqloom.fast.loss.chunked import ChunkOptions
from seqloom.fast.triton_common import runtime
from seqloom.parts.layers.cross_entropy import cross_entropy_sum
from tests.fast.triton_common import DEVICE, needed

pytestmark = needed
ROWS, IGNORE = 6, 0
CUT = 1 if DEVICE == "cuda" else 2  # the interpreter cuts numbers off where a device rounds them to bf16
SIZES = [(129, 129), (290, 320), (7, 7), (128, 128)]  # tokens, columns
if DEVICE == "cuda":
    SIZES += [(8191, 8192), (20_001, 20_032), (50_257, 50_304)]


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch):
    if DEVICE == "cpu":
        monkeypatch.setattr(triton_kernels, "LANES", 16)  # 128 columns at a time


def made(size, width, dtype):
    torch.manual_seed(2)
    logits = 3 * torch.randn(ROWS, width)
    labels = torch.randint(1, size, (ROWS,))
    labels[2], labels[4] = IGNORE, size - 1
    logits[3, labels[3]] += 12  # near certainty: the gradient is a small difference of numbers near 1
    logits[:, size:] = float("-inf")
    return logits.to(DEVICE, dtype), labels.to(DEVICE)


@pytest.mark.parametrize(("size", "width"), SIZES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_it_is_the_loss_and_its_gradient(size, width, smoothing, dtype):
    logits, labels = made(size, width, dtype)
    exact = logits[:, :size].double().requires_grad_()
    wanted = F.cross_entropy(exact, labels, reduction="none", label_smoothing=smoothing, ignore_index=IGNORE)
    (grad,) = torch.autograd.grad(wanted.sum(), exact)
    losses = triton_kernels.cross_entropy(logits, labels, size, smoothing, IGNORE, True)
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses.double(), wanted.detach(), rtol=2e-6, atol=2e-6)
    rounding = {torch.float32: 2e-6, torch.bfloat16: CUT * 2**-8, torch.float16: 2**-11}[dtype]
    torch.testing.assert_close(logits[:, :size].double(), grad, rtol=rounding, atol=2e-6)
    assert logits[:, size:].eq(0).all()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_it_equals_its_reference(smoothing):
    logits, labels = made(290, 320, torch.float32)
    how, real = ChunkOptions(smoothing, IGNORE, torch.float32, 1), (labels != IGNORE)[:, None]
    losses, grad = module.loss_and_gradient(logits.clone(), labels, 290, how, True)
    torch.testing.assert_close(triton_kernels.cross_entropy(logits, labels, 290, smoothing, IGNORE, True).sum(), losses)
    torch.testing.assert_close(logits, grad * real, rtol=1e-5, atol=1e-6)


def test_rows_without_a_label_are_ignored():
    logits, labels = made(290, 320, torch.bfloat16)
    logits[2] = float("nan")
    assert triton_kernels.cross_entropy(logits, labels, 290, 0.1, IGNORE, True)[2] == 0
    assert logits[2].eq(0).all()
    assert not logits.isnan().any()


def test_invalid_labels_give_nan():
    logits, labels = made(290, 320, torch.bfloat16)
    labels[:3] = torch.tensor([290, -1, 1 << 40])
    assert (
        triton_kernels.cross_entropy(logits, labels, 290, 0.1, IGNORE, False).isnan().tolist()
        == [True] * 3 + [False] * 3
    )


def test_without_gradient_logits_are_unchanged():
    logits, labels = made(290, 320, torch.bfloat16)
    before = logits.clone()
    losses = triton_kernels.cross_entropy(logits, labels, 290, 0.1, IGNORE, False)
    torch.testing.assert_close(logits, before, rtol=0, atol=0)
    torch.testing.assert_close(
        triton_kernels.cross_entropy(logits, labels, 290, 0.1, IGNORE, True), losses, rtol=0, atol=0
    )
    assert triton_kernels.cross_entropy(logits[:0], labels[:0], 290, 0.1, IGNORE, True).shape == (0,)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
def test_the_loss_in_pieces_takes_it(monkeypatch, smoothing, bias):
    """Matmuls in bf16 of an odd width, and rows without labels: as close as the reference."""
    torch.manual_seed(3)
    output = nn.Linear(12, 50, bias=bias, device=DEVICE)
    states = (3 * torch.randn(37, 12)).to(DEVICE).requires_grad_()
    labels = torch.randint(1, 50, (37,), device=DEVICE)
    labels[[4, 36]] = IGNORE
    runtime.prepare(torch.device(DEVICE))
    inner, calls, found = triton_kernels.cross_entropy, [], []
    monkeypatch.setattr(triton_kernels, "cross_entropy", lambda *inputs: calls.append(1) or inner(*inputs))
    monkeypatch.setattr(module, "MAX_LOGITS", 320)
    for on in (True, False):
        monkeypatch.setattr(runtime, "READY", on)
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = cross_entropy_sum(states, output, labels, smoothing, IGNORE)
        found.append([loss.detach(), *torch.autograd.grad(2.5 * loss, [states, *output.parameters()])])
    assert len(calls) == 4
    exact = F.cross_entropy(output(states), labels, None, None, IGNORE, None, "sum", smoothing)
    best = [exact.detach(), *torch.autograd.grad(2.5 * exact, [states, *output.parameters()])]
    for mine, plain, one in zip(*found, best, strict=True):
        assert mine.dtype == one.dtype
        assert (mine - one).norm() <= CUT * 1.1 * (plain - one).norm() + 1e-3 * one.norm()
    assert found[0][1][4].eq(0).all()


def test_compiled_it_is_the_reference(monkeypatch):
    torch._dynamo.reset()
    monkeypatch.setattr(module, "MAX_LOGITS", 500)
    monkeypatch.setattr(runtime, "READY", True)
    output, states = nn.Linear(12, 50, device=DEVICE), torch.randn(37, 12, device=DEVICE)
    labels = torch.randint(0, 50, (37,), device=DEVICE)
    compiled = torch.compile(cross_entropy_sum, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(*(f(states, output, labels, 0.1, IGNORE) for f in (compiled, cross_entropy_sum)))


@pytest.mark.skipif(DEVICE == "cpu", reason="needs CUDA")
def test_more_logits_than_32_bits_count():
    logits = torch.zeros(2**31 // 32_000 + 9, 32_000, dtype=torch.bfloat16, device=DEVICE)
    labels = torch.full((logits.size(0),), 5, device=DEVICE)
    losses = triton_kernels.cross_entropy(logits, labels, 32_000, 0.0, -100, True)
    torch.testing.assert_close(losses, torch.full_like(losses, 10.37349))
    assert logits[-1, 5] == -1
    assert logits[-1, 6] > 0
