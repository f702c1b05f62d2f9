"""A feed-forward network with ReLU and dropout without saved masks, beside the two functions."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from seqloom.acceleration import plain_of
from seqloom.fast.feedforward.gpu import ReluDropout, relu_feed_forward
from seqloom.parts.transformer.feed_forward import FeedForward

P = 0.25


@pytest.mark.parametrize("compiled", [False, True])
def test_without_masks_as_with_them(compiled):
    x = torch.randn(7, 40, dtype=torch.float64, requires_grad=True)
    fast = torch.compile(ReluDropout.apply, backend="aot_eager", fullgraph=True) if compiled else ReluDropout.apply
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
    for f in (lambda: ReluDropout.apply(x, P), lambda: F.dropout(x.relu(), P)):
        torch.manual_seed(4)
        found.append(f())
    assert torch.equal(*found)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a CPU takes the two functions")
def test_on_a_gpu():
    torch.manual_seed(2)
    feed = FeedForward(64, 512, dropout=P).cuda().train()
    x, found = torch.randn(64, 64, device="cuda", requires_grad=True), []
    for f in (relu_feed_forward, plain_of(FeedForward.forward)):
        torch.manual_seed(5)
        y = f(feed, x)
        found.append((y, *torch.autograd.grad(y.sin().sum(), [x, *feed.parameters()])))
    torch.testing.assert_close(*found)
