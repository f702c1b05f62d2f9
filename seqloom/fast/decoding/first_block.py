"""The input of a decoder's first block and its q, k, v, by position and token. They depend on nothing else, so with a
small vocabulary a table lookup is faster than computing them at every step."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from seqloom.fast.decoding.transformer_step import BlockStep
from seqloom.parts.layers.linear import linear

MAX_TOKENS = 128  # a larger table takes long to compute, and is as slow to read as the weights
CHUNK = 16  # positions computed at a time
MAX_POSITIONS = 64  # in the table

InputLayer = Callable[[Tensor, int], Tensor]  # embeddings [..., T, input_dim], first position -> [..., T, dim]
Bits = list[Tensor]


class FirstBlockTable:
    """Tokens [R] and their position -> x [R, dim] and its q, k, v [R, 3·dim], None beyond the table."""

    def __init__(self, table: Tensor, enter: InputLayer, block: BlockStep, weight: Tensor, bias: Tensor | None) -> None:
        self.table, self.enter, self.norm = table.detach(), enter, block.norms[0]
        self.weight, self.bias = weight.detach(), None if bias is None else bias.detach()
        self.chunks: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, tokens: Tensor, position: int) -> tuple[Tensor, Tensor | None]:
        if position >= MAX_POSITIONS:
            return self.enter(self.table.index_select(0, tokens)[:, None], position)[:, 0], None
        chunk, offset = divmod(position, CHUNK)
        if chunk not in self.chunks:
            x = self.enter(self.table[:, None].expand(-1, CHUNK, -1), chunk * CHUNK).transpose(0, 1).contiguous()
            self.chunks[chunk] = x, linear(self.norm.enter(x), self.weight, self.bias)
        x, qkv = self.chunks[chunk]
        return x[offset].index_select(0, tokens), qkv[offset].index_select(0, tokens)


# Cached across requests beside copies of the weights that a table was computed from, as in `linear.cpu._pack`.
_tables: WeakKeyDictionary[nn.Module, tuple[Bits, FirstBlockTable]] = WeakKeyDictionary()


def first_block_table(
    owner: nn.Module, table: Tensor, enter: nn.Module, block: BlockStep, project: nn.Linear
) -> FirstBlockTable:
    """For the decoder `owner` with embeddings `table` [V, input_dim]."""
    tensors = (table, *enter.parameters(), *block.norms[0].norm[1:3], project.weight, project.bias)
    bits = [tensor.detach().view(torch.int32) for tensor in tensors if tensor is not None]
    cached = _tables.get(owner)
    if cached is None or not all(map(_same, cached[0], bits)) or cached[1].enter is not enter:
        made = FirstBlockTable(table, enter, block, project.weight, project.bias)
        cached = _tables[owner] = [part.clone() for part in bits], made
    return cached[1]


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a, b)
