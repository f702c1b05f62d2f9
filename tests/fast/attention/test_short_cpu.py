"""Attention over short rows beside torch's kernel, values and gradients."""

import pytest
import torch
from torch.nn import functional as F

from seqloom.fast.attention import short_cpu
from seqloom.parts.attention.attend import attend
from seqloom.parts.attention.scores import Scaled
from seqloom.parts.visibility import Visibility
from tests.laws import close, drawn

KEEP = torch.tensor([[True, True, False], [True, False, False]])[:, None, None]


def both(q, k, v, run):
    """Outputs and gradients, of inputs that are not contiguous."""
    given = [part.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for part in (q, k, v)]
    y = run(*given)
    return [y, *torch.autograd.grad((y * drawn(*y.shape, seed=9)).sum(), given)]


@pytest.mark.parametrize("block", [2, 64])
@pytest.mark.parametrize("how", ["all", "causal", "keep"])
def test_short_is_torchs(how, block, monkeypatch):
    monkeypatch.setattr(short_cpu, "QUERY_BLOCK", block)
    t, s = (7, 7) if how == "causal" else (5, 3)
    q, k, v = drawn(2, 3, t, 4), drawn(2, 3, s, 4, seed=1), drawn(2, 3, s, 6, seed=2)
    keep = KEEP if how == "keep" else None
    found = both(q, k, v, lambda *qkv: short_cpu.short_attention(*qkv, keep, how == "causal"))
    wanted = both(
        q, k, v, lambda *qkv: F.scaled_dot_product_attention(*qkv, keep, is_causal=how == "causal", scale=1.0)
    )
    close(found, wanted)


def test_a_query_without_visible_keys_gets_zeros():
    q, k, v = drawn(2, 3, 5, 4), drawn(2, 3, 3, 4, seed=1), drawn(2, 3, 3, 4, seed=2)
    keep = torch.tensor([[True, True, True], [False] * 3])[:, None, None]
    y, *grads = both(q, k, v, lambda *qkv: short_cpu.short_attention(*qkv, keep))
    assert not y[1].any()
    assert all(torch.isfinite(grad).all() for grad in grads)


def test_queries_with_a_bias():
    q, k, v, bias = drawn(2, 3, 5, 4), drawn(2, 3, 6, 4, seed=1), drawn(2, 3, 6, 4, seed=2), drawn(2, 1, 5, 6, seed=3)
    bias[:, :, 1, 2:] = float("-inf")
    close(
        short_cpu.biased_attention_no_grad(q, k, v, bias, 0.5), F.scaled_dot_product_attention(q, k, v, bias, scale=0.5)
    )


@pytest.mark.parametrize(
    "visible", [Visibility(), Visibility(causal=True), Visibility(lengths=torch.tensor([5, 3]))], ids=str
)
def test_attend_uses_it_for_short_rows(visible, monkeypatch):
    """With the same result; in half precision up to rounding."""
    q, k, v = (drawn(2, 3, 5, 4, seed=n) for n in range(3))
    found = attend(q, k, v, Scaled(4, 4), visible)
    half = attend(*(part.bfloat16() for part in (q, k, v)), Scaled(4, 4), visible)
    monkeypatch.setattr(short_cpu, "MAX_WEIGHTS", {4: 0})
    close(found, attend(q, k, v, Scaled(4, 4), visible))
    torch.testing.assert_close(half.double(), found, atol=0.03, rtol=0.03)


def test_autocast_finds_one_precision():
    """A recurrent decoder has queries in float32 and keys in half precision."""
    q, k, v = (drawn(2, 3, 5, 4, seed=n).float().requires_grad_() for n in range(3))
    with torch.autocast("cpu", torch.bfloat16):
        y = attend(q, k.bfloat16(), v, Scaled(4, 4), Visibility())
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert q.grad.dtype == torch.float32


@pytest.mark.parametrize("lengths", [None, torch.tensor([5, 3, 1]), torch.tensor([5, 0, 2])], ids=str)
@torch.no_grad()
def test_no_grad_is_torchs(lengths, monkeypatch):
    """Without gradients, on many short rows, one of them without keys."""
    q, k, v = (drawn(3, 2, 5, 4, seed=n).float().transpose(1, 2).contiguous().transpose(1, 2) for n in range(3))
    visible, calls = Visibility(lengths=lengths), []
    wanted = attend(q.double(), k.double(), v.double(), Scaled(4, 4), visible)
    inner = short_cpu.short_attention_no_grad
    monkeypatch.setattr(
        "seqloom.fast.attention.short_cpu.short_attention_no_grad", lambda *given: calls.append(given) or inner(*given)
    )
    attend(q, k, v, Scaled(4, 4), visible)
    assert not calls, "few rows should go to torch"
    monkeypatch.setattr(short_cpu, "MIN_BATCH_HEADS", 6)
    close(attend(q, k, v, Scaled(4, 4), visible).double(), wanted, 1e-5)
    assert len(calls) == 1
    attend(q, k, v, Scaled(4, 4), Visibility(causal=True))
    attend(q[:, :, :1], k, v, Scaled(4, 4), visible)
    with torch.enable_grad():
        attend(q, k, v, Scaled(4, 4), visible)
    assert len(calls) == 1
