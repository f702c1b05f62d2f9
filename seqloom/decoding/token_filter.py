"""Which tokens may be written at a step: special tokens never, a forced first token, a forced <eos> at the limit."""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.data.tokenizers.tokenizers import BOS, EOS, PAD, UNK
from seqloom.decoding.search_options import Search


class TokenFilter:
    """[R, V] logits of a step -> the same with −inf at tokens that may not be written there; a copy."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.bias: Tensor | None = None  # [V], added: −inf for what is never written

    def __call__(self, logits: Tensor, t: int, limit: Tensor) -> Tensor:
        logits = logits.float()
        if self.bias is None:
            never = torch.tensor([PAD, BOS, UNK, *self.search.never], device=logits.device)
            self.bias = logits.new_zeros(logits.size(-1)).index_fill_(0, never, float("-inf"))
        logits = logits + self.bias
        if t == 0 and self.search.first is not None:
            logits = _only(self.search.first, logits)
        if self.search.close:
            logits = torch.where((limit <= t + 1)[:, None], _only(EOS, logits), logits)
        return logits


def _only(token: int, logits: Tensor) -> Tensor:
    """Logits of one certain token."""
    certain = torch.full_like(logits, float("-inf"))
    certain[:, token] = 0.0
    return certain
