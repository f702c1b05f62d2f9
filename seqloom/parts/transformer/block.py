"""The Transformer's block, and a stack of them: a mixer along time, cross-attention and a feed-forward network."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from torch import Tensor, nn

from seqloom.acceleration import accelerated
from seqloom.build import Choice, build
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

    @accelerated
    def forward(
        self,
        x: Tensor,
        visible: Visibility,
        state: State = None,
        position: AttentionPosition | None = None,
        memory: tuple[Memory, Visibility] | None = None,
    ) -> tuple[Tensor, State]:
        """[R, T, dim] -> the same; `memory`: keys and values of the source, and what is visible of them. With the norm
        before (norm after: see `Residual`)

        x = x + mixer(norm(x)); x = x + cross(norm(x), memory); x = x + feed_forward(norm(x))
        """
        x, state = self.mixer_sublayer(x, visible, state, position)
        if memory is not None:
            y = self.cross.cross_attend(self.cross_around.sublayer_input(x, visible.lengths), *memory)
            x = self.cross_around.add(x, y, visible.lengths)
        return self.feed_forward_sublayer(x, visible), state

    def mixer_sublayer(
        self, x: Tensor, visible: Visibility, state: State = None, position: AttentionPosition | None = None
    ) -> tuple[Tensor, State]:
        """x + mixer(norm(x)): the mixer with its norm and residual connection."""
        y, state = self.mix(self.mix_around.sublayer_input(x, visible.lengths), visible, state, position)
        return self.mix_around.add(x, y, visible.lengths), state

    def feed_forward_sublayer(self, x: Tensor, visible: Visibility) -> Tensor:
        """x + feed_forward(norm(x)): the feed-forward network with its norm and residual connection."""
        y = self.feed(self.feed_around.sublayer_input(x, visible.lengths))
        return self.feed_around.add(x, y, visible.lengths)


@accelerated
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
    outputs, new_states, none = [x], [], [None] * len(stack.blocks)
    if isinstance(position, Position):
        position = position.prepare(x, getattr(states[0], "used", 0) if states else 0)
    for block, state, memory in zip(stack.blocks, states or none, memories or none, strict=True):
        x, state = block(stack.ways(outputs), visible, state, position, memory)
        outputs.append(x)
        new_states.append(state)
    return outputs, stack.norm(stack.ways(outputs), visible.lengths), tuple(new_states)
