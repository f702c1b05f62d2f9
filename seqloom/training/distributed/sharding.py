"""One model on several ranks: the rows of each rank, DDP and FSDP, and joining shards.

DDP copies the model to every rank and averages gradients (Li et al. 2020, arXiv:2006.15704); FSDP cuts every parameter,
its gradient and its optimizer state into a shard a rank, and joins a layer only while it runs (Zhao et al. 2023,
arXiv:2304.11277).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.data.batches.batch_source import AnyBatch, BatchSource
from seqloom.parts.state import State, flatten
from seqloom.training.distributed.processes import DTYPES, Ranks


def rank_batch(source: BatchSource, rows: np.ndarray, ranks: Ranks) -> Any:
    """This rank's rows of a batch: every `world`-th, as rows are sorted by length. With fewer rows than ranks, some get
    a row of weight zero, since all must take part in collectives."""
    mine = rows[ranks.rank :: ranks.world]
    return source.batch(mine) if len(mine) else source.batch(rows[:1]).zero_weight_row()


def exact_micro_batches(batch: AnyBatch, count: int) -> list[Any]:
    """Exactly `count` micro-batches, so that all ranks run the same number of passes."""
    parts = batch.micro_batches(count)
    return parts + [parts[0].zero_weight_row()] * (count - len(parts))


def gather_states(state: State, ranks: Ranks) -> tuple[dict[str, Tensor], Any]:
    """The state of every rank, as `carried.<rank>.<number>`, and the layout of them all.

    Ranks may have different numbers of rows, or none; the collective needs one shape, so states are padded with rows,
    which are removed again.
    """
    tensors, layout = flatten(state)
    forms = ranks.all_gather([layout, [[str(one.dtype), list(one.shape)] for one in tensors]])
    if not (held := [form for form in forms if form[0] is not None]):
        return {}, None
    layout, tensors_by_name = held[0][0], {}
    for number, (kind, shape) in enumerate(held[0][1]):
        rows = [parts[number][1][0] if parts else 0 for _, parts in forms]
        mine = torch.zeros(max(rows), *shape[1:], dtype=DTYPES[kind])
        if tensors:
            mine[: rows[ranks.rank]] = tensors[number].cpu()
        every = zip(rows, ranks.all_gather_tensors(mine), strict=True)
        tensors_by_name |= {f"carried.{rank}.{number}": one[:count] for rank, (count, one) in enumerate(every) if count}
    return tensors_by_name, layout


def distributed_objective(objective: nn.Module, ranks: Ranks, shard: bool) -> nn.Module:
    """The objective on the rank's device: as it is, inside DDP, or with its model sharded."""
    if ranks.distributed and shard:
        _shard(objective, ranks)  # moves it to the device unit by unit, as the whole may not fit
        return objective
    objective = objective.to(ranks.device)
    if not ranks.distributed or not any(parameter.requires_grad for parameter in objective.parameters()):
        return objective
    with warnings.catch_warnings():
        # `RunningStatistics` keeps buffers equal; the keyword that torch 2.13 wants instead is not in 2.11.
        warnings.simplefilter("ignore", FutureWarning)
        return nn.parallel.DistributedDataParallel(objective, broadcast_buffers=False, gradient_as_bucket_view=True)


def _shard(objective: nn.Module, ranks: Ranks) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    # Outputs that are views are never modified in place.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module", UserWarning)
    mesh = init_device_mesh(ranks.device.type, (ranks.world,))
    for part, methods in _units(objective.model):  # pyright: ignore[reportArgumentType]
        # The outermost too: joined after validation, its parameters would not be those of the optimizer.
        fully_shard(part, mesh=mesh, reshard_after_forward=True)
        for method in methods:
            register_fsdp_forward_method(part, method)


def _units(model: Any) -> Iterator[tuple[nn.Module, tuple[str, ...]]]:
    """The modules that FSDP joins and shards as one, innermost first, with the methods beside `forward`.

    The model comes last and takes the rest. A unit must be called by its own methods and return plain tuples of
    tensors, on which FSDP puts its hooks: an encoder, which returns an `Encoded`, is therefore none, but its stack is.
    """
    for side in (getattr(model, name) for name in ("encoder", "decoder") if hasattr(model, name)):
        for block in getattr(side, "blocks", ()):
            if hasattr(block, "cross"):  # its keys are made before the block runs
                yield block.cross, ("project_memory", "cross_attend")
            yield block, ("mixer_sublayer", "feed_forward_sublayer") if getattr(side, "reversible", False) else ()
        if hasattr(side, "begin") and not hasattr(side, "blocks"):
            yield side, ("begin",)
        elif hasattr(side, "recurrent"):
            yield side.recurrent, ("run",)
    yield model, tuple(name for name in ("start", "step", "best", "distribution") if hasattr(model, name))


def parameters_by_name(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Parameters with the names they have without DDP."""
    return ((name.removeprefix("module."), parameter) for name, parameter in module.named_parameters())


def saved_buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Persistent buffers, such as running statistics; not constants."""
    persistent = module.state_dict(keep_vars=True)
    return ((name, buffer) for name, buffer in module.named_buffers() if name in persistent)


class RunningStatistics:
    """Running statistics of norms in training: averaged over ranks after every update, and undone for passes that do
    not count. Each rank normalizes by its own rows."""

    def __init__(self, module: nn.Module, ranks: Ranks) -> None:
        self.ranks, self.tensors = ranks, [buffer for _, buffer in saved_buffers(module)]
        self.snapshot()

    def snapshot(self) -> None:
        self.before = [tensor.clone() for tensor in self.tensors]

    def undo(self) -> None:
        for tensor, before in zip(self.tensors, self.before, strict=True):
            tensor.copy_(before)

    @torch.no_grad()
    def synchronize(self, finite: Tensor) -> None:
        """After an update; where its gradient was not `finite`, the statistics are undone too."""
        if not self.tensors:
            return
        means = self.ranks.all_reduce(torch.cat([tensor.flatten() for tensor in self.tensors])) / self.ranks.world
        now = means.split([tensor.numel() for tensor in self.tensors])
        for tensor, before, new in zip(self.tensors, self.before, now, strict=True):
            before.copy_(torch.where(finite, new.view_as(before), before))
            tensor.copy_(before)


def unshard(tensors: Iterable[tuple[str, Tensor]], wanted: bool = True) -> dict[str, Tensor]:
    """Tensors by name with their shards joined, one after the other. Joining is a collective, so every rank must call
    it; without `wanted` nothing is returned.
    """
    tensors_by_name = {}
    for name, tensor in tensors:
        joined = tensor.full_tensor().cpu() if is_shard(tensor) else tensor  # pyright: ignore
        if wanted:
            tensors_by_name[name] = joined
    return tensors_by_name


def place_like(tensor: Tensor, like: Tensor) -> Tensor:
    """`tensor`, which every rank has whole, on the device of `like`, and sharded if that is."""
    tensor = tensor.to(like.device)
    if not is_shard(like) or is_shard(tensor):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = like.device_mesh, like.placements  # pyright: ignore[reportAttributeAccessIssue]
    return distribute_tensor(tensor, mesh, placements, src_data_rank=None)


def is_shard(tensor: Tensor) -> bool:
    return hasattr(tensor, "full_tensor")  # without importing DTensor


def seed_rank(seed: int, rank: int, step: int) -> None:
    """Seed this rank's random numbers: dropout must differ between ranks."""
    torch.manual_seed(int(np.random.SeedSequence([seed, rank, step]).generate_state(1, np.uint64)[0]))
