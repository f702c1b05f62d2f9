"""Calls by which the fast linear layers are compared with the plain ones."""

from __future__ import annotations

from functools import partial

import torch

from tests.fast.twin_law import Call, call


def multiplying(bias: bool, grad: bool) -> Call:
    torch.manual_seed(3)
    x, weight = torch.randn(4, 9, 6, requires_grad=grad), torch.randn(5, 6, requires_grad=grad)
    return call(x, weight, torch.randn(5, requires_grad=grad) if bias else None, grad=grad)


EXAMPLES = {
    "seqloom.parts.layers.linear.linear": [
        partial(multiplying, bias, grad) for bias in (False, True) for grad in (False, True)
    ],
}
