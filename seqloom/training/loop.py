"""The training loop: a generator of updates. The caller logs, validates, saves and stops."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.data.batches.batch_source import AnyBatch, BatchSource
from seqloom.data.batches.bucketing import Plan
from seqloom.errors import SeqloomError
from seqloom.parts.state import State, join, pick, rebuild
from seqloom.training.distributed.processes import ALONE, Ranks
from seqloom.training.distributed.random_state import random_states, restore_random, rng_state, set_rng_state
from seqloom.training.distributed.sharding import (
    RunningStatistics,
    exact_micro_batches,
    gather_states,
    rank_batch,
    seed_rank,
)
from seqloom.training.forward_backward import make_forward_backward
from seqloom.training.objectives.objective import Loss
from seqloom.training.optim.optimizer import apply_gradients, make_optimizer, optimizer_state, restore_optimizer
from seqloom.training.optim.pending_value import PendingValue
from seqloom.training.optim.schedule import Plateau, learning_rate_at
from seqloom.training.optim.weight_averaging import Averaging
from seqloom.training.out_of_memory import check_recoverable
from seqloom.training.settings import Training

MAX_NAN = 5  # updates in a row
# Names in a checkpoint, and attributes of the loop.
COUNTERS = {name: name for name in ("step", "epoch", "position")} | {
    "pieces": "micro_batches",
    "bad_in_a_row": "nan_in_a_row",
}


@dataclass(frozen=True)
class Update:
    """The result of one update. Its tensors are on the device: reading one makes the host wait."""

    step: int
    epoch: int
    loss: Tensor  # summed over all ranks; 0 where the update was skipped
    grad_norm: Tensor  # of the gradient of the mean loss, before clipping
    count: Tensor  # real target tokens; 0 where the update was skipped
    learning_rate: float
    ends_epoch: bool
    skipped: dict[str, Any] | None  # an earlier update that was skipped: its loss or gradient was not finite


class Loop:
    """The state of a training run: step, position in the data, optimizer, random states. Iterating over it trains.

    DDP or FSDP wraps the objective, which is only called. All ranks have the same plan and take their own rows of each
    batch.
    """

    def __init__(
        self, objective: nn.Module, source: BatchSource, settings: Training, device: torch.device, ranks: Ranks = ALONE
    ) -> None:
        self.objective, self.source, self.settings, self.device = objective, source, settings, device
        self.ranks = ranks
        self.optimizer = make_optimizer(objective, settings)
        self.forward_backward = make_forward_backward(objective, settings, device, ranks.distributed)
        self.step = 0
        self.epoch = 0
        self.position = 0  # batches of this epoch already used
        self.micro_batches = 1  # a batch; doubled when memory runs out
        self.nan_in_a_row = 0
        self.carried: State = None  # the state that the next batch starts from, where batches continue one another
        self.plateau = Plateau()
        self.averaging = Averaging(objective, settings, device)
        self.statistics = RunningStatistics(objective, ranks)
        self.spent = 0.0  # seconds of training, over all resumes, by this rank's clock
        self.elapsed = 0.0  # the same by the first rank's clock, a step late: all ranks agree on it
        self.stop_signal: int | None = None  # the signal by which this process was asked to stop
        self.any_stops = False  # whether any rank was asked; the same on all ranks
        self.plan = self._plan()
        self._last: tuple[PendingValue, PendingValue | None, dict[str, Any]] | None = None
        if ranks.distributed:
            if any(
                parameter.requires_grad for parameter in objective.parameters()
            ):  # else nothing is trained by gradients
                self._warm_up()
            seed_rank(settings.seed, ranks.rank, 0)

    def __iter__(self) -> Iterator[Update]:
        self.objective.train()
        self.statistics.snapshot()
        while not self.finished():
            started = time.monotonic()
            if self.position >= len(self.plan):
                self.epoch, self.position, self.carried = self.epoch + 1, 0, None
                self.plan = self._plan()
            update = self._update()
            self.spent += time.monotonic() - started
            if not self.ranks.distributed:
                self.elapsed = self.spent
            yield update
        self.check_last()

    def finished(self) -> bool:
        """Steps, epochs or time are used up; the session handles early stopping."""
        s = self.settings
        epochs = self.epoch + (self.position >= len(self.plan))
        return bool(
            (s.max_steps and self.step >= s.max_steps)
            or (s.epochs and epochs >= s.epochs)
            or (s.time and self.elapsed >= s.time)
        )

    @property
    def stopping(self) -> int | None:
        """The signal to stop for, once all ranks know of it."""
        if not self.ranks.distributed:
            return self.stop_signal
        return (self.stop_signal or signal.SIGTERM) if self.any_stops else None

    def progress(self) -> float:
        """The share of the training that is done, by the nearest limit."""
        s = self.settings
        epochs = self.epoch + self.position / max(len(self.plan), 1)
        shares = [(self.step, s.max_steps), (epochs, s.epochs), (self.elapsed, s.time)]
        return min(1.0, max((done / total for done, total in shares if total), default=0.0))

    def _plan(self) -> Plan:
        s = self.settings
        return self.source.plan(seed=s.seed, epoch=self.epoch, batch_tokens=s.batch_tokens, batch_rows=s.batch_rows)

    def _update(self) -> Update:
        end = min(self.position + self.settings.accumulate, len(self.plan))
        rows = [self.plan[i] for i in range(self.position, end)]
        rate = learning_rate_at(self.step + 1, self.settings, self.progress(), self.plateau.factor)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = self._accumulate([rank_batch(self.source, chosen, self.ranks) for chosen in rows])
        skipped = self.check_last()  # of the previous update, while the gradients of this one are being computed
        loss, pending = self._sum_over_ranks(loss, rows)
        # DDP and FSDP average over ranks where a sum is wanted.
        norm = apply_gradients(
            self.optimizer, self.objective.parameters(), loss.count / self.ranks.world, self.settings.clip
        )
        self.forward_backward.clear_gradients()
        self.step, self.position = self.step + 1, end
        where = {"step": self.step, "epoch": self.epoch, "rows": [row for chosen in rows for row in chosen.tolist()]}
        self._last = (PendingValue(norm), pending, where)
        finite = norm.isfinite()
        self.averaging.add(finite)
        self.statistics.synchronize(finite)
        return Update(
            step=self.step,
            epoch=self.epoch,
            loss=torch.where(finite, loss.total, 0.0),
            grad_norm=torch.where(finite, norm, 0.0),
            count=finite * loss.count,
            learning_rate=rate,
            ends_epoch=self.position >= len(self.plan),
            skipped=skipped,
        )

    def _sum_over_ranks(self, loss: Loss, rows: list[np.ndarray]) -> tuple[Loss, PendingValue | None]:
        """The loss of all ranks, in one all-reduce per step together with stop signals and the first rank's clock, on
        which the learning rate may depend. Each rank knows the token count from the plan.
        """
        if not self.ranks.distributed:
            return loss, None
        clock = self.spent if self.ranks.first else 0.0
        mine = torch.tensor([self.stop_signal is not None, clock], dtype=torch.float64).to(
            self.device, non_blocking=True
        )
        ours = self.ranks.all_reduce(torch.cat([loss.total.double()[None], mine]))
        count = sum(self.source.count(chosen) for chosen in rows)
        return Loss(ours[0].to(loss.total.dtype), count), PendingValue(ours[1:])

    def _warm_up(self) -> None:
        """One step on a row of weight zero, before the first and before every resume.

        DDP orders its buckets by the first backward pass: done here, a resumed run adds in the same order as an
        uninterrupted one. FSDP makes its buffers in the first pass; under inference mode they could not be trained.
        """
        self._backward([[self.source.batch(self.plan[0][:1]).zero_weight_row()]])
        self.forward_backward.clear_gradients()
        self.statistics.undo()
        self.carried = None

    def _accumulate(self, batches: list[AnyBatch]) -> Loss:
        """Gradients of the summed loss of all batches. Out of memory: again in smaller micro-batches."""
        while True:
            random, carried = rng_state(self.device), self.carried
            try:
                return self._backward([self._split(batch) for batch in batches])
            except RuntimeError as error:
                rows = max(len(batch.rows) for batch in batches)
                check_recoverable(error, self.ranks, self.micro_batches, rows)
            self.forward_backward.clear_gradients()
            self.statistics.undo()
            set_rng_state(random, self.device)
            self.carried = carried
            self.forward_backward.release_memory()
            self.micro_batches *= 2

    def _split(self, batch: AnyBatch) -> list[AnyBatch]:
        return (
            exact_micro_batches(batch, self.micro_batches)
            if self.ranks.distributed
            else batch.micro_batches(self.micro_batches)
        )

    def _backward(self, batches: list[list[AnyBatch]]) -> Loss:
        """Batches in micro-batches. Each starts from its own rows of the state; together they give the next state."""
        total, count = torch.zeros((), device=self.device), 0
        # DDP reduces gradients once, with the last micro-batch; FSDP with each, since unsharded gradients may not fit.
        no_sync = getattr(self.objective, "no_sync", nullcontext)
        left = sum(map(len, batches))
        for parts in batches:
            states, first = [], 0
            for micro_batch in parts:
                left -= 1
                state = self._state_rows(first, len(micro_batch.rows)) if len(parts) > 1 else self.carried
                with no_sync() if left else nullcontext():
                    loss = self.forward_backward(micro_batch, state)
                first += len(micro_batch.rows)
                states += [] if loss.carried is None else [loss.carried]
                total, count = total + loss.total, count + loss.count
            self.carried = states[0] if len(states) == 1 else join(states) if states else None
        return Loss(total, count)

    def _state_rows(self, first: int, count: int) -> State:
        """Some rows of the carried state; a row of weight zero starts without one."""
        if self.carried is None or not count:
            return None
        return pick(self.carried, torch.arange(first, first + count, device=self.device))

    def check_last(self) -> dict[str, Any] | None:
        """Read the gradient norm of the last update; where it was if it was skipped. Five in a row end the training."""
        if self._last is None:
            return None
        (norm, pending, where), self._last = self._last, None
        if pending is not None:
            stops, self.elapsed = pending.wait().tolist()
            self.any_stops = stops > 0
        if np.isfinite(norm.read()):
            self.nan_in_a_row = 0
            return None
        self.nan_in_a_row += 1
        if self.nan_in_a_row >= MAX_NAN:
            raise NonFiniteError(where)
        return where

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything but the weights that is needed to resume exactly: tensors, and the rest as JSON.

        Complete on the first rank only; all ranks must call it.
        """
        carried, layout = gather_states(self.carried, self.ranks)
        means, averaging = self.averaging.state(self.ranks.first)
        tensors = {
            "order": torch.from_numpy(np.ascontiguousarray(self.plan.order)),
            "ends": torch.from_numpy(np.ascontiguousarray(self.plan.ends)),
            **random_states(self.device, self.ranks),
            **carried,
            **means,
            **optimizer_state(self.optimizer, self.objective, self.ranks.first),
        }
        plateau = {"factor": self.plateau.factor, "worse": self.plateau.worse}
        more = {"elapsed": self.spent, "plateau": plateau, "averaging": averaging, "processes": self.ranks.world}
        if layout is not None:
            more["carried"] = layout
        return tensors, {name: getattr(self, own) for name, own in COUNTERS.items()} | more

    def restore(self, tensors: Mapping[str, Tensor], values: dict[str, Any]) -> None:
        """Restore `state`. Random states come last: nothing may draw after them."""
        self.plan = Plan(tensors["order"].cpu().numpy(), tensors["ends"].cpu().numpy())
        self.plan.check()
        self.source.costs(self.plan)  # an error now if the data lacks a row
        self.plateau = Plateau(**values["plateau"])
        for name, own in COUNTERS.items():
            setattr(self, own, values[name])
        self.spent = self.elapsed = values["elapsed"]
        restore_optimizer(self.optimizer, self.objective, tensors)
        self.averaging.restore(tensors, values.get("averaging"))
        carried: dict[int, dict[int, Tensor]] = {}
        for name in (name for name in tensors if name.startswith("carried.")):
            rank, number = map(int, name.split(".")[1:])
            carried.setdefault(rank, {})[number] = tensors[name].to(self.device)
        if values.get("processes", 1) == self.ranks.world:
            # With another number of processes the rows differ: then the next batch starts without a state.
            states = carried.get(self.ranks.rank)  # none where a rank has no rows
            self.carried = rebuild(values["carried"], states) if states else None
            restore_random(tensors, self.device, self.ranks)
        else:
            seed_rank(self.settings.seed, self.ranks.rank, self.step)


class NonFiniteError(SeqloomError):
    """The loss or its gradient was not finite five times in a row."""

    def __init__(self, where: dict[str, Any]) -> None:
        self.where = where
        rows = ", ".join(str(row) for row in where["rows"][:5])
        super().__init__(
            f"loss or gradient not finite {MAX_NAN} times in a row, last at step {where['step']} (training "
            f"rows {rows} …); the weights are those before it. Lower training.learning_rate or training.clip"
        )
