"""Norms: what brings vectors to one scale, [..., dim] -> the same.

Some look across the batch. In training they need to know which places are real, `lengths` [B] of [B, S, dim], since
padding must not count; and they keep running statistics, which they use in evaluation, so that there a row says the
same in any company. Those are buffers: saved and loaded as weights are, and alike on all ranks.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.errors import SeqloomError
from seqloom.fast.residual_norm.gpu import fused_norm, supported
from seqloom.parts.visibility import keep

EPS = 1e-5


class LayerNorm(nn.LayerNorm):
    """γ (x − mean) / √(var + ε) + β over the features of a vector (Ba et al. 2016, https://arxiv.org/abs/1607.06450)."""

    across = False  # does not look across the batch

    def __init__(self, dim: int) -> None:
        super().__init__(dim, EPS)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:  # pyright: ignore
        return fused_norm(x, self.affine) if supported(x) else super().forward(x)

    @property
    def affine(self) -> tuple[Tensor, Tensor, float]:
        return self.weight, self.bias, self.eps


class RmsNorm(nn.Module):
    """γ x / √(mean x² + ε) over the features of a vector: neither centred nor moved (Zhang & Sennrich 2019, equation 4,
    https://arxiv.org/abs/1910.07467)."""

    across = False

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), EPS)


class BatchNorm(nn.Module):
    """γ (x − mean) / √(var + ε) + β of every feature over all real places of the batch (Ioffe & Szegedy 2015,
    https://arxiv.org/abs/1502.03167, algorithms 1 and 2). `momentum`: the share of a batch in the running statistics.
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

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        mean, variance, exact = self.mean, self.variance, x.to(_exact(x))
        if self.training and self.weight.requires_grad:  # frozen, it stays as it is
            if lengths is None and x.numel() > len(self.mean):
                return self._fused(x)
            mean, count = over_real(exact, lengths)
            variance, _ = over_real((exact - mean).square(), lengths)
            self._count(mean.detach(), variance.detach(), count)
        return ((exact - mean) * (variance + EPS).rsqrt()).to(x.dtype) * self.weight + self.bias

    def _fused(self, x: Tensor) -> Tensor:
        """The same by torch's kernel, which knows of no padding and wants two places at least."""
        flat, running = x.reshape(-1, x.size(-1)), (self.mean, self.variance)
        return torch.batch_norm(flat, self.weight, self.bias, *running, True, self.momentum, EPS, False).view(x.shape)

    def _count(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """The running variance is that of the population: n / (n − 1)."""
        whole = variance * (count / (count - 1).clamp(min=1))
        self.mean.lerp_(mean.to(self.mean.dtype), self.momentum)
        self.variance.lerp_(whole.to(self.variance.dtype), self.momentum)


class PowerNorm(nn.Module):
    """γ x / √(ψ² + ε) + β, ψ² the mean of x² of every feature over all real places of the batch, not centred: PN-V of
    Shen et al. 2020 (section 4, https://proceedings.mlr.press/v119/shen20e.html). ψ² varies less from batch to batch
    than the mean and variance of `batch`. Gradients go through ψ, as they do there. Their PN, which norms by a running
    ψ in training too and estimates its gradient, is not here. `momentum`: see `batch`."""

    across = True
    power: Tensor

    def __init__(self, dim: int, momentum: float = 0.1) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("power", torch.ones(dim))
        self.momentum = _share(momentum)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        exact, power = x.to(_exact(x)), self.power
        if self.training and self.weight.requires_grad:
            power, _ = over_real(exact.square(), lengths)
            with torch.no_grad():
                self.power.lerp_(power.to(self.power.dtype), self.momentum)
        return (exact * (power + EPS).rsqrt()).to(x.dtype) * self.weight + self.bias


class NoNorm(nn.Module):
    """x itself. Deep stacks without a norm want their weights to begin small (Zhang et al. 2019, Fixup,
    https://arxiv.org/abs/1901.09321)."""

    across = False

    def __init__(self, dim: int) -> None:
        super().__init__()

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return x


NORMS = {"layer": LayerNorm, "rms": RmsNorm, "batch": BatchNorm, "power": PowerNorm, "none": NoNorm}


def over_real(x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mean over all but the last axis, [dim], and of how many it is; with `lengths`, of the real places of
    [B, S, dim]."""
    if lengths is None:
        return x.flatten(0, -2).mean(0), x.new_full((), x.numel() // x.size(-1))
    real, count = keep(lengths, x.size(1))[:, :, None], lengths.sum().clamp(min=1).to(x.dtype)
    return x.masked_fill(~real, 0.0).sum((0, 1)) / count, count


def looks_across(model: nn.Module) -> bool:
    """Whether some norm of it looks across the batch, and so must be told which places are real."""
    return any(getattr(part, "across", False) for part in model.modules())


def _share(momentum: float) -> float:
    if not 0 < momentum <= 1:
        raise SeqloomError(f"momentum of a norm is above 0 and at most 1, here {momentum}")
    return momentum


def _exact(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
