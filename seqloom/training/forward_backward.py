"""The forward and the backward pass of one piece of a batch: plain, or recorded once and replayed on a GPU.

A GPU finishes the small kernels of a step sooner than a host can launch them. A CUDA graph launches all of them at
once, but for the very shapes it was recorded with: so pieces are rounded up to few shapes, and those that come back
are recorded. A replay draws the random numbers that the plain pass would have drawn, and moves the generator on as far:
so it does not matter to a resumed run which of its passes were replayed.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.data.batches.batch_source import Piece
from seqloom.errors import SeqloomError
from seqloom.fast.cuda_graphs.record import recording
from seqloom.fast.linear.cpu import halves
from seqloom.fast.triton_common import runtime
from seqloom.parts.state import State, flatten, rebuild
from seqloom.parts.transformer.block import Block
from seqloom.training.distributed.random_state import rng_state, set_rng_state
from seqloom.training.objectives.teacher_forcing import Loss
from seqloom.training.settings import Training

GRAPHS = 128  # recorded at most; other shapes run plainly
BEFORE = 2  # times a shape is met before it is recorded: what comes back once more will come back often


class Passes:
    """A piece in, its loss out, and its gradients added to those that are there."""

    def __init__(self, objective: nn.Module, settings: Training, device: torch.device) -> None:
        self.objective, self.device, self.half = objective, device, in_halves(settings, device)
        runtime.prepare(device)
        self.blocks = [part for part in objective.modules() if isinstance(part, Block)] if settings.compile else []
        self.fused = (
            {name: torch.compile(getattr(Block, name)) for name in ("forward", "within")} if self.blocks else {}
        )
        self.run = torch.compile(objective) if settings.compile and not self.blocks else objective

    def __call__(self, piece: Piece, state: State = None) -> Loss:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half), self._compiled():
            batch = piece.to(self.device)
            loss = self.run(batch) if state is None else self.run(batch, state)
        self._back(loss.total)
        return Loss(loss.total.detach(), loss.count, loss.carried)

    def clear(self) -> None:
        """No gradients."""
        self.objective.zero_grad(set_to_none=True)

    def _back(self, total: Tensor) -> None:
        total.backward()

    @contextmanager
    def _compiled(self) -> Iterator[None]:
        """Blocks are compiled, not the model: all of a kind share one program, so it is ready in a fraction of the
        time. Only here: whoever decodes or watches meets the eager module."""
        for block in self.blocks:
            for name, fused in self.fused.items():
                setattr(block, name, MethodType(fused, block))
        try:
            yield
        finally:
            for block in self.blocks:
                for name in self.fused:
                    delattr(block, name)

    def forget(self) -> None:
        """Give back the memory that is held for later passes."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """A graph, and where it reads and writes."""

    graph: Any  # torch.cuda.CUDAGraph
    batch: Any
    state: list[Tensor]
    loss: Loss

    def replay(self, piece: Any, state: list[Tensor]) -> Loss:
        for place, value in zip((*_tensors(self.batch), *self.state), (*_tensors(piece), *state), strict=True):
            place.copy_(value if value.is_cuda else value.pin_memory(), non_blocking=True)
        self.graph.replay()
        tensors, layout = flatten(self.loss.carried)
        # Copies: the next replay writes over these.
        carried = rebuild(layout, {i: tensor.clone() for i, tensor in enumerate(tensors)})
        return Loss(self.loss.total.clone(), piece.count, carried)


class Captured(Passes):
    """Replays the passes of shapes that come back. `must`: a step that cannot be recorded is an error, not a reason to
    go on plainly.

    Gradients stay where they are, since graphs know them by their place: the first pass of an update writes over what
    is there, those after it add. All graphs share one pool of memory, as no two run at once.
    """

    def __init__(self, objective: nn.Module, settings: Training, device: torch.device) -> None:
        super().__init__(objective, settings, device)
        self.must, self.off = settings.capture == "on", False
        self.parameters = [parameter for parameter in objective.parameters() if parameter.requires_grad]
        # Some parts, as learned positions, reach no further: nothing is padded beyond.
        reach: list[Any] = [getattr(part, "longest", None) for part in objective.modules()]
        self.most: int | None = min((most for most in reach if isinstance(most, int)), default=None)
        self.first = True  # of its update
        self.met: Counter[Any] = Counter()
        self.graphs: dict[Any, Recorded] = {}
        self.pool = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream(device)

    def __call__(self, piece: Piece, state: State = None) -> Loss:
        fixed = piece.rounded(self.most) if hasattr(piece, "rounded") else None  # pyright: ignore[reportAttributeAccessIssue]
        loss = super().__call__(piece, state) if fixed is None else self._fixed(fixed, state)
        self.first = False
        return loss

    def _fixed(self, piece: Any, state: State) -> Loss:
        tensors, layout = flatten(state)
        key = (self.first, _layout(piece), str(layout), tuple(tensor.shape for tensor in tensors))
        self.met[key] += 1
        if key not in self.graphs and self._worth_it(key):
            self._record(key, piece, state)
        if key in self.graphs:
            return self.graphs[key].replay(piece, tensors)
        with self._aside(), self._watched() if self.met[key] == BEFORE else nullcontext():
            loss = super().__call__(piece, state)
        return Loss(loss.total, piece.count, loss.carried)

    def clear(self) -> None:
        self.first = True

    def _back(self, total: Tensor) -> None:
        """One kernel for many gradients: autograd by itself would set each to zero and add to it, two small ones."""
        found = torch.autograd.grad(total, self.parameters, allow_unused=True)
        keep_gradients(self.parameters, found, self.first)

    def forget(self) -> None:
        self.met.clear()
        self.graphs.clear()

    def _worth_it(self, key: Any) -> bool:
        return not self.off and self.met[key] > BEFORE and len(self.graphs) < GRAPHS

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """On the stream that is recorded from: what a first pass sets up, as workspaces, it sets up there."""
        here = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(here)
        with torch.cuda.stream(self.stream):
            yield
        here.wait_stream(self.stream)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Does the host wait for the device in this pass? Such a one cannot be recorded, and trying would leave the
        generator of random numbers unusable."""
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                yield
            finally:
                torch.cuda.set_sync_debug_mode(before)
        if any("called a synchronizing CUDA operation" in str(warning.message) for warning in said):
            self._give_up("some part of the model reads numbers back from the device")

    def _give_up(self, why: str) -> None:
        if self.must:
            raise SeqloomError(f"training.capture: on, but the steps cannot be recorded: {why}")
        self.off = True
        warnings.warn(f"steps are not recorded, which costs speed: {why}", stacklevel=2)

    def _record(self, key: Any, piece: Any, state: State) -> None:
        """Nothing is computed here, only noted down; the replay that follows is this piece's pass."""
        random, graph = rng_state(self.device), torch.cuda.CUDAGraph()
        tensors, layout = flatten(state)
        inputs = [tensor.clone() for tensor in tensors]
        batch = piece.to(self.device)
        there = [parameter.grad for parameter in self.objective.parameters()]
        try:
            with recording(graph, self.pool, self.stream):
                loss = super().__call__(batch, rebuild(layout, dict(enumerate(inputs))))
            if any(p.grad is not g for p, g in zip(self.objective.parameters(), there, strict=True)):
                raise RuntimeError("a parameter met its first gradient while it was recorded")
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            for parameter, gradient in zip(self.objective.parameters(), there, strict=True):
                parameter.grad = gradient
            set_rng_state(random, self.device)
            self._give_up(str(error).splitlines()[0])
            return
        self.graphs[key] = Recorded(graph, batch, inputs, loss)


