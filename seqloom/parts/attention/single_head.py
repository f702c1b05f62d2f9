"""Attention with one head and any score, as recurrent decoders use it."""

from __future__ import annotations

from torch import Tensor, nn

from seqloom.build import Choice, build
from seqloom.parts.attention.attend import Memory, attend
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.probe import Probed
from seqloom.parts.visibility import Visibility


class Attention(Probed):
    """Σ_j softmax_j(score(q, k_j)) v_j (Bahdanau et al. 2015, section 3.1). The values are the source states, or with
    `value_dim` a linear map of them.

    Reports its weights, [B, T, S].
    """

    def __init__(self, query_dim: int, key_dim: int, score: Choice = "additive", value_dim: int = 0) -> None:
        super().__init__()
        self.score = build(SCORES, score, query_dim=query_dim, key_dim=key_dim)
        self.value = nn.Linear(key_dim, value_dim) if value_dim else None
        self.dim = value_dim or key_dim

    def project_memory(self, states: Tensor) -> Memory:
        """[B, S, key_dim] -> keys and values: all that depends on the source alone, computed once per sentence."""
        return self.score.keys(states), states if self.value is None else self.value(states)

    def forward(self, query: Tensor, memory: Memory, visible: Visibility) -> Tensor:
        """[R, T, query_dim] -> [R, T, dim]; R may be a multiple of the sentences: hypotheses are extra queries."""
        keys, values = memory
        rows, t, _ = query.shape
        queries = query.reshape(keys.size(0), -1, query.size(-1))
        y = attend(queries, keys, values, self.score, visible, self.probe)
        return y.reshape(rows, t, values.size(-1))
