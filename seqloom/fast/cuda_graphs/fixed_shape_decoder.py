"""A Transformer that writes by steps of fixed shapes: every tensor stays in its place from the first step to the last,
and where the next token goes is a number on the device. So the host has nothing to say between two steps, and a GPU can
replay one recorded step. The twin of `TransformerDecoder` for that; it runs anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.data.batches.collate import Padded
from seqloom.data.tokenizers.tokenizers import BOS
from seqloom.fast.decoding.transformer_step import usual
from seqloom.fast.residual_norm.gpu import stepped
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
from seqloom.parts.state import BeamCache
from seqloom.parts.transformer.block import Block
from seqloom.parts.transformer.feed_forward import FeedForward
from seqloom.parts.transformer.residual import Residual
from seqloom.parts.visibility import keep

Attend = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]
KNOWN = (NoPosition, Sinusoidal, Learned, Rotary, SinusoidalRotary)


class Shape(NamedTuple):
    sentences: int
    width: int  # hypotheses of each
    room: int  # steps
    source: int  # tokens of the longest

    @property
    def rows(self) -> int:
        return self.sentences * self.width


def fits(model: object, width: int, steps: int) -> tuple[Any, ...] | None:
    """Where its weights lie, if it is a model of the kind that is known here, nobody watches it and nothing listens to
    its calls; else None."""
    if type(model) is not Seq2Seq or type(model.decoder) is not TransformerDecoder or model.training:
        return None
    if torch.is_grad_enabled() or torch.is_autocast_enabled(model.output.weight.device.type):
        return None
    position = model.decoder.enter.position
    if type(position) not in KNOWN or width > BeamCache.max_width:
        return None
    if isinstance(position, Learned) and steps > position.longest:  # the plain path says so, if it comes to it
        return None
    blocks: list[Block] = list(model.decoder.blocks)  # pyright: ignore[reportAssignmentType]
    if not usual(blocks):
        return None
    scores = {type(part.score) for block in blocks for part in (block.mix, block.cross)}
    return _places(model) if scores <= {Dot, Scaled, General} else None


def _places(model: nn.Module) -> tuple[Any, ...] | None:
    """Where weights lie, if nobody watches. It is asked for every request, so all in one go."""
    parts, tensors = [model], []
    while parts:
        part = parts.pop()
        if part._forward_pre_hooks or part._forward_hooks or (isinstance(part, Probed) and part.probe is not None):
            return None
        tensors += part._parameters.values()
        tensors += part._buffers.values()
        parts += [below for below in part._modules.values() if below is not None]
    return (id(model), *[(tensor.data_ptr(), tensor.dtype) for tensor in tensors if tensor is not None])


class Fixed:
    """`at`, `tokens` and all that was read and written, for steps of one shape.

    Keys and values of hypotheses are kept as in `BeamCache`: side by side, `width` more at every step, never copied;
    `seen` says which of them a hypothesis descends from.
    """

    def __init__(self, model: Seq2Seq, shape: Shape, attend: Attend | None = None) -> None:
        self.model, self.shape, self.attend = model, shape, attend or fused
        self.decoder: TransformerDecoder = model.decoder  # pyright: ignore[reportAttributeAccessIssue]
        self.blocks: list[Block] = list(self.decoder.blocks)  # pyright: ignore[reportAttributeAccessIssue]
        self.size, weight = model.output.out_features, model.output.weight
        new, whole = weight.new_zeros, {"dtype": torch.long, "device": weight.device}
        sentences, width, room, source = shape
        self.heads = self.blocks[0].mix.heads
        each = self.decoder.dim // self.heads
        self.at, self.tokens = torch.zeros(1, **whole), torch.zeros(shape.rows, **whole)
        self.silence, self.bias = new(self.size), new(self.size)
        rows, lengths = torch.zeros(sentences, source, **whole), torch.ones(sentences, **whole)
        self.source = Padded(rows, lengths, (1,) * sentences)
        # Whether it reads rows of any lengths by the same operations.
        self.still = isinstance(model.encoder, TransformerEncoder) and all(
            isinstance(block.mix, SelfAttention) for block in model.encoder.blocks
        )
        self.real = new(sentences, 1, 1, source)
        self.memories = [new(2, sentences, self.heads, source, each) for _ in self.blocks]
        self.written = [new(2, sentences, self.heads, room, width, each) for _ in self.blocks]
        groups = sentences if width > 1 else 1  # one hypothesis sees all that was written, like those of all others
        own = new(width, width).fill_(float("-inf")).fill_diagonal_(0.0)
        self.own = own[None, :, None].expand(groups, -1, -1, -1)
        self.seen = new(groups, width, room, width)
        arounds = [a for block in self.blocks for a in (block.mix_around, block.cross_around, block.feed_around)]
        plain = all(around.pre_norm and around.adds for around in arounds)
        norms = [*(around.norm for around in arounds), self.decoder.norm]
        self.one_kernel = runtime.usable(weight) and plain and all(isinstance(norm, LayerNorm) for norm in norms)
        self.places = new(room, self.decoder.dim) if isinstance(self.position, Sinusoidal | Learned) else None
        self.turns = self._turns(new(room, each)) if isinstance(self.position, Rotary) else None

    @property
    def position(self) -> Position:
        return self.decoder.enter.position

    def ask(self, source: Padded, silence: Tensor) -> None:
        """What is to be read; `silence` [V] is added to the logits."""
        rows, width = source.tokens.shape
        self.source.tokens.zero_()[:rows, :width].copy_(source.tokens, non_blocking=True)
        self.source.lengths.fill_(1)[:rows].copy_(source.lengths, non_blocking=True)
        self.silence.copy_(silence, non_blocking=True)

    def begin(self, source: Padded) -> None:
        """Read: `self.source`, or what was asked for, where the encoder cannot take more than it has to."""
        # What was left from before is multiplied by zero, but infinity times zero is none.
        torch._foreach_zero_([*self.memories, *self.written])  # pyright: ignore[reportPrivateImportUsage]
        read = self.model.read(source)
        views = read.views or (read.states,) * len(self.blocks)
        for block, memory, states in zip(self.blocks, self.memories, views, strict=True):
            for kept, new in zip(memory, block.cross.project_memory(states), strict=True):
                kept[: new.size(0), :, : new.size(2)].copy_(new)
        hidden = ~keep(self.source.lengths, self.shape.source)[:, None, None]
        self.real.zero_().masked_fill_(hidden, float("-inf"))
        self.seen.fill_(float("-inf"))
        self.at.zero_()
        self.tokens.fill_(BOS)
        torch.add(self.model.output.bias, self.silence, out=self.bias)
        if self.places is not None:
            position = self.position
            known = position.longest if isinstance(position, Learned) else self.shape.room
            there = self.places[:known]
            there.copy_(position(torch.zeros_like(there)[None])[0])

    def step(self, span: int) -> Tensor:
        """Logits [R, V] after `tokens`, which stand at `at`, below `span`. Whoever chooses the next moves `at` on."""
        enter = self.decoder.enter
        x = enter.project(self.model.target(self.tokens))
        if self.places is None:
            x = x * enter.scale
        else:
            x = torch.add(self.places.index_select(0, self.at), x, alpha=enter.scale)
        x = enter.norm(x)
        self.seen.index_copy_(2, self.at, self.own)
        seen = self.seen[:, :, :span].flatten(2)[:, None]
        turn = None if self.turns is None else self.turns.index_select(0, self.at)
        entered, afters = self.blocks[0].mix_around.sublayer_input(x), [*self.blocks[1:], None]
        for block, after, written, memory in zip(self.blocks, afters, self.written, self.memories, strict=True):
            q = self._write(block, entered, written, turn)
            k, v = written[:, :, :, :span].flatten(3, 4)
            x, entered = self._onward(x, self._look(block.mix, q, k, v, seen), block.mix_around, block.cross_around)
            q = self._split(block.cross.query(entered))  # pyright: ignore[reportOptionalCall]
            y = self._look(block.cross, q, memory[0], memory[1], self.real)
            x, entered = self._onward(x, y, block.cross_around, block.feed_around)
            y = _feed(block.feed, entered)
            x, entered = self._onward(x, y, block.feed_around, None if after is None else after.mix_around)
        return F.linear(entered, self.model.output.weight, self.bias)

    def pick(self, rows: Tensor) -> None:
        """Row i goes on from hypothesis rows[i] of its own sentence."""
        self.seen.copy_(self.seen.flatten(0, 1).index_select(0, rows.flatten()).view_as(self.seen))

    def _onward(self, x: Tensor, y: Tensor, around: Residual, after: Residual | None) -> tuple[Tensor, Tensor]:
        """Leave one part and enter the next, or the norm after all of them."""
        if self.one_kernel:
            norm: LayerNorm = self.decoder.norm if after is None else after.norm  # pyright: ignore
            return stepped(x, y, norm.affine)
        x = around.add(x, y)
        return x, self.decoder.norm(x) if after is None else after.sublayer_input(x)

    def _write(self, block: Block, entered: Tensor, written: Tensor, turn: Tensor | None) -> Tensor:
        """Keys and values of a step to their place; gives its queries, [B, heads, width, head_dim]."""
        three = block.mix.project(entered).view(*self.shape[:2], 3, self.heads, -1)
        three = three.permute(2, 0, 3, 1, 4)
        q, new = three[0], three[1:]
        if turn is not None:
            q, k = rotate(three[:2], turn[:, 0::2], turn[:, 1::2])
            new = torch.stack([k, three[2]])
        if isinstance(block.mix.score, General):
            new = torch.stack([block.mix.score.keys(new[0]), new[1]])
        written.index_copy_(3, self.at, new.unsqueeze(3))
        return q

    def _look(self, part: MultiHeadAttention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scale = part.score.scale if isinstance(part.score, Scaled) else 1.0
        return part.out(self.attend(q, k, v, mask, scale).transpose(1, 2).reshape(self.shape.rows, -1))

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*self.shape[:2], self.heads, -1).transpose(1, 2)

    def _turns(self, pairs: Tensor) -> Tensor:
        """[room, head_dim]: cosines in the even columns, sines in the odd ones, as what (1, 0) is turned to."""
        pairs = pairs.to(torch.promote_types(pairs.dtype, torch.float32))
        pairs[:, 0::2] = 1.0
        return self.position.rotate(pairs[None, None], pairs[None, None])[0][0, 0]


def fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    """softmax(scale·qkᵀ + mask) v in one kernel: q [B, heads, T, D], k and v [B, heads, S, D], mask [B or 1, 1, …]."""
    return F.scaled_dot_product_attention(q, k, v, mask, scale=scale)


def products(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The same by two products."""
    b, heads, t, dim = q.shape
    q, k, v = (part.reshape(b * heads, -1, dim) for part in (q, k, v))
    bias = mask.expand(b, heads, t, -1).reshape(b * heads, t, -1)
    return (torch.baddbmm(bias, q, k.mT, alpha=scale).softmax(-1) @ v).view(b, heads, t, dim)


def _feed(feed: FeedForward, x: Tensor) -> Tensor:
    if isinstance(feed.activation, Relu):  # the product's own kernel does it
        up = torch._addmm_activation  # pyright: ignore[reportPrivateImportUsage]
        return feed.down(up(feed.up.bias, x, feed.up.weight.t()))
    return feed.down(feed.activation(feed.up(x)))
