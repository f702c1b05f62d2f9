"""What the first block of a decoder takes in, by place and token. All that it does before it looks at others depends on
these two alone, so of a small vocabulary it is looked up in a table sooner than it is made anew at every step."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from seqloom.fast.decoding.transformer_step import LeanBlock
from seqloom.fast.linear.cpu import fits, product

TOKENS = 128  # at most: a larger table takes long to make, and is read as slowly as the matrix
PLACES = 16  # that are made at a time
REACH = 64  # places that are kept at most

Enter = Callable[[Tensor, int], Tensor]  # embeddings [..., T, input_dim] and the first one's place -> [..., T, dim]
Bits = list[Tensor]


class Entrance:
    """Tokens [R] and their place -> x [R, dim], and what the first block projects of it, [R, 3·dim]."""

    def __init__(self, table: Tensor, enter: Enter, block: LeanBlock, weight: Tensor, bias: Tensor | None) -> None:
        self.table, self.enter, self.norm = table.detach(), enter, block.norms[0]
        self.weight, self.bias = weight.detach(), None if bias is None else bias.detach()
        self.made: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, tokens: Tensor, place: int) -> tuple[Tensor, Tensor | None]:
        if place >= REACH:  # few get that far
            return self.enter(self.table.index_select(0, tokens)[:, None], place)[:, 0], None
        part, at = divmod(place, PLACES)
        if part not in self.made:
            self.made[part] = self._made(part * PLACES)
        x, three = self.made[part]
        return x[at].index_select(0, tokens), three[at].index_select(0, tokens)

    def _made(self, place: int) -> tuple[Tensor, Tensor]:
        x = self.enter(self.table[:, None].expand(-1, PLACES, -1), place).transpose(0, 1).contiguous()
        return x, product(self.norm.enter(x), self.weight, self.bias)


# Kept from one request to the next beside copies of what it was made of: see `product._packed`.
_kept: WeakKeyDictionary[nn.Module, tuple[Bits, Entrance]] = WeakKeyDictionary()


def entrance(
    owner: nn.Module, table: Tensor, enter: nn.Module, block: LeanBlock, project: nn.Linear
) -> Entrance | None:
    """For the decoder `owner`, whose tokens have the embeddings `table` [V, input_dim]. None where it would not pay, or
    where torch's compilers and others have to see what is done."""
    if table.size(0) > TOKENS or not fits(table, project.weight):
        return None
    given = (table, *enter.parameters(), *block.norms[0].norm[1:3], project.weight, project.bias)
    bits = [part.detach().view(torch.int32) for part in given if part is not None]
    found = _kept.get(owner)
    if found is None or not all(map(_same, found[0], bits)) or found[1].enter is not enter:
        made = Entrance(table, enter, block, project.weight, project.bias)
        found = _kept[owner] = [part.clone() for part in bits], made
    return found[1]


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)
