"""One decoding step of Transformer blocks with few operations: on few rows, launching an operation costs more than its
arithmetic. Equals `Block.forward` without gradients and probes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.fast.attention.multi_head_gpu import standard
from seqloom.fast.attention.short_cpu import biased_attention_no_grad
from seqloom.fast.decoding.beam_cache import StackedCache
from seqloom.fast.linear.cpu import prepare_linear
from seqloom.parts.attention.attend import Memory
from seqloom.parts.attention.multi_head import MultiHeadAttention
from seqloom.parts.attention.scores import Dot, Scaled
from seqloom.parts.layers.activations import Relu
from seqloom.parts.layers.norm import LayerNorm
from seqloom.parts.mixers.mixer_table import CrossAttention, SelfAttention
from seqloom.parts.positions.position import AttentionPosition, Position
from seqloom.parts.transformer.block import Block
from seqloom.parts.transformer.residual import Residual

FEW = 4  # sentences, or hypotheses of each: see `folding_supported`


class TransformerStep:
    """The blocks of a decoder with prepared weights. A step calls no module."""

    def __init__(self, blocks: Sequence[Block], rows: int, fold: bool) -> None:
        self.blocks = [BlockStep(block, rows, fold) for block in blocks]
        self.attentions = [part for block in blocks for part in (block.mix, block.cross)]

    @classmethod
    def of(cls, blocks: Sequence[Block], rows: int = 1, fold: bool = False) -> TransformerStep | None:
        """For steps of about `rows` rows; `fold`: with a `FoldedMemory`. None where modules have to run: gradients,
        dropout, blocks that are not `supported`."""
        training = torch.is_grad_enabled() or any(block.training for block in blocks)
        return cls(blocks, rows, fold) if supported(blocks) and not training else None

    @property
    def has_probes(self) -> bool:
        return any(part.probe is not None for part in self.attentions)


class ProjectedInput(NamedTuple):
    """The input of a block with its queries, keys and values already computed."""

    x: Tensor  # [R, dim]
    qkv: Tensor  # [R, 3·dim]


class BlockStep:
    def __init__(self, block: Block, rows: int, fold: bool) -> None:
        self.heads = block.mix.heads
        self.norms = [_Norm(around) for around in (block.mix_around, block.cross_around, block.feed_around)]
        self.project, self.mix_out = prepare_linear(block.mix.project, rows), prepare_linear(block.mix.out, rows)
        if not fold:
            self.query = prepare_linear(_not_none(block.cross.query), rows)
            self.cross_out = prepare_linear(block.cross.out, rows)
        self.up, self.down = prepare_linear(block.feed.up, rows), prepare_linear(block.feed.down, rows)
        self.mix_score, self.cross_score = _Dot(block.mix), _Dot(block.cross)
        self.activation = None if isinstance(block.feed.activation, Relu) else block.feed.activation

    def __call__(
        self,
        x: Tensor | ProjectedInput,
        cache: StackedCache | BroadcastCache,
        position: AttentionPosition | None,
        self_bias: Tensor | None,
        memory: Memory | FoldedMemory,
        source_bias: Tensor | None,
    ) -> Tensor:
        """[R, dim] -> the same: the hypotheses of one step, W of each sentence next to each other. `self_bias` and
        `source_bias` [B, 1, W or 1, S] are added to the scores and hide the steps of other hypotheses and source
        padding; None: everything is visible."""
        x, qkv = x if isinstance(x, ProjectedInput) else (x, None)
        rows, dim = x.shape
        b, heads = memory[0].size(0), self.heads
        mix, cross, feed = self.norms
        qkv = self.project(mix.enter(x)) if qkv is None else qkv
        qkv = qkv.view(b, rows // b, 3, heads, dim // heads).permute(2, 0, 3, 1, 4)
        if position is None and self.mix_score.plain_keys:
            q, (k, v) = qkv.select(0, 0), cache.append_stacked(qkv.narrow(0, 1, 2))
        else:
            q, k, v = qkv.unbind(0)
            if position is not None:
                q, k = position.rotate(q, k)
            k, v = cache.append(self.mix_score.keys(k), v)
        x = mix.leave(self.mix_out.with_residual(self.mix_score(q, k, v, self_bias), x))
        if isinstance(memory, FoldedMemory):
            x = cross.leave(memory(cross.enter(x), x, heads))
        else:
            q = self.query(cross.enter(x)).view(b, -1, heads, dim // heads).transpose(1, 2)
            x = cross.leave(self.cross_out.with_residual(self.cross_score(q, *memory, source_bias), x))
        y = feed.enter(x)
        y = self.up.relu(y) if self.activation is None else self.activation(self.up(y))
        return feed.leave(self.down.with_residual(y, x))


class BroadcastCache:
    """The cache of `width` hypotheses that are still equal: keys and values are computed for one of them."""

    def __init__(self, cache: StackedCache, width: int) -> None:
        self.cache, self.width = cache, width

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.cache.append(*(part.expand(-1, -1, self.width, -1) for part in (k, v)))

    def append_stacked(self, new: Tensor) -> tuple[Tensor, Tensor]:
        return self.cache.append_stacked(new.expand(-1, -1, -1, self.width, -1))


class _Norm:
    """`Residual` without dropout."""

    def __init__(self, around: Residual) -> None:
        norm = around.norm
        self.norm = (norm.normalized_shape, norm.weight, norm.bias, norm.eps)
        self.before = around.pre_norm

    def enter(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, *self.norm) if self.before else x

    def leave(self, x: Tensor) -> Tensor:
        return x if self.before else torch.layer_norm(x, *self.norm)


class _Dot:
    """`attend` for a score that is a dot product: q [B, heads, W, D], k and v [B, heads, S, D] -> [B·W, heads·D]."""

    def __init__(self, part: MultiHeadAttention) -> None:
        self.plain_keys = isinstance(part.score, Dot | Scaled)  # `score.keys` is the identity
        self.keys, self.as_dot = part.score.keys, part.score.as_dot
        self.scale = part.score.scale if isinstance(part.score, Scaled) else None

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        b, heads, w, dim = q.shape
        if self.scale is None:
            q, k = self.as_dot(q, k)
        if w > 1 and b > 1 and q.device.type == "cpu":
            y = biased_attention_no_grad(q, k, v, bias, self.scale or 1.0)
        else:
            y = F.scaled_dot_product_attention(q, k, v, bias, scale=self.scale or 1.0)
        return (y if w == 1 else y.transpose(1, 2)).reshape(b * w, heads * dim)


class FoldedMemory(NamedTuple):
    """The source with the cross-attention's matrices folded in: for q = W x + b, q·k = x·(Wᵀk) + b·k, and the output
    matrix is applied to the values before they are mixed."""

    keys: Tensor  # [B, dim, heads·S]
    bias: Tensor  # [B, 1, heads·S]
    values: Tensor  # [B, heads·S, dim]

    @classmethod
    def of(cls, part: MultiHeadAttention, memory: Memory, source_bias: Tensor | None) -> FoldedMemory:
        """`source_bias` [B, 1, 1, S] is added to the scores."""
        (keys, values), query, out = memory, _not_none(part.query), part.out
        b, heads, s, head_dim = keys.shape
        keys = keys * part.score.scale
        bias = (
            keys.new_zeros(b, heads, s) if query.bias is None else (keys @ query.bias.view(heads, head_dim, 1))[..., 0]
        )
        bias = bias if source_bias is None else bias + source_bias[:, 0]
        keys, values = _matmul_by_head(keys, query.weight), _matmul_by_head(values, out.weight.mT)
        # The weights of each head sum to 1, so each head gets an equal share of the bias.
        values = values if out.bias is None else values.add_(out.bias / heads)
        return cls(keys.mT, bias.reshape(b, 1, -1), values)

    def __call__(self, x: Tensor, residual: Tensor, heads: int) -> Tensor:
        """residual + attention of x, both [R, dim]."""
        b, dim, slots = self.keys.shape
        scores = torch.baddbmm(self.bias, x.view(b, -1, dim), self.keys)
        weights = scores.view(-1, slots // heads).softmax(-1).view(scores.shape)
        return torch.baddbmm(residual.view(b, -1, dim), weights, self.values).view(-1, dim)


def _matmul_by_head(x: Tensor, weight: Tensor) -> Tensor:
    """[B, heads, S, D] times [heads·D, dim], head by head -> [B, heads·S, dim]."""
    b, heads, s, head_dim = x.shape
    product = torch.bmm(x.transpose(0, 1).flatten(1, 2), weight.view(heads, head_dim, -1))
    return product.view(heads, b, s, -1).transpose(0, 1).reshape(b, heads * s, -1)


def folding_supported(blocks: Sequence[Block], states: Tensor, width: int) -> bool:
    """Whether folding the source [B, S, dim] for `width` hypotheses of each sentence is less work on a CPU. Folded keys
    are `heads` times as large: with many sentences of few hypotheses, reading them takes longer than the saved matmuls.
    """
    if states.device.type != "cpu" or (width < FEW and states.size(0) > FEW):
        return False
    cross_attentions = [block.cross for block in blocks if isinstance(block.cross, CrossAttention)]
    fitting = (
        type(part.score) is Scaled and part.heads * states.size(1) <= part.out.in_features for part in cross_attentions
    )
    return len(cross_attentions) == len(blocks) and all(fitting)


def rotates(position: Position) -> bool:
    """Whether it rotates queries and keys."""
    return type(position).rotate is not Position.rotate


def has_bias(position: Position) -> bool:
    """Whether it adds a bias to scores."""
    return type(position).bias is not Position.bias


def supported(blocks: Sequence[Block]) -> bool:
    """Self- and cross-attention with all projections and a dot-product score, additive residuals and LayerNorm."""
    parts = (part for block in blocks for part in (block.mix, block.cross))
    arounds = (around for block in blocks for around in (block.mix_around, block.cross_around, block.feed_around))
    return all(isinstance(part, SelfAttention | CrossAttention) and _dot_score(part) for part in parts) and all(
        around.adds and isinstance(around.norm, LayerNorm) for around in arounds
    )


def _dot_score(part: MultiHeadAttention) -> bool:
    """Whether all its projections are plain and its score is a dot product."""
    if standard(part) and type(part.score) is not Scaled:  # `Scaled` is one
        example = part.out.weight.new_zeros(1, 1, part.out.in_features // part.heads)
        return part.score.as_dot(example, example) is not None
    return standard(part)


def _not_none(linear: nn.Linear | None) -> nn.Linear:
    assert linear is not None
    return linear
