"""One step of a Transformer's block with as few operations as it takes: the twin of `Block.forward` for decoding, where
no gradient is wanted and nobody watches. On few rows an operation costs more than its arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.parts.attention import Memory, MultiHead
from seqloom.parts.block import Around, Block, Relu
from seqloom.parts.mixer import CrossAttention, SelfAttention
from seqloom.parts.norm import LayerNorm
from seqloom.parts.position import Position, Turns
from seqloom.parts.product import ready
from seqloom.parts.score import Scaled
from seqloom.parts.state import Cache
from seqloom.parts.stripes import several


class Lean:
    """The blocks of a decoder with their tensors at hand. A step asks modules for nothing."""

    def __init__(self, blocks: Sequence[Block], rows: int) -> None:
        self.blocks = [LeanBlock(block, rows) for block in blocks]
        self.probed = [part for block in blocks for part in (block.mix, block.cross)]

    @classmethod
    def of(cls, blocks: Sequence[Block], rows: int = 1) -> Lean | None:
        """For steps of about `rows` rows. None where the plain path has to run: gradients, dropout, a score that is no
        product, heads that are not as usual, another norm or way around, or hooks on the calls of modules, by which
        FSDP joins what it has cut up."""
        training = torch.is_grad_enabled() or any(block.training for block in blocks)
        parts = (part for block in blocks for part in block.modules())
        hooked = any(part._forward_pre_hooks or part._forward_hooks for part in parts)
        return cls(blocks, rows) if usual(blocks) and not training and not hooked else None

    @property
    def watched(self) -> bool:
        return any(part.probe is not None for part in self.probed)


class LeanBlock:
    def __init__(self, block: Block, rows: int) -> None:
        self.heads = block.mix.heads
        self.norms = [_Norm(around) for around in (block.mix_around, block.cross_around, block.feed_around)]
        self.project, self.mixed = ready(block.mix.project, rows), ready(block.mix.out, rows)
        self.query, self.crossed = ready(_there(block.cross.query), rows), ready(block.cross.out, rows)
        self.up, self.down = ready(block.feed.up, rows), ready(block.feed.down, rows)
        self.mix_score, self.cross_score = _Dot(block.mix), _Dot(block.cross)
        self.activation = None if isinstance(block.feed.activation, Relu) else block.feed.activation

    def __call__(
        self,
        x: Tensor,
        cache: Cache | Alike,
        turns: Turns | None,
        seen: Tensor | None,
        memory: Memory,
        real: Tensor | None,
    ) -> Tensor:
        """[R, dim], the hypotheses of one step; those of a sentence, W of them, follow one another. `seen` and `real`
        are added to the scores, [B, 1, W or 1, S]: whom each descends from, and where the source has tokens; None:
        everything is visible."""
        rows, dim = x.shape
        b, heads, each = memory[0].size(0), self.heads, dim // self.heads
        w = rows // b
        mix, cross, feed = self.norms
        q, k, v = self.project(mix.enter(x)).view(b, w, 3, heads, each).permute(2, 0, 3, 1, 4).unbind(0)
        if turns is not None:
            q, k = turns.turn(q, k)
        y = self.mix_score(q, *cache.append(self.mix_score.keys(k), v), seen)
        x = mix.leave(self.mixed.onto(y.transpose(1, 2).reshape(rows, dim), x))
        q = self.query(cross.enter(x)).view(b, w, heads, each).transpose(1, 2)
        y = self.cross_score(q, *memory, real)
        x = cross.leave(self.crossed.onto(y.transpose(1, 2).reshape(rows, dim), x))
        y = feed.enter(x)
        y = self.up.relu(y) if self.activation is None else self.activation(self.up(y))
        return feed.leave(self.down.onto(y, x))


class Alike:
    """The cache of hypotheses that are one as yet: what it is given counts for each of `width`."""

    def __init__(self, cache: Cache, width: int) -> None:
        self.cache, self.width = cache, width

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.cache.append(*(part.expand(-1, -1, self.width, -1) for part in (k, v)))


class _Norm:
    """Around without dropout."""

    def __init__(self, around: Around) -> None:
        norm = around.norm
        self.norm = (norm.normalized_shape, norm.weight, norm.bias, norm.eps)
        self.before = around.before

    def enter(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, *self.norm) if self.before else x

    def leave(self, x: Tensor) -> Tensor:
        return x if self.before else torch.layer_norm(x, *self.norm)


class _Dot:
    """`attend` for a score that is a product."""

    def __init__(self, part: MultiHead) -> None:
        self.keys, self.as_dot = part.score.keys, part.score.as_dot
        self.scale = part.score.scale if isinstance(part.score, Scaled) else None

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        if self.scale is None:
            q, k = self.as_dot(q, k)
        if q.size(2) > 1 and q.size(0) > 1 and q.device.type == "cpu":
            return several(q, k, v, bias, self.scale or 1.0)
        return F.scaled_dot_product_attention(q, k, v, bias, scale=self.scale or 1.0)


def moving(position: Position) -> bool:
    """Whether it turns queries and keys."""
    return type(position).turn is not Position.turn


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


def _score(part: MultiHead) -> bool:
    """Whether its score is a product, and all else is as usual."""
    one = part.out.weight.new_zeros(1, 1, part.out.in_features // part.heads)
    return part.usual and part.score.as_dot(one, one) is not None


def _there(linear: nn.Linear | None) -> nn.Linear:
    assert linear is not None
    return linear
