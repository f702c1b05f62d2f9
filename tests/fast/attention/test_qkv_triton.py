"""The concatenated gradients of queries, keys and values, and their sums, equal torch's. On a CPU in Triton's
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
from tests.fast.triton_common import DEVICE, HALF, drawn, gradients, near, needed

pytestmark = needed


@pytest.fixture(autouse=True)
def ready(monkeypatch):
    """Small limits, so that programs have several tiles and columns several programs."""
    monkeypatch.setattr(runtime, "READY", True)
    monkeypatch.setattr(column_sums, "PROGRAMS", 2)
    monkeypatch.setattr(column_sums, "TILES", 2)


SHAPES = [(2, 9, 2, 16), (3, 5, 3, 256), (1, 70, 1, 24), (1, 1, 5, 6)]  # rows, steps, heads, width of a head


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_concatenated_gradients(shape, dtype):
    """In the memory order of the gradients of attention kernels, in another, and in one that is copied first."""
    rows, t, heads, dim = shape
    x, bias = drawn(rows, t, 3 * heads * dim, dtype=dtype), drawn(3 * heads * dim, seed=2)
    found = qkv_gpu.split_qkv((x + bias.detach()).to(dtype), bias, heads)
    wanted = qkv_gpu.reference((x + bias).to(dtype), heads)
    for mine, best in zip(found, wanted, strict=True):
        assert torch.equal(mine, best)
        assert mine.stride() == best.stride()
    given = [torch.randn(rows, t, heads, dim).transpose(1, 2), torch.randn(rows, heads, t, dim)]
    given.append(torch.randn(rows, heads, dim, t).transpose(2, 3))
    given = [part.to(DEVICE, dtype) for part in given]
    near(*(torch.autograd.grad(parts, [x, bias], given) for parts in (found, wanted)), dtype)


def test_without_a_bias_it_is_left_to_torch(monkeypatch):
    monkeypatch.setattr(kernel, "concat_grads", None)
    x = drawn(2, 5, 48)
    near(*(gradients(parts, [x]) for parts in (qkv_gpu.split_qkv(x, None, 2), qkv_gpu.reference(x, 2))), torch.float32)


def test_no_rows():
    x, bias = drawn(0, 5, 48), drawn(48)
    grad_x, grad_bias = gradients(qkv_gpu.split_qkv(x, bias, 2), [x, bias])
    assert grad_x.shape == (0, 5, 48)
    assert not grad_bias.any()


@pytest.mark.parametrize("position", [None, Rotary(32, 16)], ids=["fixed", "rotary"])
@pytest.mark.parametrize("trained", [True, False])
def test_attention_is_the_same_without_it(monkeypatch, position, trained):
    torch.manual_seed(3)
    layer, x, calls, found = MultiHeadAttention(32, 2).to(DEVICE), drawn(2, 9, 32), [], []
    torch.nn.init.normal_(layer.project.bias)
    layer.project.bias.requires_grad_(trained)
    monkeypatch.setattr(
        kernel, "concat_grads", lambda *given, plain=kernel.concat_grads: calls.append(1) or plain(*given)
    )
    leaves = [x, *(parameter for parameter in layer.parameters() if parameter.requires_grad)]
    for usable in (True, False):
        monkeypatch.setattr(runtime, "READY", usable)
        y, _ = layer(x, Visibility(causal=True), None, position and position.to(DEVICE))
        found.append([y.detach(), *gradients([y], leaves)])
    assert len(calls) == trained
    near(*found, torch.float32)


def test_unsupported_layers(monkeypatch):
    """Double precision, no gradients, shared keys, not all projected."""
    monkeypatch.setattr(qkv_gpu, "_SplitQkv", None)
    x = drawn(2, 9, 32)
    MultiHeadAttention(32, 2).to(DEVICE).double()(x.double(), Visibility())
    for options in ({"key_heads": 1}, {"projections": "qk"}):
        MultiHeadAttention(32, 2, **options).to(DEVICE)(x, Visibility())
    with torch.no_grad():
        MultiHeadAttention(32, 2).to(DEVICE)(x, Visibility())


@pytest.mark.skipif(DEVICE == "cpu", reason="needs CUDA")
def test_gradients_of_attention_are_not_copied():
    parts = qkv_gpu.reference(drawn(2, 128, 3 * 128, dtype=HALF), 2)
    q, k, v = (part.detach().requires_grad_() for part in parts)
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    for grad in torch.autograd.grad(mixed.float().sum(), [q, k, v]):
        assert grad.stride(-1) == 1
