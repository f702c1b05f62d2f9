"""Slopes of queries, keys and values side by side, and their sum: as by torch's own operations. On a CPU by Triton's
interpreter."""

import pytest
import torch
from torch.nn import functional as F

from seqloom.fast.attention import qkv_gpu
from seqloom.fast.attention import qkv_triton as kernel
from seqloom.fast.triton_common import column_sums, runtime
from seqloom.parts.attention.multi_head import MultiHeadAttention
from seqloom.parts.positions.rotary import Rotary
from seqloom.parts.visibility import Visibility
from tests.fast.triton_common import DEVICE, HALF, drawn, near, needed, slopes

pytestmark = needed


@pytest.fixture(autouse=True)
def ready(monkeypatch):
    """Few rows are many here, so that programs have several tiles, and several programs a column."""
    monkeypatch.setattr(runtime, "READY", True)
    monkeypatch.setattr(column_sums, "PROGRAMS", 2)
    monkeypatch.setattr(column_sums, "TILES", 2)


SHAPES = [(2, 9, 2, 16), (3, 5, 3, 256), (1, 70, 1, 24), (1, 1, 5, 6)]  # rows, steps, heads, width of a head


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_slopes_side_by_side(shape, dtype):
    """In the order in which kernels of attention leave them, in another, and in a third that is copied first."""
    rows, t, heads, dim = shape
    x, bias = drawn(rows, t, 3 * heads * dim, dtype=dtype), drawn(3 * heads * dim, seed=2)
    found = qkv_gpu.parted((x + bias.detach()).to(dtype), bias, heads)
    wanted = qkv_gpu.plainly((x + bias).to(dtype), heads)
    for mine, best in zip(found, wanted, strict=True):
        assert torch.equal(mine, best)
        assert mine.stride() == best.stride()
    given = [torch.randn(rows, t, heads, dim).transpose(1, 2), torch.randn(rows, heads, t, dim)]
    given.append(torch.randn(rows, heads, dim, t).transpose(2, 3))
    given = [part.to(DEVICE, dtype) for part in given]
    near(*(torch.autograd.grad(parts, [x, bias], given) for parts in (found, wanted)), dtype)


def test_without_a_bias_it_is_left_to_torch(monkeypatch):
    monkeypatch.setattr(kernel, "pack", None)
    x = drawn(2, 5, 48)
    near(*(slopes(parts, [x]) for parts in (qkv_gpu.parted(x, None, 2), qkv_gpu.plainly(x, 2))), torch.float32)


def test_nothing_in_nothing_out():
    x, bias = drawn(0, 5, 48), drawn(48)
    by_x, by_bias = slopes(qkv_gpu.parted(x, bias, 2), [x, bias])
    assert by_x.shape == (0, 5, 48)
    assert not by_bias.any()


@pytest.mark.parametrize("position", [None, Rotary(32, 16)], ids=["still", "turned"])
@pytest.mark.parametrize("trained", [True, False])
def test_attention_says_what_it_says_without(monkeypatch, position, trained):
    torch.manual_seed(3)
    layer, x, calls, found = MultiHeadAttention(32, 2).to(DEVICE), drawn(2, 9, 32), [], []
    torch.nn.init.normal_(layer.project.bias)
    layer.project.bias.requires_grad_(trained)
    monkeypatch.setattr(kernel, "pack", lambda *given, plain=kernel.pack: calls.append(1) or plain(*given))
    leaves = [x, *(parameter for parameter in layer.parameters() if parameter.requires_grad)]
    for usable in (True, False):
        monkeypatch.setattr(runtime, "READY", usable)
        y, _ = layer(x, Visibility(causal=True), None, position and position.to(DEVICE))
        found.append([y.detach(), *slopes([y], leaves)])
    assert len(calls) == trained
    near(*found, torch.float32)


def test_layers_that_it_does_not_suit(monkeypatch):
    """Double precision, no gradients, shared keys, not all projected."""
    monkeypatch.setattr(qkv_gpu, "_Parted", None)
    x = drawn(2, 9, 32)
    MultiHeadAttention(32, 2).to(DEVICE).double()(x.double(), Visibility())
    for options in ({"key_heads": 1}, {"projections": "qk"}):
        MultiHeadAttention(32, 2, **options).to(DEVICE)(x, Visibility())
    with torch.no_grad():
        MultiHeadAttention(32, 2).to(DEVICE)(x, Visibility())


@pytest.mark.skipif(DEVICE == "cpu", reason="needs CUDA")
def test_what_attention_leaves_need_not_be_copied_before():
    parts = qkv_gpu.plainly(drawn(2, 128, 3 * 128, dtype=HALF), 2)
    q, k, v = (part.detach().requires_grad_() for part in parts)
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    for slope in torch.autograd.grad(mixed.float().sum(), [q, k, v]):
        assert slope.stride(-1) == 1
