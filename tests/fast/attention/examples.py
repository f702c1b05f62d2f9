"""Calls by which the fast forms of attention are compared with the plain ones."""

from __future__ import annotations

from functools import partial

import torch

from seqloom.parts.attention.scores import SCORES
from seqloom.parts.visibility import Visibility
from tests.fast.twin_law import Call, call


def attending(
    visible: Visibility, score: str = "scaled", heads: int = 2, key_heads: int = 2, t: int = 5, grad: bool = True
) -> Call:
    torch.manual_seed(3)
    q = torch.randn(3, heads, t, 4, requires_grad=grad)
    k, v = (torch.randn(3, key_heads, 5, 4, requires_grad=grad) for _ in range(2))
    made = SCORES[score](query_dim=4, key_dim=4)
    with torch.no_grad():
        keys = made.keys(k)
    return call(q, keys.requires_grad_(grad), v, made, visible, grad=grad)


LENGTHS = torch.tensor([5, 2, 4])
EXAMPLES = {
    "seqloom.parts.attention.attend.attend": [
        *(partial(attending, Visibility(causal=causal)) for causal in (False, True)),
        *(partial(attending, Visibility(lengths=LENGTHS), grad=grad) for grad in (False, True)),
        *(
            partial(attending, Visibility(lengths=LENGTHS), score)
            for score in ("dot", "cosine", "gaussian", "additive")
        ),
        partial(attending, Visibility(causal=True, window=2, bias=torch.arange(5.0) / 5)),
        partial(attending, Visibility(lengths=LENGTHS), heads=4),
        partial(attending, Visibility(causal=True), heads=16, key_heads=16, grad=False),
        partial(attending, Visibility(causal=True, offset=4), t=1, grad=False),
    ],
}
