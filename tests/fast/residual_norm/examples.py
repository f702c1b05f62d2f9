"""Calls by which fast blocks, residual connections, norms and dropout are compared with the plain ones."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from seqloom.models.decoders.stacks import TransformerStack
from seqloom.parts.layers.norm import BatchNorm, LayerNorm
from seqloom.parts.transformer.block import Block
from seqloom.parts.transformer.residual import Residual
from seqloom.parts.visibility import Visibility
from tests.fast.triton_common import DEVICE, drawn
from tests.fast.twin_law import Call, call
from tests.laws import shake

P = 0.25


def block(memory: bool, **options: Any) -> Call:
    torch.manual_seed(3)
    made = shake(Block(8, 2, 12, memory_dim=6 if memory else 0, **options), 1).to(DEVICE)
    states = (made.cross.project_memory(drawn(3, 7, 6, seed=2)), Visibility()) if memory else None
    return call(made, drawn(3, 6, 8), Visibility(causal=True), memory=states)


def stack(**options: Any) -> Call:
    torch.manual_seed(3)
    made = shake(TransformerStack(8, 8, layers=2, heads=2, hidden=12, dropout=0.0, **options), 1).to(DEVICE)
    return call(made, drawn(3, 6, 8), Visibility(causal=True), made.enter.position)


def reversible(lengths: list[int] | None) -> Call:
    made = shake(TransformerStack(8, 8, layers=2, heads=2, hidden=12, dropout=0.0, residual="reversible"), 1)
    x, visible = torch.randn(3, 6, 8, requires_grad=True), Visibility(causal=lengths is None)
    if lengths is not None:
        visible = Visibility(lengths=torch.tensor(lengths))
    return call(made.blocks, x, visible, made.enter.position)


def adding(norm: str) -> Call:
    return call(shake(Residual(8, norm, P), 1).to(DEVICE), drawn(3, 6, 8), drawn(3, 6, 8, seed=2))


def layer_norm() -> Call:
    return call(shake(LayerNorm(8), 1).to(DEVICE), drawn(3, 6, 8))


def batch_norm() -> Call:
    torch.manual_seed(3)
    return call(shake(BatchNorm(8), 1).train(), torch.randn(3, 6, 8, requires_grad=True))


GRADS: list[Tensor] = []  # of the last calls


def dropping(add: bool) -> Call:
    """Compares what is random by its distribution."""
    rows = 400
    y = (torch.arange(1.0, rows * 40 + 1).view(rows, 40) / 100).requires_grad_()
    y.register_hook(GRADS.append)
    weights = torch.arange(1.0, y.numel() + 1).sin().view_as(y)  # of `twin_law.run`

    def same(found: Tensor, wanted: Tensor) -> None:
        for answer, grad in zip((wanted, found), GRADS[-2:], strict=True):
            kept = (answer - 1 if add else answer).detach() / y.detach()
            keep = kept > 0.5
            torch.testing.assert_close(kept, keep / (1 - P), rtol=1e-4, atol=1e-4)
            assert abs(keep.float().mean() - (1 - P)) < 4 * (P * (1 - P) / keep.numel()) ** 0.5
            torch.testing.assert_close(grad, weights * keep / (1 - P))
        assert not torch.equal(found, wanted)

    return call(torch.ones_like(y), y, P, True, same=same) if add else call(y, P, True, same=same)


EXAMPLES = {
    "seqloom.parts.transformer.block.Block.forward": [
        *(partial(block, memory, norm=norm) for memory in (False, True) for norm in ("before", "after")),
        partial(block, True, norm_kind="rms"),
        partial(block, True, residual="none"),
    ],
    "seqloom.parts.transformer.block.run_blocks": [
        partial(stack, **options)
        for options in ({}, {"norm": "after"}, {"norm_kind": "rms"}, {"residual": "dense"}, {"position": "rotary"})
    ],
    "seqloom.parts.transformer.reversible.run_reversible": [partial(reversible, given) for given in (None, [6, 2, 4])],
    "seqloom.parts.transformer.residual.Residual.add": [partial(adding, norm) for norm in ("before", "after")],
    "seqloom.parts.layers.norm.LayerNorm.forward": [layer_norm],
    "seqloom.parts.layers.norm.BatchNorm.forward": [batch_norm],
    "seqloom.parts.layers.dropout.dropout": [partial(dropping, False)],
    "seqloom.parts.layers.dropout.add_dropout": [partial(dropping, True)],
}
