"""The Transformer's block, and a stack of them: a mixer along time, cross-attention and a feed-forward network."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from torch import Tensor, nn

from seqloom.build import Choice, build
from seqloom.fast.residual_norm import gpu as residual_norm_gpu
from seqloom.parts.attention.attend import Memory
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.layers.norm import NORMS
from seqloom.parts.mixers.mixer_table import CROSSES, MIXERS, build_mixer
from seqloom.parts.positions.position import AttentionPosition, Position
from seqloom.parts.state import State
from seqloom.parts.transformer.feed_forward import FeedForward
from seqloom.parts.transformer.residual import Residual
from seqloom.parts.visibility import Visibility


class Block(nn.Module):
    """A mixer along time, cross-attention if there is a memory (of width `memory_dim`), and a feed-forward network
    (Vaswani et al. 2017, section 3.1). `causal`: it is used where later positions do not exist yet."""

    def __init__(
        self,
        dim: int,
        heads: int,
        hidden: int,
        memory_dim: int = 0,
        score: Annotated[Choice, SCORES] = "scaled",
        activation: str = "relu",
        norm: str = "before",
        dropout: float = 0.0,
        mixer: Annotated[Choice, MIXERS] = "attention",
        causal: bool = False,
        norm_kind: Annotated[Choice, NORMS] = "layer",
        residual: str = "add",
        cross: Annotated[Choice, CROSSES] = "attention",
    ) -> None:
        super().__init__()
        make_residual = partial(Residual, dim, norm, dropout, norm_kind, residual)
        self.mix = build_mixer(mixer, dim, heads, score, causal)
        self.mix_around = make_residual()
        if memory_dim:
            self.cross = build(CROSSES, cross, dim=dim, heads=heads, key_dim=memory_dim, score=score)
            self.cross_around = make_residual()
        self.feed = FeedForward(dim, hidden, activation, dropout)
        self.feed_around = make_residual()

    def forward(
        self,
        x: Tensor,
        visible: Visibility,
        state: State = None,
        position: AttentionPosition | None = None,
        memory: tuple[Memory, Visibility] | None = None,
    ) -> tuple[Tensor, State]:
        """[R, T, dim] -> the same; `memory`: keys and values of the source, and what is visible of them."""
        mixer_input = self.mix_around.sublayer_input(x, visible.lengths)
        x, y, state = self.forward_before_add(x, mixer_input, visible, state, position, memory)
        return self.feed_around.add(x, y, visible.lengths), state

    def forward_before_add(
        self,
        x: Tensor,
        mixer_input: Tensor,
        visible: Visibility,
        state: State,
        position: AttentionPosition | None,
        memory: tuple[Memory, Visibility] | None,
    ) -> tuple[Tensor, Tensor, State]:
        """The block without its first norm and its last addition, which `run_blocks` fuses with those of the next:
        -> x and the feed-forward output y, not yet added."""
        lengths, residual = visible.lengths, self.mix_around
        y, state = self.mix(mixer_input, visible, state, position)
        if memory is not None:
            x, cross_input = residual.add_then_norm(x, y, self.cross_around.norm, lengths)
            y, residual = self.cross.cross_attend(cross_input, *memory), self.cross_around
        x, feed_input = residual.add_then_norm(x, y, self.feed_around.norm, lengths)
        return x, self.feed(feed_input), state

    def mixer_sublayer(
        self, x: Tensor, visible: Visibility, state: State = None, position: AttentionPosition | None = None
    ) -> tuple[Tensor, State]:
        """The mixer with its norm and residual connection, alone."""
        y, state = self.mix(self.mix_around.sublayer_input(x, visible.lengths), visible, state, position)
        return self.mix_around.add(x, y, visible.lengths), state

    def feed_forward_sublayer(self, x: Tensor, visible: Visibility) -> Tensor:
        """The feed-forward network with its norm and residual connection, alone."""
        lengths = visible.lengths
        return self.feed_around.add(x, self.feed(self.feed_around.sublayer_input(x, lengths)), lengths)


def run_blocks(
    stack: Any,
    x: Tensor,
    visible: Visibility,
    position: AttentionPosition,
    states: Sequence[State] | None = None,
    memories: Sequence[tuple[Memory, Visibility]] | None = None,
) -> tuple[list[Tensor], Tensor, tuple[State, ...]]:
    """x [R, T, dim] through the `blocks` of a stack with skip connections `ways` and a last `norm` -> x and the outputs
    of all blocks, the normed last one, and the new states."""
    blocks, outputs, new_states = stack.blocks, [x], []
    if isinstance(position, Position):
        position = position.prepare(x, getattr(states[0], "used", 0) if states else 0)
    inputs = list(zip(blocks, states or [None] * len(blocks), memories or [None] * len(blocks), strict=True))
    if not _fuses_blocks(blocks, x):
        for block, state, memory in inputs:
            x, state = block(stack.ways(outputs), visible, state, position, memory)
            outputs.append(x)
            new_states.append(state)
        return outputs, stack.norm(stack.ways(outputs), visible.lengths), tuple(new_states)
    norms = [*(block.mix_around.norm for block in blocks), stack.norm]
    normed = norms[0](x, visible.lengths)
    for (block, state, memory), next_norm in zip(inputs, norms[1:], strict=True):
        x, y, state = block.forward_before_add(x, normed, visible, state, position, memory)
        x, normed = block.feed_around.add_then_norm(x, y, next_norm, visible.lengths)
        outputs.append(x)
        new_states.append(state)
    return outputs, normed, tuple(new_states)


def _fuses_blocks(blocks: Any, x: Tensor) -> bool:
    """Whether the last addition of a block and the first norm of the next can be one kernel. Not where blocks have
    hooks: FSDP gathers a block's parameters in them, so the next block's norm is not available yet."""
    if not residual_norm_gpu.supported(x):
        return False
    hooked = any(block._forward_pre_hooks or block._forward_hooks for block in blocks)
    return not hooked and all(block.feed_around.pre_norm and block.feed_around.adds for block in blocks)
