"""Optimizers, and the update, without waiting for the device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.build import build
from seqloom.errors import SeqloomError
from seqloom.training.distributed.sharding import is_shard, parameters_by_name, place_like, unshard
from seqloom.training.optim.muon import Muon, hidden_matrices
from seqloom.training.optim.optimizer_table import MAKERS
from seqloom.training.settings import Training

Groups = list[dict[str, Any]]  # of parameters, with the weight decay of each group


def make_optimizer(model: nn.Module, settings: Training) -> torch.optim.Optimizer:
    """The optimizer that `training.optimizer` names. Weight decay is for matrices; biases and norms have none."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    trained = trained or [nn.Parameter(torch.zeros(1))]  # counting models have none, but torch needs one
    matrices = [p for p in trained if p.dim() > 1]
    others = [p for p in trained if p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return build(MAKERS, settings.optimizer, model=model, groups=groups, settings=settings)


def adamw(model: nn.Module, groups: Groups, settings: Training) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter 2019), fused: the update is one pass over the parameters."""
    return torch.optim.AdamW(groups, fused=True, **_adam_options(settings))


def muon(model: nn.Module, groups: Groups, settings: Training) -> torch.optim.Optimizer:
    """`Muon` (Jordan et al. 2024)."""
    if any(map(is_shard, _trained(groups))):
        raise SeqloomError("muon needs whole matrices: leave --shard out, or choose adamw")
    return Muon(hidden_matrices(model), groups, **_adam_options(settings))


def sgd(model: nn.Module, groups: Groups, settings: Training) -> torch.optim.Optimizer:
    """Stochastic gradient descent with momentum (Polyak 1964), fused."""
    fused = not any(map(is_shard, model.parameters()))  # torch has no fused SGD for shards
    made = torch.optim.SGD(groups, lr=settings.learning_rate, momentum=settings.momentum, fused=fused)
    # Initialized here, in case the first step is skipped.
    for parameter in _trained(groups) if settings.momentum else ():
        made.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return made


def asgd(model: nn.Module, groups: Groups, settings: Training) -> torch.optim.Optimizer:
    """Averaged SGD (Merity et al. 2018; see `Averaging`) steps as plain SGD does, without momentum."""
    return sgd(model, groups, settings)


def _trained(groups: Groups) -> list[nn.Parameter]:
    return [parameter for group in groups for parameter in group["params"]]


def _adam_options(settings: Training) -> dict[str, Any]:
    return {"lr": settings.learning_rate, "betas": (settings.momentum, settings.beta2), "eps": 1e-9}


def apply_gradients(
    optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter], count: float, clip: float
) -> Tensor:
    """One update from gradients of a summed loss over `count` tokens; returns the gradient's norm, on the device.

    The fused kernel divides by the count, clips, and skips the update if the norm is not finite, by a scale and a
    flag: no further pass over the gradients, and the host reads nothing. For shards the norm is over all ranks, so
    that all scale or skip together.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    norm = (norm.full_tensor() if is_shard(norm) else norm) / count  # pyright: ignore[reportAttributeAccessIssue]
    scale = torch.full_like(norm, count)
    if clip:
        scale = scale * (norm / clip).clamp(min=1.0)
    bad = ~norm.isfinite()
    if not optimizer.defaults.get("fused"):
        if not bool(bad):  # waits; the same answer on every rank
            for gradient in gradients:
                gradient.div_(float(scale))
            optimizer.step()
        return norm
    optimizer.grad_scale = torch.where(bad, 1.0, scale)  # pyright: ignore[reportAttributeAccessIssue]
    optimizer.found_inf = bad.to(norm.dtype)  # pyright: ignore[reportAttributeAccessIssue]
    optimizer.step()
    return norm


def optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module, wanted: bool = True) -> dict[str, Tensor]:
    """`optimiser.<what>.<parameter>` for every tensor of the optimizer's state."""
    states = (
        (f"optimiser.{what}.{name}", value)
        for name, parameter in parameters_by_name(model)
        for what, value in sorted(optimizer.state.get(parameter, {}).items())
        if isinstance(value, Tensor)
    )
    return unshard(states, wanted)


def restore_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    parameters = dict(parameters_by_name(model))
    for key in tensors:
        if key.startswith("optimiser."):
            _, what, name = key.split(".", 2)
            value, parameter = tensors[key], parameters[name]
            # The step count is a scalar, not sharded.
            restored = place_like(value, parameter) if value.shape == parameter.shape else value.to(parameter.device)
            optimizer.state[parameter][what] = restored.clone()
