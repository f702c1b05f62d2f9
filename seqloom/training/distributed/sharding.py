"""One model on several ranks: which rows each takes, what wraps the objective, and how shards become whole again.

DDP copies the model to every rank and averages gradients (Li et al. 2020, arXiv:2006.15704); FSDP cuts every parameter,
its gradient and its optimiser state into a shard a rank, and joins a layer only while it is at work (Zhao et al. 2023,
arXiv:2304.11277).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.data.batches.batch_source import Piece, Supply
from seqloom.parts.state import State, flatten
from seqloom.training.distributed.processes import DTYPES, Ranks


def portion(supply: Supply, rows: np.ndarray, ranks: Ranks) -> Any:
    """This rank's rows of a batch: every so-manyth, since rows stand sorted by length and no rank should get the long
    ones. With fewer rows than ranks, some get a batch that counts for nothing: they must take part all the same."""
    mine = rows[ranks.rank :: ranks.world]
    return supply.batch(mine) if len(mine) else supply.batch(rows[:1]).emptied()


def pieces(batch: Piece, count: int) -> list[Any]:
    """Exactly `count` pieces, so that every rank goes forward and back as often as the others."""
    cut = batch.pieces(count)
    return cut + [cut[0].emptied()] * (count - len(cut))


def gathered(state: State, ranks: Ranks) -> tuple[dict[str, Tensor], Any]:
    """The state of every rank, as `carried.<rank>.<number>`, and the layout of them all.

    Ranks may have unlike numbers of rows, or none and so no state: an exchange wants one shape, so that rows are
    added to all but the largest and taken away again.
    """
    tensors, layout = flatten(state)
    forms = ranks.gather([layout, [[str(one.dtype), list(one.shape)] for one in tensors]])
    if not (held := [form for form in forms if form[0] is not None]):
        return {}, None
    layout, found = held[0][0], {}
    for number, (kind, shape) in enumerate(held[0][1]):
        rows = [parts[number][1][0] if parts else 0 for _, parts in forms]
        mine = torch.zeros(max(rows), *shape[1:], dtype=DTYPES[kind])
        if tensors:
            mine[: rows[ranks.rank]] = tensors[number].cpu()
        every = zip(rows, ranks.gather_tensors(mine), strict=True)
        found |= {f"carried.{rank}.{number}": one[:count] for rank, (count, one) in enumerate(every) if count}
    return found, layout


def wrapped(objective: nn.Module, ranks: Ranks, shard: bool) -> nn.Module:
    """What the loop calls, on the rank's device: the objective itself, inside DDP, or with its model sharded."""
    if ranks.several and shard:
        _shard(objective, ranks)  # unit by unit to the device: the whole may not fit there
        return objective
    objective = objective.to(ranks.device)
    if not ranks.several or not any(parameter.requires_grad for parameter in objective.parameters()):
        return objective
    with warnings.catch_warnings():
        # `Counted` keeps buffers alike; the keyword that torch 2.13 wants instead is not in 2.11.
        warnings.simplefilter("ignore", FutureWarning)
        return nn.parallel.DistributedDataParallel(objective, broadcast_buffers=False, gradient_as_bucket_view=True)


def _shard(objective: nn.Module, ranks: Ranks) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    # Outputs of parts that are views are never written to here.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module", UserWarning)
    mesh = init_device_mesh(ranks.device.type, (ranks.world,))
    for part, methods in _units(objective.model):  # pyright: ignore[reportArgumentType]
        # Also the outermost: left joined after validation, its parameters would not be those the optimiser knows.
        fully_shard(part, mesh=mesh, reshard_after_forward=True)
        for method in methods:
            register_fsdp_forward_method(part, method)


def _units(model: Any) -> Iterator[tuple[nn.Module, tuple[str, ...]]]:
    """What is joined and cut again as one, innermost first, with the methods besides `forward` by which it is entered.

    The model comes last and takes what is left. A unit must be entered by its own methods and hand out plain tuples of
    tensors, on which FSDP hangs its hooks: an encoder, which gives an `Encoded`, is therefore none, but its stack is.
    """
    for side in (getattr(model, name) for name in ("encoder", "decoder") if hasattr(model, name)):
        for block in getattr(side, "blocks", ()):
            if hasattr(block, "cross"):  # its keys are made before the block runs
                yield block.cross, ("remember", "read")
            yield block, ("mixed", "fed") if getattr(side, "reversible", False) else ()
        if hasattr(side, "begin") and not hasattr(side, "blocks"):
            yield side, ("begin",)
        elif hasattr(side, "recurrent"):
            yield side.recurrent, ("run",)
    yield model, tuple(name for name in ("start", "step", "best", "guessed") if hasattr(model, name))


def named(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Parameters by the names they have without DDP."""
    return ((name.removeprefix("module."), parameter) for name, parameter in module.named_parameters())


def counted(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """What forward passes count in training and a saved model must have: buffers, but for those that are constants."""
    kept = module.state_dict(keep_vars=True)
    return ((name, buffer) for name, buffer in module.named_buffers() if name in kept)


class Counted:
    """Running statistics of norms in training: the same on all ranks after every update, and undone where a pass does
    not count. Each rank norms by its own rows; what it has counted is averaged."""

    def __init__(self, module: nn.Module, ranks: Ranks) -> None:
        self.ranks, self.tensors = ranks, [buffer for _, buffer in counted(module)]
        self.keep()

    def keep(self) -> None:
        self.before = [tensor.clone() for tensor in self.tensors]

    def undo(self) -> None:
        for tensor, before in zip(self.tensors, self.before, strict=True):
            tensor.copy_(before)

    @torch.no_grad()
    def settle(self, finite: Tensor) -> None:
        """After an update; where its gradient was not `finite`, it was none."""
        if not self.tensors:
            return
        joined = self.ranks.add(torch.cat([tensor.flatten() for tensor in self.tensors])) / self.ranks.world
        now = joined.split([tensor.numel() for tensor in self.tensors])
        for tensor, before, new in zip(self.tensors, self.before, now, strict=True):
            before.copy_(torch.where(finite, new.view_as(before), before))
            tensor.copy_(before)


def whole(tensors: Iterable[tuple[str, Tensor]], keep: bool = True) -> dict[str, Tensor]:
    """Tensors by name with their shards joined, one after the other; only who keeps them needs room for all.

    For shards this is an exchange: every rank must ask alike.
    """
    kept = {}
    for name, tensor in tensors:
        joined = tensor.full_tensor().cpu() if is_shard(tensor) else tensor  # pyright: ignore
        if keep:
            kept[name] = joined
    return kept


def placed(tensor: Tensor, like: Tensor) -> Tensor:
    """`tensor`, which every rank has whole, as `like` is kept: on its device, and cut if that is a shard."""
    tensor = tensor.to(like.device)
    if not is_shard(like) or is_shard(tensor):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = like.device_mesh, like.placements  # pyright: ignore[reportAttributeAccessIssue]
    return distribute_tensor(tensor, mesh, placements, src_data_rank=None)


def is_shard(tensor: Tensor) -> bool:
    return hasattr(tensor, "full_tensor")  # without importing DTensor where nobody shards


def seeded(seed: int, rank: int, step: int) -> None:
    """Random numbers of a rank's own from here on: dropout must differ between ranks."""
    torch.manual_seed(int(np.random.SeedSequence([seed, rank, step]).generate_state(1, np.uint64)[0]))
