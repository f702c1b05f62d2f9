"""Blocks and stacks of the Transformer: a mixer and a feed-forward network, each with its norm and its way around."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from torch import Tensor, cat, is_grad_enabled, nn, promote_types

from seqloom.build import Choice, build
from seqloom.errors import SeqloomError, known
from seqloom.fast.feedforward import gpu as fused_feed_forward
from seqloom.fast.linear.cpu import Linear, linear_relu
from seqloom.fast.residual_norm.gpu import fused_residual_norm, supported
from seqloom.parts.attention.attention import Memory
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.layers.activations import ACTIVATIONS, Gelu, Relu
from seqloom.parts.layers.dropout import dropout, onto, rectified
from seqloom.parts.layers.norm import NORMS, LayerNorm
from seqloom.parts.mixers.mixers import CROSSES, MIXERS, mixer_of
from seqloom.parts.positions.positions import Position, Turns
from seqloom.parts.state import State
from seqloom.parts.visibility import See


class FeedForward(nn.Module):
    """W₂ act(W₁ x + b₁) + b₂ at every place by itself (Vaswani et al. 2017, section 3.3)."""

    def __init__(self, dim: int, hidden: int, activation: str = "relu", dropout: float = 0.0) -> None:
        super().__init__()
        if hidden < 1:
            raise SeqloomError(f"hidden of a Transformer's feed-forward layers is at least 1, here {hidden}")
        self.up = Linear(dim, hidden)
        self.activation = ACTIVATIONS[known(activation, ACTIVATIONS, "activation")]()
        self.down = Linear(hidden, dim)
        self.dropout = dropout
        for linear in (self.up, self.down):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(self.activation, Relu | Gelu) and fused_feed_forward.supported(x):
            gelu, p = isinstance(self.activation, Gelu), self.dropout if self.training else 0.0
            return self.down(fused_feed_forward.activation_dropout(*self.up.forward_defer_bias_grad(x), p, gelu))
        if isinstance(self.activation, Relu) and not (self.training or is_grad_enabled()):
            return self.down(linear_relu(x, self.up))
        x = self.up(x)
        if isinstance(self.activation, Relu):
            return self.down(rectified(x, self.dropout, self.training))
        return self.down(dropout(self.activation(x), self.dropout, self.training))


class Around(nn.Module):
    """The residual way around a part, with the norm before it (Xiong et al. 2020) or after it (Vaswani et al. 2017).

    Only `residual="add"` has such a way; see `Ways` for the others. `lengths` [B]: how many places of x are real, for
    a norm that looks across the batch.
    """

    def __init__(self, dim: int, norm: str, dropout: float, norm_kind: Choice = "layer", residual: str = "add") -> None:
        super().__init__()
        self.norm = build(NORMS, norm_kind, dim=dim)
        self.before = known(norm, ("before", "after"), "norm") == "before"
        self.adds = known(residual, RESIDUALS, "residual") == "add"
        self.dropout = dropout

    def enter(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.norm(x, lengths) if self.before else x

    def leave(self, x: Tensor, y: Tensor, lengths: Tensor | None = None) -> Tensor:
        if self._one_kernel(x, y):
            if self.before:
                return self._added(x, y, None)[0]
            if isinstance(self.norm, LayerNorm):
                return self._added(x, y, self.norm)[1]
        y = onto(x, y, self.dropout, self.training) if self.adds else dropout(y, self.dropout, self.training)
        return y if self.before else self.norm(y, lengths)

    def onward(self, x: Tensor, y: Tensor, after: nn.Module, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Leave, and enter what comes after, whose norm is `after`."""
        if self.before and isinstance(after, LayerNorm) and self._one_kernel(x, y):
            return self._added(x, y, after)
        x = self.leave(x, y, lengths)
        return x, after(x, lengths) if self.before else x

    def _added(self, x: Tensor, y: Tensor, norm: LayerNorm | None) -> tuple[Tensor, Tensor]:
        return fused_residual_norm(x, y, self.dropout if self.training else 0.0, None if norm is None else norm.affine)

    def _one_kernel(self, x: Tensor, y: Tensor) -> bool:
        return self.adds and supported(x) and promote_types(x.dtype, y.dtype) == x.dtype


RESIDUALS = ("add", "dense", "none")


