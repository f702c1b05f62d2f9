"""The loop: a generator of updates. Logging, validating, saving and stopping live outside, where it is driven."""

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

from seqloom.data.batches.batch_source import Piece, Supply
from seqloom.data.batches.bucketing import Plan
from seqloom.errors import SeqloomError
from seqloom.fast.malloc import keep_freed
from seqloom.parts.state import State, join, pick, rebuild
from seqloom.training.distributed.processes import ALONE, Ranks
from seqloom.training.distributed.random_state import random_states, restore_random, rng_state, set_rng_state
from seqloom.training.distributed.sharding import Counted, gathered, pieces, portion, seeded
from seqloom.training.forward_backward import passes_of
from seqloom.training.objectives.teacher_forcing import Loss
from seqloom.training.optim.optimizer import (
    Late,
    Plateau,
    apply,
    optimiser,
    optimiser_state,
    rate_at,
    restore_optimiser,
)
from seqloom.training.optim.weight_averaging import Averaging
from seqloom.training.settings import Training

PATIENCE_WITH_NAN = 5
COUNTERS = ("step", "epoch", "position", "pieces", "bad_in_a_row")


@dataclass(frozen=True)
class Update:
    """What one update did. Its tensors stay on the device: reading one makes the host wait."""

    step: int
    epoch: int
    loss: Tensor  # summed over all ranks; 0 where the update was skipped
    norm: Tensor  # of the gradient of the mean loss, before clipping
    count: Tensor  # real target tokens; 0 where the update was skipped
    rate: float
    ends_epoch: bool
    skipped: dict[str, Any] | None  # an earlier update that was skipped for a loss or gradient that is not finite


