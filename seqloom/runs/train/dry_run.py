"""A dry run: two steps that write nothing, and an estimate of what the whole training costs."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass, replace

import numpy as np
import torch

from seqloom.plural import counted
from seqloom.tasks.about import Wording
from seqloom.training.loop import Loop
from seqloom.training.objectives.objective import unwrap


@dataclass(frozen=True)
class DryRun:
    """What a training would cost, estimated from a step on its widest batch and one on a median batch."""

    parameters: int
    batches: int  # an epoch
    memory: int  # peak bytes of the GPU, else of the whole process
    step: float  # seconds of a step on the median batch
    epoch: float  # seconds
    total: float  # seconds until steps, epochs or time are used up
    patience: bool  # early stopping may end it sooner
    loss: float  # of the first step
    unit: str  # of the loss: nats per token, …
    device: str

    def lines(self) -> list[str]:
        """The lines that the terminal shows."""
        total = f"{'at most' if self.patience else 'about'} {clock(self.total)} in all"
        return [
            f"{self.parameters:,} parameters on {self.device}",
            f"{counted(self.batches, 'batches')} an epoch, {self.step * 1000:,.0f} ms a step",
            f"{self.memory / 2**20:,.0f} MiB at the highest point (the widest batch)",
            f"about {clock(self.epoch)} an epoch, {total}; validation not counted",
            f"first loss {self.loss:.3f} {self.unit}",
        ]


def two_steps(loop: Loop, words: Wording) -> DryRun:
    """Take two steps: on the widest batch, which needs most memory, and on the median one, which is timed."""
    settings, costs = loop.settings, loop.source.costs(loop.plan)
    loop.settings = replace(settings, max_steps=None, epochs=None, time=None)  # no limit below two steps
    order = np.argsort(costs, kind="stable")
    widest, middle = int(order[-1]), int(order[len(order) // 2])
    first, _ = _step(loop, widest)
    _, seconds = _step(loop, middle)
    epoch = seconds * float(costs.sum()) / float(costs[middle : middle + settings.accumulate].sum())
    on_gpu, device = loop.device.type == "cuda", loop.device
    limits = [
        settings.max_steps and settings.max_steps * epoch / max(len(costs) / settings.accumulate, 1),
        settings.epochs and settings.epochs * epoch,
        settings.time,
    ]
    return DryRun(
        parameters=sum(parameter.numel() for parameter in loop.objective.parameters()),
        batches=len(costs),
        memory=torch.cuda.max_memory_allocated(device)
        if on_gpu
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        step=seconds,
        epoch=epoch,
        total=min(float(limit) for limit in limits if limit),
        patience=settings.patience is not None,
        loss=first,
        unit=words.loss(not unwrap(loop.objective).in_nats),
        device=str(device),
    )


def clock(seconds: float) -> str:
    """`45 s`, `3.5 min` or `2.1 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 1 else "1 s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _step(loop: Loop, batch: int) -> tuple[float, float]:
    """Mean loss and seconds of one update from batch number `batch`."""
    loop.position = batch
    started = time.perf_counter()
    for update in loop:
        count = float(update.count)  # waits for the device
        return float(update.loss) / max(count, 1.0), time.perf_counter() - started
    raise RuntimeError("the loop was finished before it began")
