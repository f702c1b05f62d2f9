"""Calls by which the fast forms of losses are compared with the plain ones."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from seqloom.parts.layers.crf import Chain
from tests.fast.twin_law import Call, call


def cross_entropy(bias: bool, smoothing: float, grad: bool) -> Call:
    torch.manual_seed(3)
    output = nn.Linear(12, 50, bias=bias)
    output.out_features = 1 << 30  # says that it is wide: the fast form is for more logits than a test should hold
    labels = torch.randint(1, 50, (37,))
    labels[[4, 36]] = 0
    return call((3 * torch.randn(37, 12)).requires_grad_(grad), output, labels, smoothing, 0, grad=grad)


def partition(lengths: list[int] | None) -> Call:
    torch.manual_seed(3)
    chain = Chain(*(torch.randn(*shape).requires_grad_() for shape in ((3,), (3, 3), (3,))))
    scores = torch.randn(4, 5, 3).requires_grad_()
    return call(scores, None if lengths is None else torch.tensor(lengths), chain)


EXAMPLES = {
    "seqloom.parts.layers.cross_entropy.cross_entropy_sum": [
        partial(cross_entropy, bias, smoothing, grad)
        for bias in (False, True)
        for smoothing in (0.0, 0.1)
        for grad in (False, True)
    ],
    "seqloom.parts.layers.crf.log_partition": [partial(partition, lengths) for lengths in (None, [5, 3, 1, 2])],
}
