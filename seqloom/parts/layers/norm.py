"""Norms, [..., dim] -> the same shape.

Some compute statistics across the batch. In training they need `lengths` [B] of [B, S, dim], as padding must not count;
in evaluation they use running statistics, so that a row's result does not depend on the batch. These are buffers: saved
and loaded like weights, and equal on all ranks.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.acceleration import accelerated
from seqloom.errors import SeqloomError
from seqloom.parts.visibility import keep

EPS = 1e-5


class LayerNorm(nn.LayerNorm):
    """γ (x − mean) / √(var + ε) + β over the features of a vector (Ba et al. 2016, https://arxiv.org/abs/1607.06450)."""

    across = False  # whether statistics are computed across the batch

    def __init__(self, dim: int) -> None:
        super().__init__(dim, EPS)

    @accelerated
    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:  # pyright: ignore
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    @property
    def affine(self) -> tuple[Tensor, Tensor, float]:
        return self.weight, self.bias, self.eps


class RmsNorm(nn.Module):
    """γ x / √(mean x² + ε) over the features of a vector, without centering and shift (Zhang & Sennrich 2019, equation
    4, https://arxiv.org/abs/1910.07467)."""

    across = False

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), EPS)


class BatchNorm(nn.Module):
    """γ (x − mean) / √(var + ε) + β of every feature over all real positions of the batch (Ioffe & Szegedy 2015,
    https://arxiv.org/abs/1502.03167, algorithms 1 and 2). `momentum`: the weight of a batch in the running statistics.
    """

    across = True
    mean: Tensor
    variance: Tensor

    def __init__(self, dim: int, momentum: float = 0.1) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("variance", torch.ones(dim))
        self.momentum = _share(momentum)

    @accelerated
    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        mean, variance, exact = self.mean, self.variance, x.to(_at_least_float32(x))
        if self.training and self.weight.requires_grad:  # a frozen norm does not change
            mean, count = masked_mean(exact, lengths)
            variance, _ = masked_mean((exact - mean).square(), lengths)
            unbiased = variance.detach() * (count / (count - 1).clamp(min=1))  # times n / (n − 1)
            self.mean.lerp_(mean.detach().to(self.mean.dtype), self.momentum)
            self.variance.lerp_(unbiased.to(self.variance.dtype), self.momentum)
        return ((exact - mean) * (variance + EPS).rsqrt()).to(x.dtype) * self.weight + self.bias


class PowerNorm(nn.Module):
    """γ x / √(ψ² + ε) + β, ψ² the mean of x² of every feature over the real positions of the batch, not centered: PN-V
    of Shen et al. 2020 (section 4, https://proceedings.mlr.press/v119/shen20e.html). ψ² varies less from batch to batch
    than the mean and variance of `batch`. Gradients go through ψ, as in the paper. Their PN, which uses a running ψ in
    training too and approximates its gradient, is not implemented. `momentum`: see `batch`."""

    across = True
    power: Tensor

    def __init__(self, dim: int, momentum: float = 0.1) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("power", torch.ones(dim))
        self.momentum = _share(momentum)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        exact, power = x.to(_at_least_float32(x)), self.power
        if self.training and self.weight.requires_grad:
            power, _ = masked_mean(exact.square(), lengths)
            with torch.no_grad():
                self.power.lerp_(power.to(self.power.dtype), self.momentum)
        return (exact * (power + EPS).rsqrt()).to(x.dtype) * self.weight + self.bias


class NoNorm(nn.Module):
    """x itself. Deep stacks without a norm need small initial weights (Zhang et al. 2019, Fixup,
    https://arxiv.org/abs/1901.09321)."""

    across = False

    def __init__(self, dim: int) -> None:
        super().__init__()

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return x


NORMS = {"layer": LayerNorm, "rms": RmsNorm, "batch": BatchNorm, "power": PowerNorm, "none": NoNorm}


def masked_mean(x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mean over all but the last axis, [dim], and the count; with `lengths`, over the real positions."""
    if lengths is None:
        return x.flatten(0, -2).mean(0), x.new_full((), x.numel() // x.size(-1))
    real, count = keep(lengths, x.size(1))[:, :, None], lengths.sum().clamp(min=1).to(x.dtype)
    return x.masked_fill(~real, 0.0).sum((0, 1)) / count, count


def looks_across(model: nn.Module) -> bool:
    """Whether a norm of the model computes statistics across the batch, and so needs `lengths`."""
    return any(getattr(part, "across", False) for part in model.modules())


def _share(momentum: float) -> float:
    if not 0 < momentum <= 1:
        raise SeqloomError(f"momentum of a norm is above 0 and at most 1, here {momentum}")
    return momentum


def _at_least_float32(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
