"""Random draws that depend only on what they are used for, not on the batch, its other rows or the device.

A generator that advances with every call gives a row other numbers if another row comes before it. Here a number is a
hash of where it is used: the seed, the row of the user's input, which of its samples, the step and the
token (a counter-based generator: Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3").
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import torch
from torch import Tensor

# Of splitmix64 (Steele et al. 2014), for a row and a step, and of murmur3 (Appleby 2011), for a token.
STEP, MIX = 0x9E3779B97F4A7C15, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
TOKEN, MIX32 = 0x9E3779B1, (0x85EBCA6B, 0xC2B2AE35)


class Draws:
    """`streams`: for each row that is decoded its place in the user's input, and which sample of it."""

    def __init__(self, seed: int, streams: Sequence[tuple[int, int]], device: torch.device | str) -> None:
        self.keys = torch.tensor([_key(seed, *one) for one in streams], dtype=torch.int64).to(device)  # [R]
        self.tokens = torch.empty(0, dtype=torch.int32, device=device)  # [V] a constant for each token

    def __call__(self, probabilities: Tensor, step: int | Tensor, rows: Tensor | None = None) -> Tensor:
        """[R, V] float -> [R]: a token of each row by its probability. `step`: how many it has drawn, of each row if
        they differ; `rows`: which of all rows these are.

        The least of Eᵢ / pᵢ, with independent E from the exponential distribution, is that of token i with probability
        pᵢ / Σ p. The last bits of p differ between batches: they matter only where two tokens are that close.
        """
        keys = self.keys if rows is None else self.keys.index_select(0, rows)
        return probabilities.div(self._exponential(keys, step, probabilities.size(-1))).argmax(-1)

    def _exponential(self, keys: Tensor, step: int | Tensor, count: int) -> Tensor:
        """[R] keys -> [R, V]"""
        if len(self.tokens) != count:
            self.tokens = torch.arange(count, dtype=torch.int32, device=keys.device) * _signed(TOKEN, 32)
        mixed = keys + (_signed(step * STEP, 64) if isinstance(step, int) else step * _signed(STEP, 64))
        mixed = (mixed ^ _right(mixed, 30, 64)) * _signed(MIX[0], 64)
        mixed = (mixed ^ _right(mixed, 27, 64)) * _signed(MIX[1], 64)
        mixed = mixed ^ _right(mixed, 31, 64)
        first, second = mixed.to(torch.int32)[:, None], _right(mixed, 32, 64).to(torch.int32)[:, None]
        bits = first + self.tokens
        bits.bitwise_xor_(_right(bits, 16, 32)).mul_(_signed(MIX32[0], 32)).bitwise_xor_(second)
        bits.bitwise_xor_(_right(bits, 13, 32)).mul_(_signed(MIX32[1], 32))
        bits.bitwise_xor_(_right(bits, 16, 32)).bitwise_and_(0x7FFFFFFF)
        uniform = bits.float().mul_(2.0**-31).clamp_(2.0**-32, 1 - 2.0**-24)
        return uniform.neg_().log1p_().neg_()


def _key(seed: int, row: int, sample: int) -> int:
    digest = blake2b(f"{seed} {row} {sample}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _right(bits: Tensor, by: int, size: int) -> Tensor:
    """A logical shift to the right: torch would shift in the sign."""
    return (bits >> by).bitwise_and_((1 << (size - by)) - 1)


def _signed(number: int, size: int) -> int:
    """The last bits of a number, as a signed one has them."""
    number &= (1 << size) - 1
    return number - (1 << size) if number >> (size - 1) else number