class Loop:
    """All that a training run remembers: step, place in the data, optimiser, random states. Iterating trains.

    What DDP or FSDP wraps is the objective; it is called, never reached into. All ranks hold the same plan and take
    their own rows of each of its batches.
    """

    def __init__(
        self, objective: nn.Module, supply: Supply, settings: Training, device: torch.device, ranks: Ranks = ALONE
    ) -> None:
        self.objective, self.supply, self.settings, self.device = objective, supply, settings, device
        self.ranks = ranks
        if device.type == "cpu":
            keep_freed()
        self.optimiser = optimiser(objective, settings)
        self.passes = passes_of(objective, settings, device, ranks.several)
        self.step = 0
        self.epoch = 0
        self.position = 0  # batches of this epoch already used
        self.pieces = 1  # micro-batches a batch: doubled when memory runs out
        self.bad_in_a_row = 0
        self.carried: State = None  # where the next batch goes on, where batches continue one another
        self.plateau = Plateau()
        self.averaging = Averaging(objective, settings, device)
        self.counted = Counted(objective, ranks)
        self.spent = 0.0  # seconds of training, over all resumes
        self.elapsed = 0.0  # the same as all ranks agree on it: the first rank's, a step late
        self.asked: int | None = None  # the signal by which this process was asked to stop
        self.agreed = False  # that some rank was
        self.plan = self._plan()
        self._flag: tuple[Late, Late | None, dict[str, Any]] | None = None
        if ranks.several:
            if any(parameter.requires_grad for parameter in objective.parameters()):  # else it is counted, not trained
                self._warm_up()
            seeded(settings.seed, ranks.rank, 0)

    def __iter__(self) -> Iterator[Update]:
        self.objective.train()
        self.counted.keep()
        while not self.finished():
            started = time.monotonic()
            if self.position >= len(self.plan):
                self.epoch, self.position, self.carried = self.epoch + 1, 0, None
                self.plan = self._plan()
            update = self._update()
            self.spent += time.monotonic() - started
            if not self.ranks.several:
                self.elapsed = self.spent
            yield update
        self.settle()

    def finished(self) -> bool:
        """Steps, epochs or time are used up; patience is the driver's."""
        s = self.settings
        epochs = self.epoch + (self.position >= len(self.plan))
        return bool(
            (s.max_steps and self.step >= s.max_steps)
            or (s.epochs and epochs >= s.epochs)
            or (s.time and self.elapsed >= s.time)
        )

    @property
    def stopping(self) -> int | None:
        """The signal to stop for, once every rank knows of it."""
        if not self.ranks.several:
            return self.asked
        return (self.asked or signal.SIGTERM) if self.agreed else None

    def progress(self) -> float:
        """The share of the training that is done, by whichever end is nearest."""
        s = self.settings
        epochs = self.epoch + self.position / max(len(self.plan), 1)
        shares = [(self.step, s.max_steps), (epochs, s.epochs), (self.elapsed, s.time)]
        return min(1.0, max((done / total for done, total in shares if total), default=0.0))

    def _plan(self) -> Plan:
        s = self.settings
        return self.supply.plan(seed=s.seed, epoch=self.epoch, batch_tokens=s.batch_tokens, batch_rows=s.batch_rows)

    def _update(self) -> Update:
        end = min(self.position + self.settings.accumulate, len(self.plan))
        rows = [self.plan[i] for i in range(self.position, end)]
        rate = rate_at(self.step + 1, self.settings, self.progress(), self.plateau.factor)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        loss = self._accumulate([portion(self.supply, chosen, self.ranks) for chosen in rows])
        skipped = self.settle()  # of the update before, while this one's gradients are still on their way
        loss, agreed = self._joined(loss, rows)
        # DDP and FSDP average over ranks what is a sum.
        norm = apply(self.optimiser, self.objective.parameters(), loss.count / self.ranks.world, self.settings.clip)
        self.passes.clear()
        self.step, self.position = self.step + 1, end
        where = {"step": self.step, "epoch": self.epoch, "rows": [row for chosen in rows for row in chosen.tolist()]}
        self._flag = (Late(norm), agreed, where)
        finite = norm.isfinite()
        self.averaging.add(finite)
        self.counted.settle(finite)
        return Update(
            step=self.step,
            epoch=self.epoch,
            loss=torch.where(finite, loss.total, 0.0),
            norm=torch.where(finite, norm, 0.0),
            count=finite * loss.count,
            rate=rate,
            ends_epoch=self.position >= len(self.plan),
            skipped=skipped,
        )

    def _joined(self, loss: Loss, rows: list[np.ndarray]) -> tuple[Loss, Late | None]:
        """The loss of all ranks. What else they must agree on travels with it: one small sum a step.

        How many tokens the batch holds is known to each from the plan. The first rank's clock is everybody's: the rate
        may depend on it.
        """
        if not self.ranks.several:
            return loss, None
        clock = self.spent if self.ranks.first else 0.0
        mine = torch.tensor([self.asked is not None, clock], dtype=torch.float64).to(self.device, non_blocking=True)
        ours = self.ranks.add(torch.cat([loss.total.double()[None], mine]))
        count = sum(self.supply.count(chosen) for chosen in rows)
        return Loss(ours[0].to(loss.total.dtype), count), Late(ours[1:])

    def _warm_up(self) -> None:
        """One step that counts for nothing, before the first and before every resume.

        DDP orders its buckets by the first backward pass: done here, a resumed run adds in the same order as one that
        went through. FSDP makes its buffers in the first pass, and those made under inference could not be trained.
        """
        self._backward([[self.supply.batch(self.plan[0][:1]).emptied()]])
        self.passes.clear()
        self.counted.undo()
        self.carried = None

    def _accumulate(self, batches: list[Piece]) -> Loss:
        """Gradients of the summed loss of all batches. Out of memory: the same batches again in smaller pieces."""
        while True:
            random, carried = rng_state(self.device), self.carried
            try:
                return self._backward([self._pieces(batch) for batch in batches])
            except RuntimeError as error:
                rows = max(len(batch.rows) for batch in batches)
                if _out_of_memory(error) and self.ranks.several:
                    raise SeqloomError(
                        f"{self.ranks}: out of memory, and the others are in the middle of an exchange with it, so the "
                        "batch cannot be repeated in pieces; lower training.batch_rows (or batch_tokens) and raise "
                        "training.accumulate as much"
                    ) from error
                if not _out_of_memory(error) or self.pieces >= rows:
                    raise
            self.passes.clear()
            self.passes.forget()
            self.counted.undo()
            set_rng_state(random, self.device)
            self.carried = carried
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            self.pieces *= 2

    def _pieces(self, batch: Piece) -> list[Piece]:
        return pieces(batch, self.pieces) if self.ranks.several else batch.pieces(self.pieces)

    def _backward(self, batches: list[list[Piece]]) -> Loss:
        """Batches in pieces. Each piece goes on from its own rows of the state, and all together hand it on."""
        total, count = torch.zeros((), device=self.device), 0
        # Gradients are exchanged once, with the last piece. Not so where they are sharded: to keep them until then,
        # every rank would need room for all of them, and they are sharded for want of it.
        alone = getattr(self.objective, "no_sync", nullcontext)
        left = sum(map(len, batches))
        for cut in batches:
            states, first = [], 0
            for piece in cut:
                left -= 1
                state = self._rows(first, len(piece.rows)) if len(cut) > 1 else self.carried
                with alone() if left else nullcontext():
                    loss = self.passes(piece, state)
                first += len(piece.rows)
                states += [] if loss.carried is None else [loss.carried]
                total, count = total + loss.total, count + loss.count
            self.carried = states[0] if len(states) == 1 else join(states) if states else None
        return Loss(total, count)

    def _rows(self, first: int, count: int) -> State:
        """Some rows of the carried state; an emptied piece, which has none, goes on from nothing."""
        if self.carried is None or not count:
            return None
        return pick(self.carried, torch.arange(first, first + count, device=self.device))

    def settle(self) -> dict[str, Any] | None:
        """Read the flag of the last update: says where it was if it was skipped; five in a row end the training."""
        if self._flag is None:
            return None
        (late, agreed, where), self._flag = self._flag, None
        norm = late.read()
        if agreed is not None:
            asked, self.elapsed = agreed.wait().tolist()
            self.agreed = asked > 0
        if np.isfinite(norm):
            self.bad_in_a_row = 0
            return None
        self.bad_in_a_row += 1
        if self.bad_in_a_row >= PATIENCE_WITH_NAN:
            raise NonFiniteError(where)
        return where

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything needed to go on exactly from here, but for the weights: tensors, and the rest as JSON.

        Whole on the first rank; the others take part and get less.
        """
        carried, layout = gathered(self.carried, self.ranks)
        means, averaging = self.averaging.state(self.ranks.first)
        tensors = {
            "order": torch.from_numpy(np.ascontiguousarray(self.plan.order)),
            "ends": torch.from_numpy(np.ascontiguousarray(self.plan.ends)),
            **random_states(self.device, self.ranks),
            **carried,
            **means,
            **optimiser_state(self.optimiser, self.objective, self.ranks.first),
        }
        plateau = {"factor": self.plateau.factor, "worse": self.plateau.worse}
        more = {"elapsed": self.spent, "plateau": plateau, "averaging": averaging, "processes": self.ranks.world}
        if layout is not None:
            more["carried"] = layout
        return tensors, {name: getattr(self, name) for name in COUNTERS} | more

    def restore(self, tensors: Mapping[str, Tensor], values: dict[str, Any]) -> None:
        """The random states come last: nothing after them may draw a number."""
        self.plan = Plan(tensors["order"].cpu().numpy(), tensors["ends"].cpu().numpy())
        self.plan.check()
        self.supply.costs(self.plan)  # an error where a row is not there, before anything is trained
        self.plateau = Plateau(**values["plateau"])
        for name in COUNTERS:
            setattr(self, name, values[name])
        self.spent = self.elapsed = values["elapsed"]
        restore_optimiser(self.optimiser, self.objective, tensors)
        self.averaging.restore(tensors, values.get("averaging"))
        kept: dict[int, dict[int, Tensor]] = {}
        for name in (name for name in tensors if name.startswith("carried.")):
            rank, number = map(int, name.split(".")[1:])
            kept.setdefault(rank, {})[number] = tensors[name].to(self.device)
        if values.get("processes", 1) == self.ranks.world:
            # Other processes would have other rows: there the next batch begins afresh.
            states = kept.get(self.ranks.rank)  # none where a rank has no rows
            self.carried = rebuild(values["carried"], states) if states else None
            restore_random(tensors, self.device, self.ranks)
        else:
            seeded(self.settings.seed, self.ranks.rank, self.step)


class NonFiniteError(SeqloomError):
    """The loss or its gradient was not finite five times in a row."""

    def __init__(self, where: dict[str, Any]) -> None:
        self.where = where
        rows = ", ".join(str(row) for row in where["rows"][:5])
        super().__init__(
            f"loss or gradient not finite {PATIENCE_WITH_NAN} times in a row, last at step {where['step']} (training "
            f"rows {rows} …); the weights are those before it. Lower training.rate or training.clip"
        )


def _out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)
