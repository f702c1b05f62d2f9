"""The forward and the backward pass of one micro-batch, recorded once as a CUDA graph and replayed.

A GPU finishes the small kernels of a step faster than the host launches them. A CUDA graph launches all at once, for
fixed shapes: so micro-batches are padded to few shapes, and recurring shapes are recorded. A replay draws the same
random numbers as the eager pass, so a resumed run does not depend on which passes were replayed.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.data.batches.batch_source import AnyBatch
from seqloom.errors import SeqloomError
from seqloom.fast.cuda_graphs.compiled_blocks import CompiledForwardBackward
from seqloom.fast.cuda_graphs.record import recording
from seqloom.parts.state import State, flatten, rebuild
from seqloom.training.distributed.random_state import rng_state, set_rng_state
from seqloom.training.objectives.objective import Loss
from seqloom.training.settings import Training

MOST_GRAPHS = 128  # further shapes run without a graph
PLAIN_RUNS = 2  # of a shape before it is recorded


@dataclass(frozen=True, eq=False)
class RecordedGraph:
    """A graph with its input and output tensors."""

    graph: Any  # torch.cuda.CUDAGraph
    batch: Any
    state: list[Tensor]
    loss: Loss

    def replay(self, micro_batch: Any, state: list[Tensor]) -> Loss:
        for place, value in zip((*_tensors(self.batch), *self.state), (*_tensors(micro_batch), *state), strict=True):
            place.copy_(value if value.is_cuda else value.pin_memory(), non_blocking=True)
        self.graph.replay()
        tensors, layout = flatten(self.loss.carried)
        # Clones: the next replay overwrites these.
        carried = rebuild(layout, {i: tensor.clone() for i, tensor in enumerate(tensors)})
        return Loss(self.loss.total.clone(), micro_batch.count, carried)


class GraphedForwardBackward(CompiledForwardBackward):
    """Replays the passes of recurring shapes. `required`: a step that cannot be recorded is an error.

    Gradients keep their memory, whose addresses graphs hold: the first pass of an update overwrites them, later ones
    add. All graphs share one memory pool, as no two run at once.
    """

    def __init__(self, objective: nn.Module, settings: Training, device: torch.device) -> None:
        super().__init__(objective, settings, device)
        self.required, self.disabled = settings.cuda_graphs == "on", False
        self.parameters = [parameter for parameter in objective.parameters() if parameter.requires_grad]
        # Some parts, such as learned positions, have a maximum length: never pad beyond it.
        bounds: list[Any] = [getattr(part, "longest", None) for part in objective.modules()]
        self.longest: int | None = min((bound for bound in bounds if isinstance(bound, int)), default=None)
        self.first = True  # pass of its update
        self.seen: Counter[Any] = Counter()
        self.graphs: dict[Any, RecordedGraph] = {}
        self.pool = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream(device)

    def __call__(self, micro_batch: AnyBatch, state: State = None) -> Loss:
        fixed = micro_batch.pad_to_bucket(self.longest) if hasattr(micro_batch, "pad_to_bucket") else None  # pyright: ignore[reportAttributeAccessIssue]
        loss = super().__call__(micro_batch, state) if fixed is None else self._fixed_shape(fixed, state)
        self.first = False
        return loss

    def _fixed_shape(self, micro_batch: Any, state: State) -> Loss:
        tensors, layout = flatten(state)
        key = (self.first, _layout(micro_batch), str(layout), tuple(tensor.shape for tensor in tensors))
        self.seen[key] += 1
        may_record = not self.disabled and self.seen[key] > PLAIN_RUNS and len(self.graphs) < MOST_GRAPHS
        if key not in self.graphs and may_record:
            self._record(key, micro_batch, state)
        if key in self.graphs:
            return self.graphs[key].replay(micro_batch, tensors)
        with self._side_stream(), self._detecting_waits() if self.seen[key] == PLAIN_RUNS else nullcontext():
            loss = super().__call__(micro_batch, state)
        return Loss(loss.total, micro_batch.count, loss.carried)

    def clear_gradients(self) -> None:
        self.first = True

    def backward(self, total: Tensor) -> None:
        """One kernel for many gradients; `backward` would launch two small ones for each."""
        gradients = torch.autograd.grad(total, self.parameters, allow_unused=True)
        store_gradients(self.parameters, gradients, self.first)

    def release_memory(self) -> None:
        self.seen.clear()
        self.graphs.clear()
        super().release_memory()

    @contextmanager
    def _side_stream(self) -> Iterator[None]:
        """Run on the stream of the recordings, so that workspaces are set up there."""
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            yield
        current.wait_stream(self.stream)

    @contextmanager
    def _detecting_waits(self) -> Iterator[None]:
        """Detect whether the host waits for the device in this pass: then it cannot be recorded, and trying would leave
        the random number generator unusable."""
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                yield
            finally:
                torch.cuda.set_sync_debug_mode(before)
        if any("called a synchronizing CUDA operation" in str(warning.message) for warning in caught):
            self._disable("some part of the model reads numbers back from the device")

    def _disable(self, why: str) -> None:
        if self.required:
            raise SeqloomError(f"training.cuda_graphs: on, but the steps cannot be recorded: {why}")
        self.disabled = True
        warnings.warn(f"steps are not recorded, which costs speed: {why}", stacklevel=2)

    def _record(self, key: Any, micro_batch: Any, state: State) -> None:
        """Record without computing; the replay that follows is the pass of this micro-batch."""
        random, graph = rng_state(self.device), torch.cuda.CUDAGraph()
        tensors, layout = flatten(state)
        inputs = [tensor.clone() for tensor in tensors]
        batch = micro_batch.to(self.device)
        before_grads = [parameter.grad for parameter in self.objective.parameters()]
        try:
            with recording(graph, self.pool, self.stream):
                loss = super().__call__(batch, rebuild(layout, dict(enumerate(inputs))))
            if any(p.grad is not g for p, g in zip(self.objective.parameters(), before_grads, strict=True)):
                raise RuntimeError("a parameter met its first gradient while it was recorded")
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            for parameter, gradient in zip(self.objective.parameters(), before_grads, strict=True):
                parameter.grad = gradient
            set_rng_state(random, self.device)
            self._disable(str(error).splitlines()[0])
            return
        self.graphs[key] = RecordedGraph(graph, batch, inputs, loss)


def store_gradients(parameters: list[nn.Parameter], gradients: tuple[Tensor | None, ...], first: bool) -> None:
    """Write new gradients into the parameters' gradients: the `first` pass of an update overwrites them, others add.

    Each has the layout of its parameter, as fused optimizers require; autograd may return a transpose.
    """
    used = [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None]
    for parameter, _ in used:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    places, new = [p.grad for p, _ in used], [g for _, g in used]
    if not first:
        torch._foreach_add_(places, new)  # pyright: ignore
        return
    torch._foreach_copy_(places, new)  # pyright: ignore
    stale = [p.grad for p, g in zip(parameters, gradients, strict=True) if g is None and p.grad is not None]
    if stale:
        torch._foreach_zero_(stale)  # pyright: ignore


def _tensors(micro_batch: Any) -> Iterator[Tensor]:
    for field in fields(micro_batch):
        value = getattr(micro_batch, field.name)
        if isinstance(value, Tensor):
            yield value
        elif is_dataclass(value):
            yield from _tensors(value)


def _layout(micro_batch: Any) -> tuple[Any, ...]:
    """Everything that determines the kernels: shapes and flags, but no values, which may differ at replay."""
    layout: list[Any] = [type(micro_batch).__name__]
    for field in fields(micro_batch):
        value = getattr(micro_batch, field.name)
        if isinstance(value, Tensor):
            layout.append(tuple(value.shape))
        elif is_dataclass(value):
            layout.append(_layout(value))
        elif value is None or isinstance(value, bool):
            layout.append(value)
    return tuple(layout)
