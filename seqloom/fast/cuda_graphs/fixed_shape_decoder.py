"""A Transformer decoder with steps of fixed shapes, as CUDA graphs need them: every tensor keeps its address from the
first step to the last, and the index of the step is a number on the device. Equals `TransformerDecoder`; it runs on any
device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.data.batches.collate import Padded
from seqloom.data.tokenizers.tokenizers import BOS
from seqloom.fast.decoding import transformer_step
from seqloom.fast.decoding.beam_cache import BeamCache
from seqloom.fast.residual_norm.gpu import residual_norm_no_grad
from seqloom.fast.triton_common import runtime
from seqloom.models.decoders.transformer import TransformerDecoder
from seqloom.models.encoders.transformer import TransformerEncoder
from seqloom.models.seq2seq import Seq2Seq
from seqloom.parts.attention.multi_head import MultiHeadAttention
from seqloom.parts.attention.scores import Dot, General, Scaled
from seqloom.parts.layers.activations import Relu
from seqloom.parts.layers.norm import LayerNorm
from seqloom.parts.mixers.mixer_table import SelfAttention
from seqloom.parts.positions.absolute import Learned, Sinusoidal
from seqloom.parts.positions.position import NoPosition, Position
from seqloom.parts.positions.rotary import Rotary, SinusoidalRotary, rotate
from seqloom.parts.probe import Probed
from seqloom.parts.transformer.block import Block
from seqloom.parts.transformer.feed_forward import FeedForward
from seqloom.parts.transformer.residual import Residual
from seqloom.parts.visibility import keep

AttentionFunction = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]
SUPPORTED_POSITIONS = (NoPosition, Sinusoidal, Learned, Rotary, SinusoidalRotary)


class Shape(NamedTuple):
    sentences: int
    width: int  # hypotheses of each
    max_steps: int
    source: int  # tokens of the longest source

    @property
    def rows(self) -> int:
        return self.sentences * self.width


def weights_key(model: object, width: int, steps: int) -> tuple[Any, ...] | None:
    """The addresses of the weights, if the model is supported and has neither probes nor hooks; else None."""
    if type(model) is not Seq2Seq or type(model.decoder) is not TransformerDecoder or model.training:
        return None
    if torch.is_grad_enabled() or torch.is_autocast_enabled(model.output.weight.device.type):
        return None
    position = model.decoder.enter.position
    if type(position) not in SUPPORTED_POSITIONS or width > BeamCache.max_width:
        return None
    if isinstance(position, Learned) and steps > position.longest:  # the plain path raises the error
        return None
    blocks: list[Block] = list(model.decoder.blocks)  # pyright: ignore[reportAssignmentType]
    if not transformer_step.supported(blocks):
        return None
    scores = {type(part.score) for block in blocks for part in (block.mix, block.cross)}
    return _weight_addresses(model) if scores <= {Dot, Scaled, General} else None


def _weight_addresses(model: nn.Module) -> tuple[Any, ...] | None:
    """Addresses of all weights, None with probes or hooks. Called for every request, hence one loop for both."""
    parts, tensors = [model], []
    while parts:
        part = parts.pop()
        if part._forward_pre_hooks or part._forward_hooks or (isinstance(part, Probed) and part.probe is not None):
            return None
        tensors += part._parameters.values()
        tensors += part._buffers.values()
        parts += [below for below in part._modules.values() if below is not None]
    return (id(model), *[(tensor.data_ptr(), tensor.dtype) for tensor in tensors if tensor is not None])


class FixedShapeDecoder:
    """`step_index`, `tokens`, keys and values of source and hypotheses, for steps of one shape.

    Keys and values of hypotheses are stored as in `BeamCache`: `width` more at every step, never copied;
    `ancestor_bias` hides those that a hypothesis does not descend from.
    """

    def __init__(self, model: Seq2Seq, shape: Shape, attend: AttentionFunction | None = None) -> None:
        self._model = ref(model)  # graphs are kept as long as their model, so they do not keep it
        self.shape, self.attend = shape, attend or fused_attention
        self.decoder: TransformerDecoder = model.decoder  # pyright: ignore[reportAttributeAccessIssue]
        self.blocks: list[Block] = list(self.decoder.blocks)  # pyright: ignore[reportAttributeAccessIssue]
        self.size, weight = model.output.out_features, model.output.weight
        zeros, integers = weight.new_zeros, {"dtype": torch.long, "device": weight.device}
        sentences, width, max_steps, source = shape
        self.heads = self.blocks[0].mix.heads
        head_dim = self.decoder.dim // self.heads
        self.step_index, self.tokens = torch.zeros(1, **integers), torch.zeros(shape.rows, **integers)
        self.logit_bias, self.bias = zeros(self.size), zeros(self.size)
        rows, lengths = torch.zeros(sentences, source, **integers), torch.ones(sentences, **integers)
        self.source = Padded(rows, lengths, (1,) * sentences)
        # Whether the encoder runs the same operations for any lengths.
        self.encoder_is_fixed = isinstance(model.encoder, TransformerEncoder) and all(
            isinstance(block.mix, SelfAttention) for block in model.encoder.blocks
        )
        self.source_bias = zeros(sentences, 1, 1, source)
        self.cross_kv = [zeros(2, sentences, self.heads, source, head_dim) for _ in self.blocks]
        self.self_kv = [zeros(2, sentences, self.heads, max_steps, width, head_dim) for _ in self.blocks]
        groups = sentences if width > 1 else 1  # one hypothesis a sentence: nothing is hidden, in any sentence
        own_bias = zeros(width, width).fill_(float("-inf")).fill_diagonal_(0.0)
        self.own_bias = own_bias[None, :, None].expand(groups, -1, -1, -1)
        self.ancestor_bias = zeros(groups, width, max_steps, width)
        arounds = [a for block in self.blocks for a in (block.mix_around, block.cross_around, block.feed_around)]
        plain = all(around.pre_norm and around.adds for around in arounds)
        norms = [*(around.norm for around in arounds), self.decoder.norm]
        self.fused_norm = runtime.usable(weight) and plain and all(isinstance(norm, LayerNorm) for norm in norms)
        self.position_table = (
            zeros(max_steps, self.decoder.dim) if isinstance(self.position, Sinusoidal | Learned) else None
        )
        self.rotary_table = (
            self._rotary_table(zeros(max_steps, head_dim)) if isinstance(self.position, Rotary) else None
        )

    @property
    def model(self) -> Seq2Seq:
        model = self._model()
        assert model is not None
        return model

    @property
    def position(self) -> Position:
        return self.decoder.enter.position

    def set_source(self, source: Padded, logit_bias: Tensor) -> None:
        """Copies the source; `logit_bias` [V] is added to the logits."""
        rows, width = source.tokens.shape
        self.source.tokens.zero_()[:rows, :width].copy_(source.tokens, non_blocking=True)
        self.source.lengths.fill_(1)[:rows].copy_(source.lengths, non_blocking=True)
        self.logit_bias.copy_(logit_bias, non_blocking=True)

    def begin(self, source: Padded) -> None:
        """Encodes `source`: `self.source`, or the request's own where the encoder has no fixed shapes."""
        # Values of the last request have weight zero, but infinity times zero is NaN.
        torch._foreach_zero_([*self.cross_kv, *self.self_kv])  # pyright: ignore[reportPrivateImportUsage]
        read = self.model.read(source)
        views = read.views or (read.states,) * len(self.blocks)
        for block, memory, states in zip(self.blocks, self.cross_kv, views, strict=True):
            for target, new in zip(memory, block.cross.project_memory(states), strict=True):
                target[: new.size(0), :, : new.size(2)].copy_(new)
        padding = ~keep(self.source.lengths, self.shape.source)[:, None, None]
        self.source_bias.zero_().masked_fill_(padding, float("-inf"))
        self.ancestor_bias.fill_(float("-inf"))
        self.step_index.zero_()
        self.tokens.fill_(BOS)
        torch.add(self.model.output.bias, self.logit_bias, out=self.bias)
        if self.position_table is not None:
            position = self.position
            known = position.longest if isinstance(position, Learned) else self.shape.max_steps
            used_rows = self.position_table[:known]
            used_rows.copy_(position(torch.zeros_like(used_rows)[None])[0])

    def step(self, visible_steps: int) -> Tensor:
        """Logits [R, V] after `tokens` of step `step_index` < `visible_steps`. The search increments `step_index`."""
        enter = self.decoder.enter
        x = enter.project(self.model.target(self.tokens))
        if self.position_table is None:
            x = x * enter.scale
        else:
            x = torch.add(self.position_table.index_select(0, self.step_index), x, alpha=enter.scale)
        x = enter.norm(x)
        self.ancestor_bias.index_copy_(2, self.step_index, self.own_bias)
        ancestor_bias = self.ancestor_bias[:, :, :visible_steps].flatten(2)[:, None]
        rotation = None if self.rotary_table is None else self.rotary_table.index_select(0, self.step_index)
        normed, next_blocks = self.blocks[0].mix_around.sublayer_input(x), [*self.blocks[1:], None]
        for block, next_block, self_kv, memory in zip(
            self.blocks, next_blocks, self.self_kv, self.cross_kv, strict=True
        ):
            q = self._write_kv(block, normed, self_kv, rotation)
            k, v = self_kv[:, :, :, :visible_steps].flatten(3, 4)
            x, normed = self._residual_norm(
                x, self._attend(block.mix, q, k, v, ancestor_bias), block.mix_around, block.cross_around
            )
            q = block.cross.query(normed)  # pyright: ignore[reportOptionalCall]
            q = q.view(*self.shape[:2], self.heads, -1).transpose(1, 2)
            y = self._attend(block.cross, q, memory[0], memory[1], self.source_bias)
            x, normed = self._residual_norm(x, y, block.cross_around, block.feed_around)
            y = _feed_forward(block.feed, normed)
            x, normed = self._residual_norm(
                x, y, block.feed_around, None if next_block is None else next_block.mix_around
            )
        return F.linear(normed, self.model.output.weight, self.bias)

    def pick(self, rows: Tensor) -> None:
        """Row i continues hypothesis rows[i] of its sentence."""
        self.ancestor_bias.copy_(
            self.ancestor_bias.flatten(0, 1).index_select(0, rows.flatten()).view_as(self.ancestor_bias)
        )

    def _residual_norm(
        self, x: Tensor, y: Tensor, around: Residual, next_block: Residual | None
    ) -> tuple[Tensor, Tensor]:
        """Leaves one part and enters the next one, or the final norm."""
        if self.fused_norm:
            norm: LayerNorm = self.decoder.norm if next_block is None else next_block.norm  # pyright: ignore
            return residual_norm_no_grad(x, y, norm.affine)
        x = around.add(x, y)
        return x, self.decoder.norm(x) if next_block is None else next_block.sublayer_input(x)

    def _write_kv(self, block: Block, normed: Tensor, self_kv: Tensor, rotation: Tensor | None) -> Tensor:
        """Stores the keys and values of a step; returns its queries, [B, heads, width, head_dim]."""
        qkv = block.mix.project(normed).view(*self.shape[:2], 3, self.heads, -1)
        qkv = qkv.permute(2, 0, 3, 1, 4)
        q, kv = qkv[0], qkv[1:]
        if rotation is not None:
            q, k = rotate(qkv[:2], rotation[:, 0::2], rotation[:, 1::2])
            kv = torch.stack([k, qkv[2]])
        if isinstance(block.mix.score, General):
            kv = torch.stack([block.mix.score.keys(kv[0]), kv[1]])
        self_kv.index_copy_(3, self.step_index, kv.unsqueeze(3))
        return q

    def _attend(self, part: MultiHeadAttention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scale = part.score.scale if isinstance(part.score, Scaled) else 1.0
        return part.out(self.attend(q, k, v, mask, scale).transpose(1, 2).reshape(self.shape.rows, -1))

    def _rotary_table(self, pairs: Tensor) -> Tensor:
        """[max_steps, head_dim]: cosines in even columns, sines in odd ones, by rotating (1, 0)."""
        pairs = pairs.to(torch.promote_types(pairs.dtype, torch.float32))
        pairs[:, 0::2] = 1.0
        return self.position.rotate(pairs[None, None], pairs[None, None])[0][0, 0]


def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    """softmax(scale·qkᵀ + mask) v in one kernel: q [B, heads, T, D], k and v [B, heads, S, D], mask [B or 1, 1, …]."""
    return F.scaled_dot_product_attention(q, k, v, mask, scale=scale)


def matmul_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The same by two matmuls."""
    b, heads, t, dim = q.shape
    q, k, v = (part.reshape(b * heads, -1, dim) for part in (q, k, v))
    bias = mask.expand(b, heads, t, -1).reshape(b * heads, t, -1)
    return (torch.baddbmm(bias, q, k.mT, alpha=scale).softmax(-1) @ v).view(b, heads, t, dim)


def _feed_forward(feed: FeedForward, x: Tensor) -> Tensor:
    if isinstance(feed.activation, Relu):  # fused into the matmul's kernel
        up = torch._addmm_activation  # pyright: ignore[reportPrivateImportUsage]
        return feed.down(up(feed.up.bias, x, feed.up.weight.t()))
    return feed.down(feed.activation(feed.up(x)))
