"""One step of a Transformer's block with as few operations as it takes: the twin of `Block.forward` for decoding, where
no gradient is wanted and nobody watches. On few rows an operation costs more than its arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.fast.attention.short_cpu import several
from seqloom.fast.linear.cpu import ready
from seqloom.parts.attention.attend import Memory
from seqloom.parts.attention.multi_head import MultiHeadAttention
from seqloom.parts.attention.scores import Dot, Scaled
from seqloom.parts.layers.activations import Relu
from seqloom.parts.layers.norm import LayerNorm
from seqloom.parts.mixers.mixer_table import CrossAttention, SelfAttention
from seqloom.parts.positions.position import AttentionPosition, Position
from seqloom.parts.state import Cache
from seqloom.parts.transformer.block import Block
from seqloom.parts.transformer.residual import Residual

FEW = 4  # sentences, or hypotheses of each: see `foldable`


class Lean:
    """The blocks of a decoder with their tensors at hand. A step asks modules for nothing."""

    def __init__(self, blocks: Sequence[Block], rows: int, fold: bool) -> None:
        self.blocks = [LeanBlock(block, rows, fold) for block in blocks]
        self.probed = [part for block in blocks for part in (block.mix, block.cross)]

    @classmethod
    def of(cls, blocks: Sequence[Block], rows: int = 1, fold: bool = False) -> Lean | None:
        """For steps of about `rows` rows; `fold`: of memories that are `Folded`. None where the plain path has to run:
        gradients, dropout, a score that is no product, heads that are not as usual, another norm or way around, or
        hooks on the calls of modules, by which FSDP joins what it has cut up."""
        training = torch.is_grad_enabled() or any(block.training for block in blocks)
        parts = (part for block in blocks for part in block.modules())
        hooked = any(part._forward_pre_hooks or part._forward_hooks for part in parts)
        return cls(blocks, rows, fold) if usual(blocks) and not training and not hooked else None

    @property
    def watched(self) -> bool:
        return any(part.probe is not None for part in self.probed)


class Entered(NamedTuple):
    """What enters a block, with queries, keys and values of it, which are at hand."""

    x: Tensor  # [R, dim]
    three: Tensor  # [R, 3·dim]


class LeanBlock:
    def __init__(self, block: Block, rows: int, fold: bool) -> None:
        self.heads = block.mix.heads
        self.norms = [_Norm(around) for around in (block.mix_around, block.cross_around, block.feed_around)]
        self.project, self.mixed = ready(block.mix.project, rows), ready(block.mix.out, rows)
        if not fold:
            self.query, self.crossed = ready(_there(block.cross.query), rows), ready(block.cross.out, rows)
        self.up, self.down = ready(block.feed.up, rows), ready(block.feed.down, rows)
        self.mix_score, self.cross_score = _Dot(block.mix), _Dot(block.cross)
        self.activation = None if isinstance(block.feed.activation, Relu) else block.feed.activation

    def __call__(
        self,
        x: Tensor | Entered,
        cache: Cache | Alike,
        turns: AttentionPosition | None,
        seen: Tensor | None,
        memory: Memory | Folded,
        real: Tensor | None,
    ) -> Tensor:
        """[R, dim], the hypotheses of one step; those of a sentence, W of them, follow one another. `seen` and `real`
        are added to the scores, [B, 1, W or 1, S]: whom each descends from, and where the source has tokens; None:
        everything is visible."""
        x, three = x if isinstance(x, Entered) else (x, None)
        rows, dim = x.shape
        b, heads = memory[0].size(0), self.heads
        mix, cross, feed = self.norms
        three = self.project(mix.enter(x)) if three is None else three
        three = three.view(b, rows // b, 3, heads, dim // heads).permute(2, 0, 3, 1, 4)
        if turns is None and self.mix_score.keeps:
            q, (k, v) = three.select(0, 0), cache.append_stacked(three.narrow(0, 1, 2))
        else:
            q, k, v = three.unbind(0)
            if turns is not None:
                q, k = turns.rotate(q, k)
            k, v = cache.append(self.mix_score.keys(k), v)
        x = mix.leave(self.mixed.onto(self.mix_score(q, k, v, seen), x))
        if isinstance(memory, Folded):
            x = cross.leave(memory(cross.enter(x), x, heads))
        else:
            q = self.query(cross.enter(x)).view(b, -1, heads, dim // heads).transpose(1, 2)
            x = cross.leave(self.crossed.onto(self.cross_score(q, *memory, real), x))
        y = feed.enter(x)
        y = self.up.relu(y) if self.activation is None else self.activation(self.up(y))
        return feed.leave(self.down.onto(y, x))


class Alike:
    """The cache of hypotheses that are one as yet: what it is given counts for each of `width`."""

    def __init__(self, cache: Cache, width: int) -> None:
        self.cache, self.width = cache, width

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.cache.append(*(part.expand(-1, -1, self.width, -1) for part in (k, v)))

    def append_stacked(self, new: Tensor) -> tuple[Tensor, Tensor]:
        return self.cache.append_stacked(new.expand(-1, -1, -1, self.width, -1))


class _Norm:
    """Residual without dropout."""

    def __init__(self, around: Residual) -> None:
        norm = around.norm
        self.norm = (norm.normalized_shape, norm.weight, norm.bias, norm.eps)
        self.before = around.pre_norm

    def enter(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, *self.norm) if self.before else x

    def leave(self, x: Tensor) -> Tensor:
        return x if self.before else torch.layer_norm(x, *self.norm)


class _Dot:
    """`attend` for a score that is a product: q [B, heads, W, D], k and v [B, heads, S, D] -> [B·W, heads·D]."""

    def __init__(self, part: MultiHeadAttention) -> None:
        self.keeps = isinstance(part.score, Dot | Scaled)  # keys as they are
        self.keys, self.as_dot = part.score.keys, part.score.as_dot
        self.scale = part.score.scale if isinstance(part.score, Scaled) else None

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        b, heads, w, dim = q.shape
        if self.scale is None:
            q, k = self.as_dot(q, k)
        if w > 1 and b > 1 and q.device.type == "cpu":
            y = several(q, k, v, bias, self.scale or 1.0)
        else:
            y = F.scaled_dot_product_attention(q, k, v, bias, scale=self.scale or 1.0)
        return (y if w == 1 else y.transpose(1, 2)).reshape(b * w, heads * dim)


class Folded(NamedTuple):
    """What was read, without a matrix between it and a step: of q = W x + b, q·k = x·(Wᵀk) + b·k, and what is made of
    the mixed values is the mixture of what is made of each."""

    keys: Tensor  # [B, dim, heads·S]
    bias: Tensor  # [B, 1, heads·S]
    values: Tensor  # [B, heads·S, dim]

    @classmethod
    def of(cls, part: MultiHeadAttention, memory: Memory, real: Tensor | None) -> Folded:
        """`real` [B, 1, 1, S] is added to the scores."""
        (keys, values), query, out = memory, _there(part.query), part.out
        b, heads, s, each = keys.shape
        keys = keys * part.score.scale
        bias = keys.new_zeros(b, heads, s) if query.bias is None else (keys @ query.bias.view(heads, each, 1))[..., 0]
        bias = bias if real is None else bias + real[:, 0]
        keys, values = _by_head(keys, query.weight), _by_head(values, out.weight.mT)
        # A head's weights sum to 1: so do as many shares of the bias.
        values = values if out.bias is None else values.add_(out.bias / heads)
        return cls(keys.mT, bias.reshape(b, 1, -1), values)

    def __call__(self, x: Tensor, onto: Tensor, heads: int) -> Tensor:
        """`onto` and the attention of x, both [R, dim]."""
        b, dim, slots = self.keys.shape
        scores = torch.baddbmm(self.bias, x.view(b, -1, dim), self.keys)
        weights = scores.view(-1, slots // heads).softmax(-1).view(scores.shape)
        return torch.baddbmm(onto.view(b, -1, dim), weights, self.values).view(-1, dim)


def _by_head(x: Tensor, weight: Tensor) -> Tensor:
    """[B, heads, S, D] times [heads·D, dim], a head at a time -> [B, heads·S, dim]"""
    b, heads, s, each = x.shape
    made = torch.bmm(x.transpose(0, 1).flatten(1, 2), weight.view(heads, each, -1))
    return made.view(heads, b, s, -1).transpose(0, 1).reshape(b, heads * s, -1)


def foldable(blocks: Sequence[Block], states: Tensor, width: int) -> bool:
    """Whether to fold what was read, [B, S, dim], for `width` hypotheses of each sentence: where that is less work on a
    CPU. Folded, it is as many times as long as there are heads: of many sentences, each asked once a step, the time to
    read it is more than the time of the products that are spared."""
    if states.device.type != "cpu" or (width < FEW and states.size(0) > FEW):
        return False
    crosses = [block.cross for block in blocks if isinstance(block.cross, CrossAttention)]
    fit = (type(part.score) is Scaled and part.heads * states.size(1) <= part.out.in_features for part in crosses)
    return len(crosses) == len(blocks) and all(fit)


def moving(position: Position) -> bool:
    """Whether it turns queries and keys."""
    return type(position).rotate is not Position.rotate


def biasing(position: Position) -> bool:
    """Whether it is added to scores."""
    return type(position).bias is not Position.bias


def usual(blocks: Sequence[Block]) -> bool:
    """Whether blocks mix by attention with all its matrices and a score that is a product, and go around it and its
    LayerNorm by adding."""
    parts = (part for block in blocks for part in (block.mix, block.cross))
    arounds = (around for block in blocks for around in (block.mix_around, block.cross_around, block.feed_around))
    return all(isinstance(part, SelfAttention | CrossAttention) and _score(part) for part in parts) and all(
        around.adds and isinstance(around.norm, LayerNorm) for around in arounds
    )


def _score(part: MultiHeadAttention) -> bool:
    """Whether its score is a product, and all else is as usual."""
    if part.standard and type(part.score) is not Scaled:  # `scaled` is one
        one = part.out.weight.new_zeros(1, 1, part.out.in_features // part.heads)
        return part.score.as_dot(one, one) is not None
    return part.standard


def _there(linear: nn.Linear | None) -> nn.Linear:
    assert linear is not None
    return linear
