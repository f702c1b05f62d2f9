"""The loop: a generator of updates. Logging, validating, saving and stopping live outside, where it is driven."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.data.batch import Batch
from seqloom.data.order import Plan, plan
from seqloom.data.store import Corpus
from seqloom.errors import SeqloomError
from seqloom.training.objective import Loss
from seqloom.training.optimise import Late, Plateau, apply, optimiser, rate_at
from seqloom.training.settings import Training

PATIENCE_WITH_NAN = 5


@dataclass(frozen=True)
class Update:
    """What one update did. Its tensors stay on the device: reading one makes the host wait."""

    step: int
    epoch: int
    loss: Tensor  # summed; 0 where the update was skipped
    norm: Tensor  # of the gradient of the mean loss, before clipping
    count: Tensor  # real target tokens; 0 where the update was skipped
    rate: float
    ends_epoch: bool
    skipped: dict[str, Any] | None  # an earlier update that was skipped for a loss or gradient that is not finite


class Loop:
    """All that a training run remembers: step, place in the data, optimiser, random states. Iterating trains.

    What DDP or FSDP wraps is the objective; it is called, never reached into.
    """

    def __init__(self, objective: nn.Module, corpus: Corpus, settings: Training, device: torch.device) -> None:
        self.objective, self.corpus, self.settings, self.device = objective, corpus, settings, device
        self.optimiser = optimiser(objective, settings)
        self.step = 0
        self.epoch = 0
        self.position = 0  # batches of this epoch already used
        self.pieces = 1  # micro-batches a batch: doubled when memory runs out
        self.bad_in_a_row = 0
        self.plateau = Plateau()
        self.elapsed = 0.0  # seconds of training, over all resumes
        self.plan = self._plan()
        self._flag: tuple[Late, dict[str, Any]] | None = None

    def __iter__(self) -> Iterator[Update]:
        self.objective.train()
        while not self.finished():
            started = time.monotonic()
            if self.position >= len(self.plan):
                self.epoch, self.position = self.epoch + 1, 0
                self.plan = self._plan()
            update = self._update()
            self.elapsed += time.monotonic() - started
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

    def progress(self) -> float:
        """The share of the training that is done, by whichever end is nearest."""
        s = self.settings
        epochs = self.epoch + self.position / max(len(self.plan), 1)
        shares = [(self.step, s.max_steps), (epochs, s.epochs), (self.elapsed, s.time)]
        return min(1.0, max((done / total for done, total in shares if total), default=0.0))

    def _plan(self) -> Plan:
        s, lengths = self.settings, (self.corpus.source_lengths, self.corpus.target_lengths)
        return plan(*lengths, seed=s.seed, epoch=self.epoch, batch_tokens=s.batch_tokens, batch_rows=s.batch_rows)

    def _update(self) -> Update:
        end = min(self.position + self.settings.accumulate, len(self.plan))
        batches = [self.corpus.batch(self.plan[i]) for i in range(self.position, end)]
        rate = rate_at(self.step + 1, self.settings, self.progress(), self.plateau.factor)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        loss = self._accumulate(batches)
        skipped = self.settle()  # of the update before, while this one's gradients are still on their way
        norm = apply(self.optimiser, self.objective.parameters(), loss.count, self.settings.clip)
        self.optimiser.zero_grad(set_to_none=True)
        self.step, self.position = self.step + 1, end
        where = {"step": self.step, "epoch": self.epoch, "rows": [row for b in batches for row in b.rows]}
        self._flag = (Late(norm), where)
        finite = norm.isfinite()
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

    def _accumulate(self, batches: list[Batch]) -> Loss:
        """Gradients of the summed loss of all batches. Out of memory: the same batches again in smaller pieces."""
        while True:
            random = rng_state(self.device)
            try:
                return self._backward([piece for batch in batches for piece in batch.pieces(self.pieces)])
            except RuntimeError as error:
                rows = max(len(batch.rows) for batch in batches)
                if not _out_of_memory(error) or self.pieces >= rows:
                    raise
            self.optimiser.zero_grad(set_to_none=True)
            set_rng_state(random, self.device)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            self.pieces *= 2

    def _backward(self, pieces: list[Batch]) -> Loss:
        total, count = torch.zeros((), device=self.device), 0
        half = self.settings.precision == "bf16"
        for piece in pieces:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=half):
                loss = self.objective(piece.to(self.device))
            loss.total.backward()
            total, count = total + loss.total.detach(), count + loss.count
        return Loss(total, count)

    def settle(self) -> dict[str, Any] | None:
        """Read the flag of the last update: says where it was if it was skipped; five in a row end the training."""
        if self._flag is None:
            return None
        (late, where), self._flag = self._flag, None
        norm = late.read()
        if np.isfinite(norm):
            self.bad_in_a_row = 0
            return None
        self.bad_in_a_row += 1
        if self.bad_in_a_row >= PATIENCE_WITH_NAN:
            raise NonFiniteError(where)
        return where

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything needed to go on exactly from here, but for the weights: tensors, and the rest as JSON."""
        tensors = {
            "order": torch.from_numpy(np.ascontiguousarray(self.plan.order)),
            "ends": torch.from_numpy(np.ascontiguousarray(self.plan.ends)),
            **{f"random.{name}": value for name, value in rng_state(self.device).items()},
            **optimiser_state(self.optimiser, self.objective),
        }
        names = ("step", "epoch", "position", "pieces", "bad_in_a_row", "elapsed")
        plateau = {"factor": self.plateau.factor, "worse": self.plateau.worse}
        return tensors, {name: getattr(self, name) for name in names} | {"plateau": plateau}

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """The random states come last: nothing after them may draw a number."""
        self.plan = Plan(tensors["order"].numpy(), tensors["ends"].numpy())
        self.plateau = Plateau(**values["plateau"])
        for name in ("step", "epoch", "position", "pieces", "bad_in_a_row", "elapsed"):
            setattr(self, name, values[name])
        restore_optimiser(self.optimiser, self.objective, tensors)
        random = {name.removeprefix("random."): t for name, t in tensors.items() if name.startswith("random.")}
        set_rng_state(random, self.device)


class NonFiniteError(SeqloomError):
    """The loss or its gradient was not finite five times in a row."""

    def __init__(self, where: dict[str, Any]) -> None:
        self.where = where
        rows = ", ".join(str(row) for row in where["rows"][:5])
        super().__init__(
            f"loss or gradient not finite {PATIENCE_WITH_NAN} times in a row, last at step {where['step']} (training "
            f"rows {rows} …); the weights are those before it. Lower training.rate or training.clip"
        )


def optimiser_state(optimiser: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """`optimiser.<what>.<parameter>` for every tensor the optimiser keeps."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        f"optimiser.{what}.{names[id(parameter)]}": value
        for parameter, kept in optimiser.state.items()
        for what, value in kept.items()
        if isinstance(value, Tensor)
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        if key.startswith("optimiser."):
            _, what, name = key.split(".", 2)
            optimiser.state[parameters[name]][what] = value.to(parameters[name].device).clone()


def rng_state(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    return states | {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else states


def set_rng_state(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def _out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)
