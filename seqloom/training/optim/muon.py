"""Muon: the update of a matrix is its orthogonalized momentum; AdamW updates all other parameters."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.parts.recurrent.base_cell import Cell

MOMENTUM = 0.95
# Coefficients of x ↦ a x + b x³ + c x⁵: five iterations bring all singular values near 1 (Jordan et al. 2024).
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
UPDATE_RMS = 0.2  # root mean square of an update, as of AdamW, so that both share learning rate and weight decay


class Muon(torch.optim.AdamW):
    """M ← μ M + G, W ← W − η (0.2 √max(n, m) · orthogonal(G + μ M) + λ W) for n × m matrices between hidden states
    (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon; the size as Liu et al. 2025,
    https://arxiv.org/abs/2502.16982, section 2.2). Stacked matrices, such as the gates of a cell or queries, keys and
    values, are orthogonalized one by one.

    As with the fused AdamW, gradients are divided by `grad_scale`, an update is skipped by `found_inf`, and the host
    never waits for the device.
    """

    grad_scale: Tensor | None = None
    found_inf: Tensor | None = None

    def __init__(self, matrices: dict[nn.Parameter, int], groups: list[dict[str, Any]], **options: Any) -> None:
        """`matrices`: those updated by Muon, with the number stacked in each. `groups`, `options`: AdamW's."""
        self.stacked = matrices
        super().__init__(groups, fused=True, **options)
        for parameter in matrices:  # initialized here, in case the first step is skipped
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

    def _update_matrices(self, parameters: list[nn.Parameter], learning_rate: float, decay: float) -> None:
        """Update parameters of one shape and the same number of stacked matrices."""
        first = parameters[0]
        bad = torch.zeros((), device=first.device) if self.found_inf is None else self.found_inf
        gradients = torch.stack([p.grad for p in parameters])  # pyright: ignore[reportArgumentType, reportCallIssue]
        gradients = torch.where(bad > 0, 0.0, gradients if self.grad_scale is None else gradients / self.grad_scale)
        buffers = [self.state[p]["momentum_buffer"] for p in parameters]
        momentum = torch.stack(buffers)
        momentum = torch.where(bad > 0, momentum, MOMENTUM * momentum + gradients)
        torch._foreach_copy_(buffers, list(momentum.unbind()))  # pyright: ignore
        update = gradients + MOMENTUM * momentum
        rows = update.size(1) // self.stacked[first]
        single = orthogonal(update.view(-1, rows, update.size(2))).view(update.shape)
        step_size = learning_rate * (1 - bad)
        steps = single * (UPDATE_RMS * max(rows, update.size(2)) ** 0.5 * step_size)
        torch._foreach_mul_(parameters, 1 - step_size * decay)  # pyright: ignore
        torch._foreach_sub_(parameters, list(steps.unbind()))  # pyright: ignore


def orthogonal(matrices: Tensor) -> Tensor:
    """About U Vᵀ of the SVD U S Vᵀ (singular values from 0.7 to 1.2), without computing it. [N, n, m] -> [N, n, m]"""
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
    """Matrices between hidden states, with the number stacked in each: of linear layers and cells, but neither
    embeddings nor output layers and heads."""
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
