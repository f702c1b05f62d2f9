"""Calls by which the fast feed-forward networks are compared with the plain one."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from seqloom.parts.transformer.feed_forward import FeedForward
from tests.fast.triton_common import DEVICE
from tests.fast.twin_law import Call, call


def feeding(activation: str, grad: bool) -> Call:
    torch.manual_seed(3)
    feed = FeedForward(8, 12, activation).to(DEVICE).train(grad)
    torch.nn.init.normal_(feed.up.bias)
    return call(feed, torch.randn(3, 20, 8, device=DEVICE, requires_grad=grad), grad=grad)


def dropping() -> Call:
    """On no device, where shapes alone can be compared; the numbers are compared in test_relu.py."""

    def same(found: Any, wanted: Any) -> None:
        assert (found.shape, found.dtype, found.device) == (wanted.shape, wanted.dtype, wanted.device)

    feed = FeedForward(8, 12, dropout=0.25).to("meta", torch.float64).train()  # our kernel is for float32 at most
    return call(feed, torch.zeros(3, 8, dtype=torch.float64, device="meta", requires_grad=True), same=same)


EXAMPLES = {
    "seqloom.parts.transformer.feed_forward.FeedForward.forward": [
        *(partial(feeding, activation, grad) for activation in ("relu", "gelu", "silu") for grad in (False, True)),
        dropping,
    ],
}
