"""Calls by which the fast forms of attention are compared with the plain ones."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from seqloom.parts.attention.kv_cache import Cache
from seqloom.parts.attention.multi_head import MultiHeadAttention
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.positions.rotary import Rotary
from seqloom.parts.visibility import Visibility
from tests.fast.triton_common import DEVICE, HALF, drawn
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


def rotating(dtype: torch.dtype) -> Call:
    torch.manual_seed(3)
    x, angle = torch.randn(2, 3, 5, 8, dtype=dtype, requires_grad=True), torch.randn(5, 4)
    return call(x, angle.cos(), angle.sin(), bound=1e-5 if dtype.itemsize > 2 else 1e-2)


def layer(key_dim: int = 0, dtype: torch.dtype = HALF, **options: Any) -> MultiHeadAttention:
    torch.manual_seed(3)
    made = MultiHeadAttention(32, 2, key_dim=key_dim, **options)
    torch.nn.init.normal_(made.project.bias)  # pyright: ignore
    return made.to(DEVICE, dtype)


def reading_itself(visible: Visibility, rotary: bool = False, cached: bool = False, **options: Any) -> Call:
    made, x = layer(**options), drawn(3, 7, 32, dtype=HALF)
    position = Rotary(32, 16).prepare(x) if rotary else None
    return call(made, x, visible, Cache() if cached else None, position, bound=1e-2)


def projecting(dtype: torch.dtype) -> Call:
    return call(layer(dtype=dtype), drawn(3, 7, 32, dtype=dtype), "qkv", bound=1e-2 if dtype.itemsize == 2 else 1e-5)


def remembering() -> Call:
    """The packed memory is not compared: its twin reads it."""
    return call(layer(24), drawn(3, 7, 24, dtype=HALF), same=lambda found, wanted: None)


def reading_memory(t: int, width: int) -> Call:
    made, states = layer(24), drawn(3, 7, 24, dtype=HALF)
    x = drawn(3 * width, t, 32, dtype=HALF, seed=2)
    return call(made, x, made.project_memory(states), Visibility(lengths=ROWS), bound=1e-2)


ROWS = torch.tensor([7, 1, 4], device=DEVICE)
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
    "seqloom.parts.positions.rotary.rotate": [
        partial(rotating, dtype) for dtype in (torch.float64, torch.float32, torch.bfloat16)
    ],
    "seqloom.parts.attention.multi_head.MultiHeadAttention.forward": [
        partial(reading_itself, visible, rotary, cached)
        for visible in (Visibility(causal=True), Visibility(lengths=ROWS))
        for rotary in (False, True)
        for cached in (False, True)
    ],
    "seqloom.parts.attention.multi_head.MultiHeadAttention.project_heads": [
        partial(projecting, dtype) for dtype in (torch.float32, HALF)
    ],
    "seqloom.parts.attention.multi_head.MultiHeadAttention.project_memory": [remembering],
    "seqloom.parts.attention.multi_head.MultiHeadAttention.cross_attend": [
        partial(reading_memory, t, width) for t, width in ((5, 1), (5, 2), (65, 1))
    ],
}