def keep_gradients(parameters: list[nn.Parameter], found: tuple[Tensor | None, ...], first: bool) -> None:
    """Put new gradients where the parameters' gradients are: the `first` of an update writes over them, others add.

    A place is laid out as its parameter, since fused optimisers take nothing else; autograd may hand over a transpose.
    """
    used = [(p, g) for p, g in zip(parameters, found, strict=True) if g is not None]
    for parameter, _ in used:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    places, new = [p.grad for p, _ in used], [g for _, g in used]
    if not first:
        torch._foreach_add_(places, new)  # pyright: ignore
        return
    torch._foreach_copy_(places, new)  # pyright: ignore
    stale = [p.grad for p, g in zip(parameters, found, strict=True) if g is None and p.grad is not None]
    if stale:
        torch._foreach_zero_(stale)  # pyright: ignore


def in_halves(settings: Training, device: torch.device) -> bool:
    """Whether passes are in bfloat16: where that was asked for and is not slower than the float32 it stands for."""
    return settings.precision == "bf16" and halves(device)


def passes_of(objective: nn.Module, settings: Training, device: torch.device, several: bool = False) -> Passes:
    """How the passes of a training are run, as its settings and the machine allow."""
    if several and settings.compile:
        raise SeqloomError("training.compile goes with one process; leave it out, or train in one")
    # What a graph keeps for the way back is what reversible layers are there not to keep.
    again = any(getattr(part, "reversible", False) for part in objective.modules())
    able = device.type == "cuda" and not several and not again
    if settings.capture == "on" and not able:
        raise SeqloomError(
            "training.capture: on needs a CUDA device, one process and no reversible layers; auto takes what there is"
        )
    return (Captured if able and settings.capture != "off" else Passes)(objective, settings, device)


def _tensors(piece: Any) -> Iterator[Tensor]:
    for field in fields(piece):
        value = getattr(piece, field.name)
        if isinstance(value, Tensor):
            yield value
        elif is_dataclass(value):
            yield from _tensors(value)


def _layout(piece: Any) -> tuple[Any, ...]:
    """All that decides which kernels run: shapes and flags. Numbers are not among them: they may differ at replay."""
    found: list[Any] = [type(piece).__name__]
    for field in fields(piece):
        value = getattr(piece, field.name)
        if isinstance(value, Tensor):
            found.append(tuple(value.shape))
        elif is_dataclass(value):
            found.append(_layout(value))
        elif value is None or isinstance(value, bool):
            found.append(value)
    return tuple(found)
