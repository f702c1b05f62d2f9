"""Which of the fused kernels is taken."""

from __future__ import annotations

import torch

from seqloom.fast.attention.softmax import is_causal_alone
from seqloom.parts.visibility import Visibility


def test_the_kernels_own_causal_mask_is_taken_only_where_it_is_enough():
    assert is_causal_alone(Visibility(causal=True), 4, 4)
    assert is_causal_alone(Visibility(causal=True, lengths=torch.tensor([2])), 4, 4)
    assert not is_causal_alone(Visibility(), 4, 4)
    assert not is_causal_alone(Visibility(causal=True), 1, 5)
    assert not is_causal_alone(Visibility(causal=True, offset=1), 4, 4)
    assert not is_causal_alone(Visibility(causal=True, window=2), 4, 4)
    assert not is_causal_alone(Visibility(causal=True, bias=torch.zeros(4, 4)), 4, 4)