class Ways(nn.Module):
    """What a block reads of all that stands before it in a stack of `layers` blocks.

    `add`: what the block below says, which holds all before it as a sum (He et al. 2016,
    https://arxiv.org/abs/1512.03385). `dense`: W_ℓ [x₀; x₁; …; x_ℓ], the entrance and all blocks below side by side
    (Huang et al. 2017, https://arxiv.org/abs/1608.06993), brought back to one width by a matrix, as their 1 × 1
    convolutions do; so too after the last. `none`: what the block below says, and no way around it.
    """

    def __init__(self, dim: int, layers: int, residual: str) -> None:
        super().__init__()
        dense = known(residual, RESIDUALS, "residual") == "dense"
        self.join = nn.ModuleList(nn.Linear((n + 2) * dim, dim, bias=False) for n in range(layers * dense))
        for linear in self.join:
            nn.init.xavier_uniform_(linear.weight)  # pyright: ignore[reportArgumentType]

    def forward(self, said: Sequence[Tensor]) -> Tensor:
        """What the entrance and the blocks so far said, [R, T, dim] each -> what comes next reads."""
        return self.join[len(said) - 2](cat(list(said), -1)) if self.join and len(said) > 1 else said[-1]


class Block(nn.Module):
    """A mixer along time, cross-attention if `memory_dim` says what is read, feed-forward. `causal`: nothing that comes
    after is ever there to be seen."""

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
        around = partial(Around, dim, norm, dropout, norm_kind, residual)
        self.mix = mixer_of(mixer, dim, heads, score, causal)
        self.mix_around = around()
        if memory_dim:
            self.cross = build(CROSSES, cross, dim=dim, heads=heads, key_dim=memory_dim, score=score)
            self.cross_around = around()
        self.feed = FeedForward(dim, hidden, activation, dropout)
        self.feed_around = around()

    def forward(
        self,
        x: Tensor,
        see: See,
        state: State = None,
        position: Turns | None = None,
        memory: tuple[Memory, See] | None = None,
    ) -> tuple[Tensor, State]:
        """[R, T, dim] -> the same; `memory` is what was read and how much of it may be seen."""
        entered = self.mix_around.enter(x, see.lengths)
        x, y, state = self.within(x, entered, see, state, position, memory)
        return self.feed_around.leave(x, y, see.lengths), state

    def within(
        self,
        x: Tensor,
        entered: Tensor,
        see: See,
        state: State,
        position: Turns | None,
        memory: tuple[Memory, See] | None,
    ) -> tuple[Tensor, Tensor, State]:
        """All between the borders: what goes around the block and what enters it -> what goes around its last part and
        what that says, not yet added."""
        real, around = see.lengths, self.mix_around
        y, state = self.mix(entered, see, state, position)
        if memory is not None:
            x, entered = around.onward(x, y, self.cross_around.norm, real)
            y, around = self.cross.read(entered, *memory), self.cross_around
        x, entered = around.onward(x, y, self.feed_around.norm, real)
        return x, self.feed(entered), state

    def mixed(self, x: Tensor, see: See, state: State = None, position: Turns | None = None) -> tuple[Tensor, State]:
        """Its first half alone."""
        y, state = self.mix(self.mix_around.enter(x, see.lengths), see, state, position)
        return self.mix_around.leave(x, y, see.lengths), state

    def fed(self, x: Tensor, see: See) -> Tensor:
        """Its last half alone."""
        return self.feed_around.leave(x, self.feed(self.feed_around.enter(x, see.lengths)), see.lengths)


def through(
    stack: Any,
    x: Tensor,
    see: See,
    position: Turns,
    states: Sequence[State] | None = None,
    memories: Sequence[tuple[Memory, See]] | None = None,
) -> tuple[list[Tensor], Tensor, tuple[State, ...]]:
    """x [R, T, dim] through all `blocks` of a stack with its `ways` and its last `norm` -> what the entrance and the
    blocks said, the last of it normed, and the states after."""
    blocks, said, after = stack.blocks, [x], []
    if isinstance(position, Position):
        position = position.over(x, getattr(states[0], "used", 0) if states else 0)
    given = list(zip(blocks, states or [None] * len(blocks), memories or [None] * len(blocks), strict=True))
    if not _joined(blocks, x):
        for block, state, memory in given:
            x, state = block(stack.ways(said), see, state, position, memory)
            said.append(x)
            after.append(state)
        return said, stack.norm(stack.ways(said), see.lengths), tuple(after)
    norms = [*(block.mix_around.norm for block in blocks), stack.norm]
    entered = norms[0](x, see.lengths)
    for (block, state, memory), norm in zip(given, norms[1:], strict=True):
        x, y, state = block.within(x, entered, see, state, position, memory)
        x, entered = block.feed_around.onward(x, y, norm, see.lengths)
        said.append(x)
        after.append(state)
    return said, entered, tuple(after)


def _joined(blocks: Any, x: Tensor) -> bool:
    """Whether the end of a block and the norm at the beginning of the next are one kernel. Not where blocks have hooks,
    by which FSDP joins what it has cut up: the next block's norm is not there yet."""
    hooked = any(block._forward_pre_hooks or block._forward_hooks for block in blocks) if supported(x) else True
    return not hooked and all(block.feed_around.before and block.feed_around.adds for block in blocks)
