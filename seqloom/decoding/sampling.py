"""Sampling: the distribution that tokens are drawn from (temperature, top-k, top-p), and the draw."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from seqloom.decoding.random_draws import Draws
from seqloom.decoding.search_options import Search

Choose = Callable[..., Tensor]  # ([R, V] logits, the step, [R] numbers of the rows' sequences) -> [R] tokens


def sampler(search: Search, draws: Draws) -> Choose:
    def choose(logits: Tensor, step: int | Tensor, rows: Tensor | None = None) -> Tensor:
        if search.temperature == 0:  # the limit of p^(1/T) as T falls to 0
            return logits.argmax(-1)
        return draws(sampling_distribution(logits, search.temperature, search.top_k, search.top_p), step, rows)

    return choose


def sampling_distribution(logits: Tensor, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """[R, V] logits -> the probabilities sampled from: p^(1/T) normalized, of the `top_k` most likely tokens, then of
    the smallest set that holds `top_p` of the mass (Holtzman et al. 2020), normalized again."""
    probabilities = (logits / temperature).softmax(-1)
    if not top_k and top_p == 1.0:
        return probabilities
    ordered, order = probabilities.sort(stable=True, dim=-1, descending=True)
    if top_k:
        ordered[:, top_k:] = 0.0
        ordered = ordered / ordered.sum(-1, keepdim=True)
    before = ordered.cumsum(-1) - ordered  # the mass of all likelier ones: the first is always kept
    ordered = torch.where(before < top_p, ordered, 0.0)
    return torch.zeros_like(probabilities).scatter(-1, order, ordered / ordered.sum(-1, keepdim=True))
