"""Muon: the update of a matrix is its momentum, made orthogonal; all other parameters are AdamW's."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.parts.recurrent.base_cell import Cell

MOMENTUM = 0.95
# Of x ↦ a x + b x³ + c x⁵, which five times over brings all singular values near 1 (Jordan et al. 2024).
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
UPDATE_RMS = 0.2  # of an update, by the root of its mean square: what AdamW's have, so that one rate and decay fit both


class Muon(torch.optim.AdamW):
    """M ← μ M + G, W ← W − η (0.2 √max(n, m) · orthogonal(G + μ M) + λ W) for n × m matrices between hidden states
    (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon; the size as Liu et al. 2025,
    https://arxiv.org/abs/2502.16982, section 2.2). Stacked matrices, such as the gates of a cell or queries, keys and
    values, are made orthogonal one by one.

    As with the fused AdamW, gradients are divided by `grad_scale`, an update is skipped by `found_inf`, and the host
    never waits for the device.
    """

    grad_scale: Tensor | None = None
    found_inf: Tensor | None = None

    def __init__(self, matrices: dict[nn.Parameter, int], groups: list[dict[str, Any]], **options: Any) -> None:
        """`matrices`: those that Muon steps, with how many are stacked in each. `groups` and `options` are AdamW's."""
        self.stacked = matrices
        super().__init__(groups, fused=True, **options)
        for parameter in matrices:  # here, initialized also if the first step is skipped
            self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        groups = self.param_groups
        try:
            self.param_groups = [
                {**group, "params": [p for p in group["params"] if p not in self.stacked]} for group in groups
            ]
            super().step(closure)
        finally:
            self.param_groups = groups
        for group in groups:
            for alike in _by_shape(
                [p for p in group["params"] if p in self.stacked and p.grad is not None], self.stacked
            ):
                self._update_matrices(alike, group["lr"], group["weight_decay"])

    def _update_matrices(self, parameters: list[nn.Parameter], rate: float, decay: float) -> None:
        """Of one shape and of as many in one."""
        first = parameters[0]
        bad = torch.zeros((), device=first.device) if self.found_inf is None else self.found_inf
        gradients = torch.stack([p.grad for p in parameters])  # pyright: ignore[reportArgumentType, reportCallIssue]
        gradients = torch.where(bad > 0, 0.0, gradients if self.grad_scale is None else gradients / self.grad_scale)
        buffers = [self.state[p]["momentum_buffer"] for p in parameters]
        kept = torch.stack(buffers)
        kept = torch.where(bad > 0, kept, MOMENTUM * kept + gradients)
        torch._foreach_copy_(buffers, list(kept.unbind()))  # pyright: ignore
        update = gradients + MOMENTUM * kept
        rows = update.size(1) // self.stacked[first]
        single = orthogonal(update.view(-1, rows, update.size(2))).view(update.shape)
        ahead = rate * (1 - bad)
        steps = single * (UPDATE_RMS * max(rows, update.size(2)) ** 0.5 * ahead)
        torch._foreach_mul_(parameters, 1 - ahead * decay)  # pyright: ignore
        torch._foreach_sub_(parameters, list(steps.unbind()))  # pyright: ignore


def orthogonal(matrices: Tensor) -> Tensor:
    """U Vᵀ of U S Vᵀ, nearly: singular values from about 0.7 to 1.2, without finding them. [N, n, m] -> [N, n, m]"""
    a, b, c = NEWTON_SCHULZ
    x = matrices.to(torch.bfloat16) if matrices.is_cuda else matrices
    tall = x.size(1) > x.size(2)
    x = x.mT if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = a * x + torch.baddbmm(b * square, square, square, alpha=c) @ x
    return (x.mT if tall else x).to(matrices.dtype)


def hidden_matrices(model: nn.Module) -> dict[nn.Parameter, int]:
    """Matrices from hidden states to hidden states, with how many are stacked in each: of linear layers and recurrent
    cells, but neither embeddings nor what an output or a head is made of."""
    found: dict[nn.Parameter, int] = {}
    ends = {id(p) for module in model.modules() if isinstance(module, nn.Embedding) for p in module.parameters()}
    for name, module in model.named_modules():
        if {"output", "head"} & set(name.split(".")):
            continue
        for own, parameter in module.named_parameters(recurse=False):
            if parameter.dim() == 2 and parameter.requires_grad and id(parameter) not in ends:
                if isinstance(module, Cell):
                    found[parameter] = module.gates
                elif isinstance(module, nn.Linear):
                    joined = name.endswith("project") and parameter.size(0) % parameter.size(1) == 0
                    found[parameter] = parameter.size(0) // parameter.size(1) if joined and own == "weight" else 1
    return found


def _by_shape(parameters: list[nn.Parameter], parts: dict[nn.Parameter, int]) -> list[list[nn.Parameter]]:
    found: defaultdict[Any, list[nn.Parameter]] = defaultdict(list)
    for parameter in parameters:
        found[tuple(parameter.shape), parts[parameter]].append(parameter)
    return list(found.values())
