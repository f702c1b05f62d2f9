"""A rectified dropout beside the two functions it stands for."""

from __future__ import annotations

import pytest
import torch

from seqloom.parts.layers.dropout import _ReluDropout, dropout, relu_dropout

P = 0.25  # the same on all devices


@pytest.mark.parametrize("compiled", [False, True])
def test_without_masks_as_with_them(compiled):
    x = torch.randn(7, 40, dtype=torch.float64, requires_grad=True)
    fast = torch.compile(_ReluDropout.apply, backend="aot_eager", fullgraph=True) if compiled else _ReluDropout.apply
    torch.manual_seed(3)
    y = fast(x, P)
    mask = (y != 0) | (x <= 0)
    torch.testing.assert_close(y, x.relu() * mask / (1 - P))
    assert 0.05 < 1 - mask.float().mean() < 0.2  # a quarter of one half
    y.pow(2).sum().backward()
    [slope] = torch.autograd.grad((x.relu() * mask / (1 - P)).pow(2).sum(), x)
    torch.testing.assert_close(x.grad, slope)


def test_it_draws_what_dropout_draws():
    x = torch.randn(5, 30)
    found = []
    for f in (lambda: _ReluDropout.apply(x, P), lambda: dropout(x.relu(), P, True), lambda: relu_dropout(x, P, True)):
        torch.manual_seed(4)
        found.append(f())
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    assert torch.equal(relu_dropout(x, P, False), x.relu())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the CPU takes the two functions")
def test_on_a_gpu():
    x = torch.randn(64, 512, device="cuda", requires_grad=True)
    found = []
    for f in (relu_dropout, lambda x, p, training: dropout(x.relu(), p, training)):
        torch.manual_seed(5)
        y = f(x, P, True)
        found.append((y, *torch.autograd.grad(y.sin().sum(), x)))
    torch.testing.assert_close(*found)
