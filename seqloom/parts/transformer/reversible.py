"""Reversible layers: a block's input can be computed from its output, so that no activations need be stored for the
backward pass, and memory does not grow with the number of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.acceleration import accelerated
from seqloom.build import Choice
from seqloom.errors import SeqloomError, known
from seqloom.parts.layers.norm import NORMS
from seqloom.parts.state import State
from seqloom.parts.transformer.residual import RESIDUALS
from seqloom.parts.visibility import Visibility

Blocks = Any  # nn.ModuleList of Block


def block_residual(residual: str, norm: str, norm_kind: Choice) -> str:
    """The `residual` that the blocks of a stack are built with. "reversible" is of the stack: its blocks add nothing
    themselves; see `run_reversible`."""
    if known(residual, (*RESIDUALS, "reversible"), "residual") != "reversible":
        return residual
    others = f"or residual from: {', '.join(RESIDUALS)}"
    if norm == "after":
        raise SeqloomError(
            f"norm 'after' cannot be undone, as residual 'reversible' needs; choose norm before; {others}"
        )
    kind = norm_kind.get("kind") if isinstance(norm_kind, dict) else norm_kind
    if getattr(NORMS.get(kind) if isinstance(kind, str) else kind, "across", False):
        fitting = ", ".join(sorted(name for name, make in NORMS.items() if not make.across))
        raise SeqloomError(
            f"norm_kind {kind!r} would count every batch twice with residual 'reversible', which runs blocks again; "
            f"choose norm_kind from: {fitting}; {others}"
        )
    return "none"


@accelerated
def run_reversible(blocks: Blocks, x: Tensor, visible: Visibility, position: nn.Module) -> Tensor:
    """[R, T, dim] through all blocks: y₁ = x₁ + mixer(x₂), y₂ = x₂ + feed_forward(y₁); in the backward pass
    x₂ = y₂ − feed_forward(y₁), x₁ = y₁ − mixer(x₂) (Gomez et al. 2017, section 3, https://arxiv.org/abs/1707.04585; in
    a Transformer: Kitaev et al. 2020, section 3, https://arxiv.org/abs/2001.04451). Both start as x; the output is
    their mean."""
    return run_with_states(blocks, x, visible, [None] * len(blocks), position)[0]


def run_with_states(
    blocks: Blocks, x: Tensor, visible: Visibility, states: Sequence[State], position: nn.Module
) -> tuple[Tensor, list[State]]:
    """The same with the mixers' states -> the output and the new states."""
    first = second = exact(x)
    new_states = []
    for block, state in zip(blocks, states, strict=True):
        y, state = block.mixer_sublayer(second.to(x.dtype), visible, state, position)
        first = first + y
        second = second + block.feed_forward_sublayer(first.to(x.dtype), visible)
        new_states.append(state)
    return mean_of(first, second, x), new_states


def exact(x: Tensor) -> Tensor:
    """In float32 at least: a sum in half precision could not be undone."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def mean_of(first: Tensor, second: Tensor, like: Tensor) -> Tensor:
    return ((first + second) / 2).to(like.dtype)
