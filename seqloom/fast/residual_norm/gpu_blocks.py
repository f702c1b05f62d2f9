"""Transformer blocks on a GPU whose residual connections and norms are one kernel each: x + dropout(y) with its norm
after it, or with the norm before the next sub-layer, also that of the next block."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn, promote_types

from seqloom.acceleration import twin_of
from seqloom.fast.residual_norm import gpu
from seqloom.parts.attention.attend import Memory
from seqloom.parts.layers.norm import LayerNorm
from seqloom.parts.positions.position import AttentionPosition, Position
from seqloom.parts.state import State
from seqloom.parts.transformer.block import Block, run_blocks
from seqloom.parts.transformer.residual import Residual
from seqloom.parts.visibility import Visibility


def _norm_supported(self: LayerNorm, x: Tensor, lengths: Tensor | None = None) -> bool:
    return gpu.supported(x)


@twin_of(LayerNorm.forward, _norm_supported, compiles=True)
def fused_layer_norm(self: LayerNorm, x: Tensor, lengths: Tensor | None = None) -> Tensor:
    return gpu.fused_norm(x, self.affine)


def _fits(residual: Residual, x: Tensor, y: Tensor) -> bool:
    return gpu.supported(x) and residual.adds and promote_types(x.dtype, y.dtype) == x.dtype


def _add_supported(self: Residual, x: Tensor, y: Tensor, lengths: Tensor | None = None) -> bool:
    return _fits(self, x, y) and (self.pre_norm or isinstance(self.norm, LayerNorm))


@twin_of(Residual.add, _add_supported, compiles=True)
def fused_add(self: Residual, x: Tensor, y: Tensor, lengths: Tensor | None = None) -> Tensor:
    p = self.dropout if self.training else 0.0
    if self.pre_norm:
        return gpu.fused_residual_norm(x, y, p, None)[0]
    return gpu.fused_residual_norm(x, y, p, self.norm.affine)[1]  # pyright: ignore


def add_then_norm(
    residual: Residual, x: Tensor, y: Tensor, next_norm: nn.Module, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """x + dropout(y), and its norm, which the next sub-layer reads."""
    if isinstance(next_norm, LayerNorm) and _fits(residual, x, y):
        return gpu.fused_residual_norm(x, y, residual.dropout if residual.training else 0.0, next_norm.affine)
    x = residual.add(x, y, lengths)
    return x, next_norm(x, lengths)


def _block_supported(
    self: Block,
    x: Tensor,
    visible: Visibility,
    state: State = None,
    position: AttentionPosition | None = None,
    memory: tuple[Memory, Visibility] | None = None,
) -> bool:
    return gpu.supported(x) and _adds_before_norms(self)


def _adds_before_norms(block: Block) -> bool:
    return block.feed_around.pre_norm and block.feed_around.adds


@twin_of(Block.forward, _block_supported, compiles=True, hooks=True)
def fused_block(
    self: Block,
    x: Tensor,
    visible: Visibility,
    state: State = None,
    position: AttentionPosition | None = None,
    memory: tuple[Memory, Visibility] | None = None,
) -> tuple[Tensor, State]:
    normed = self.mix_around.norm(x, visible.lengths)
    x, y, state = forward_before_add(self, x, normed, visible, state, position, memory)
    return self.feed_around.add(x, y, visible.lengths), state


def forward_before_add(
    block: Block,
    x: Tensor,
    normed: Tensor,
    visible: Visibility,
    state: State,
    position: AttentionPosition | None,
    memory: tuple[Memory, Visibility] | None,
) -> tuple[Tensor, Tensor, State]:
    """The block without its first norm and its last addition, which `fused_blocks` fuses with those of the next: -> x
    and the feed-forward output y, not yet added."""
    lengths, residual = visible.lengths, block.mix_around
    y, state = block.mix(normed, visible, state, position)
    if memory is not None:
        x, normed = add_then_norm(residual, x, y, block.cross_around.norm, lengths)
        y, residual = block.cross.cross_attend(normed, *memory), block.cross_around
    x, normed = add_then_norm(residual, x, y, block.feed_around.norm, lengths)
    return x, block.feed(normed), state


def _blocks_supported(
    stack: Any,
    x: Tensor,
    visible: Visibility,
    position: AttentionPosition,
    states: Sequence[State] | None = None,
    memories: Sequence[tuple[Memory, Visibility]] | None = None,
) -> bool:
    """Not where blocks have hooks: FSDP gathers a block's parameters in them, so the next block's norm is not available
    yet."""
    if not gpu.supported(x):
        return False
    hooked = any(block._forward_pre_hooks or block._forward_hooks for block in stack.blocks)
    return not hooked and all(_adds_before_norms(block) for block in stack.blocks)


@twin_of(run_blocks, _blocks_supported, compiles=True, hooks=True)
def fused_blocks(
    stack: Any,
    x: Tensor,
    visible: Visibility,
    position: AttentionPosition,
    states: Sequence[State] | None = None,
    memories: Sequence[tuple[Memory, Visibility]] | None = None,
) -> tuple[list[Tensor], Tensor, tuple[State, ...]]:
    outputs, new_states, none = [x], [], [None] * len(stack.blocks)
    if isinstance(position, Position):
        position = position.prepare(x, getattr(states[0], "used", 0) if states else 0)
    norms = [*(block.mix_around.norm for block in stack.blocks), stack.norm]
    normed = norms[0](x, visible.lengths)
    for block, next_norm, state, memory in zip(stack.blocks, norms[1:], states or none, memories or none, strict=True):
        forward = getattr(block, COMPILED, None) or partial(forward_before_add, block)
        x, y, state = forward(x, normed, visible, state, position, memory)
        x, normed = add_then_norm(block.feed_around, x, y, next_norm, visible.lengths)
        outputs.append(x)
        new_states.append(state)
    return outputs, normed, tuple(new_states)


COMPILED = "compiled_before_add"  # an attribute of blocks while they run compiled: `forward_before_add`, compiled
