"""Linformer: attention over a few learned mixtures of all positions."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from seqloom.build import Choice
from seqloom.errors import SeqloomError
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.mixers.efficient_attention import EfficientAttention, at_least, dense_attention
from seqloom.parts.state import State
from seqloom.parts.visibility import Visibility, keep


class Linformer(EfficientAttention):
    """softmax(q·(E K)ᵀ / √d) F V with trained E and F, [rank, length], one pair for all heads (Wang et al. 2020,
    equation 7, https://arxiv.org/abs/2006.04768).

    Each of the `rank` mixtures is of all positions, later ones too, so it cannot be causal. `longest`: the most
    positions there can be. Reports its weights, [B, heads, T, rank].
    """

    causal = False

    def __init__(
        self, dim: int, heads: int, score: Annotated[Choice, SCORES], longest: int = 512, rank: int = 64
    ) -> None:
        super().__init__(dim, heads, score)
        self.longest, rank = at_least("longest", longest), at_least("rank", rank)
        self.keys, self.values = (nn.Parameter(torch.randn(rank, longest) * longest**-0.5) for _ in range(2))

    def mix(self, q: Tensor, k: Tensor, v: Tensor, visible: Visibility, state: State) -> tuple[Tensor, State]:
        n = k.size(2)
        if n > self.longest:
            raise SeqloomError(
                f"mixer 'linformer' reaches {self.longest} tokens, here {n}; set mixer.longest higher, or choose "
                "another mixer, such as 'window'"
            )
        if visible.lengths is not None:
            real = keep(visible.lengths, n)[:, None, :, None]
            k, v = k * real, v * real
        return dense_attention(q, self.keys[:, :n] @ k, self.values[:, :n] @ v, Visibility(), self.probe), state
