"""Drives the training loop: logs, validates, saves, stops. Everything that reacts to an update is here."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqloom.data.batches.batch_source import Ready
from seqloom.data.encoding.cache_check import settle
from seqloom.metrics.metric_table import lower_is_better
from seqloom.plural import counted
from seqloom.runs.folder.folder_checks import check_state
from seqloom.runs.folder.metrics_log import Journal, NoJournal
from seqloom.runs.load import MODEL
from seqloom.runs.progress import Progress
from seqloom.safety import understood
from seqloom.tasks.shared.task import Judge
from seqloom.training import checkpoint
from seqloom.training.distributed.sharding import is_shard
from seqloom.training.loop import Loop, NonFiniteError, Update
from seqloom.training.settings import Training

JOURNAL, CHECKPOINTS = "metrics.jsonl", "checkpoints"


class Session:
    """One training run in one folder. What it remembers beside the loop travels in the checkpoint too.

    Every rank drives its own, all of them alike; only the first writes.
    """

    def __init__(
        self, folder: Path, loop: Loop, model: nn.Module, data: Ready, judge: Judge, progress: Progress
    ) -> None:
        self.folder, self.loop, self.model, self.data, self.progress = folder, loop, model, data, progress
        self.judge = judge
        self.glimpse: Callable[[], str] | None = None  # something to see of what the model does now, at each validation
        self.settings: Training = loop.settings
        self.ranks = loop.ranks
        self.journal = (Journal if self.ranks.first else NoJournal)(folder / JOURNAL, progress.record)
        self.best: dict[str, Any] | None = None  # the best validation so far
        self.worse = 0  # validations since
        self.validated = 0  # the step of the last validation
        self.averaged = 0  # the step of the last average
        self.saved = 0  # the step of the last checkpoint
        self.window = torch.zeros(2, dtype=torch.float64, device=loop.device)  # loss and tokens since the last line
        self.clock, self.earlier = time.monotonic(), 0.0  # and how much of the window was trained before it

    @property
    def signal(self) -> int | None:
        """What the training was interrupted by."""
        return self.loop.stopping

    def run(self) -> None:
        """Train until the settings, patience or a signal say stop; the best model and the last state stay behind."""
        with self._signals():
            try:
                self._fit() if hasattr(self.model, "fit") else self._train()
            except NonFiniteError as error:
                self._skipped(error.where)
                self._save(extra=True)
                if not self.ranks.first:  # all ranks are here, and one says it
                    sys.exit(1)
                raise

    def _train(self) -> None:
        for update in () if self._impatient() else self.loop:
            self._log(update)
            due, every = self.settings.valid_every, self.settings.save_every
            if (update.step % due == 0) if due else update.ends_epoch:
                self._validate()
            if (update.step % every == 0) if every else self.validated == update.step:
                self._save()
            if self.signal and self.saved != update.step:
                self._save(extra=True)
            if self.signal or self._impatient():
                break
        if self.signal:
            return
        if self.validated != self.loop.step:
            self._validate()
            self._save()
        self.progress.note(f"stopped: {self._reason()}")
        if self.settings.average > 1 and self.averaged != self.loop.step:
            self._average()

    def _fit(self) -> None:
        """A model that is counted, not trained step by step: it needs one look at the data, and no checkpoint."""
        self.model.fit(self.loop.supply)  # pyright: ignore[reportCallIssue]
        self._validate()
        self.progress.note("stopped: everything is counted")

    def _impatient(self) -> bool:
        return self.settings.patience is not None and self.worse >= self.settings.patience

    def _reason(self) -> str:
        s = self.settings
        if self._impatient():
            return f"no better score in {counted(s.patience, 'validations')}"
        if s.max_steps and self.loop.step >= s.max_steps:
            return f"max_steps {s.max_steps:,} reached"
        if s.time and self.loop.elapsed >= s.time:
            return f"time {s.time:g}s reached"
        return f"epochs {s.epochs:,} reached"

    def _log(self, update: Update) -> None:
        if update.skipped:
            self._skipped(update.skipped)
        self.window += torch.stack([update.loss, update.count]).double()
        if update.step % self.settings.log_every:
            self.progress.show(self.loop.progress(), {"step": update.step, "epoch": update.epoch + 1})
            return
        if skipped := self.loop.settle():
            self._skipped(skipped)
        loss, count = self.window.tolist()
        self.window.zero_()
        now = time.monotonic()
        speed = (count - self.earlier) / max(now - self.clock, 1e-9)
        self.clock, self.earlier = now, 0.0
        mean = loss / count if count else None  # None: every update since the last line was skipped
        line = {"step": update.step, "epoch": update.epoch, "loss": mean, "rate": update.rate}
        line |= {"norm": float(update.norm), "tokens": int(count)}
        self.journal.add(line | {"tokens_per_second": round(speed, 1), "seconds": round(self.loop.elapsed, 3)})
        facts = {"step": update.step, "epoch": update.epoch + 1, "loss": mean or math.nan}
        facts[f"{getattr(self.progress, 'unit', 'tokens')}/s"] = round(speed)
        self.progress.show(self.loop.progress(), facts)

    def _skipped(self, where: dict[str, Any]) -> None:
        self.journal.add({"skipped": where["step"], "epoch": where["epoch"], "rows": where["rows"]})

    def _validate(self) -> None:
        self.validated = self.loop.step
        averaging = self.loop.averaging
        with averaging.shown():
            if self.data.valid is None:
                self._keep()
                return
            scores = self._compare()
        if averaging.see(self._key(scores)):
            self.worse = 0  # patience counts anew: from here on another model is scored
            self.journal.add({"averaging": self.loop.step, "epoch": self.loop.epoch})

    def _compare(self) -> dict[str, float]:
        """The scores of the model as it is now, which is kept if they are the best so far."""
        started = time.monotonic()
        scores = self._scores()
        before = None if self.best is None else self.best["scores"]
        better = before is None or self._key(scores) < self._key(before)
        kept = better or self._tie(scores, before)
        if kept:
            self._keep()
            self.best = {"step": self.loop.step, "scores": scores}
        self.worse = 0 if better else self.worse + 1  # a tie is no better score: patience goes by scores alone
        self.loop.plateau.see(better)
        line = {"step": self.loop.step, "epoch": self.loop.epoch, "valid": scores, "best": kept}
        taken = time.monotonic() - started
        self.journal.add(line | {"seconds": round(taken, 3)})
        self._look()
        self.clock += taken  # the next rate counts training alone
        return scores

    def _look(self) -> None:
        """A glimpse goes to the journal; not of a shared-out model, at which all would have to look."""
        if self.glimpse is None or not self.ranks.first or any(map(is_shard, self.model.parameters())):
            return
        training = self.model.training
        self.journal.add({"step": self.loop.step, "sample": self.glimpse()})
        self.model.train(training)

    def _keep(self) -> None:
        """The model as it is now is the one to use. No damaged data may have gone into it."""
        settle(self.data.train.folder)
        trained = checkpoint.weights(self.model, self.ranks.first)
        if self.ranks.first:
            checkpoint.save_weights(self.folder / MODEL, trained)

    def _scores(self) -> dict[str, float]:
        """The same on every rank, to the last bit: they decide by them when to stop."""
        return self.ranks.tell(self.judge(self.loop.objective, self.settings, self.ranks))

    def _key(self, scores: dict[str, float]) -> float:
        """Lower is better; what is not a number is worst."""
        name = self.settings.select if self.settings.select in scores else "loss"
        value = scores[name] if lower_is_better(name) else -scores[name]
        return math.inf if math.isnan(value) else value

    def _tie(self, scores: dict[str, float], before: dict[str, float] | None) -> bool:
        """Whether scores as good as those `before` come with a lower loss: of models that are right equally often, the
        one that knows better how sure it is. Where a loss is not known, the earlier one stays."""
        if before is None or self._key(scores) != self._key(before):
            return False
        new, old = scores.get("loss", math.inf), before.get("loss", -math.inf)
        return new < (math.inf if math.isnan(old) else old)

    def _save(self, extra: bool = False) -> None:
        settle(self.data.train.folder)
        if skipped := self.loop.settle():
            self._skipped(skipped)
        tensors, values = self.loop.state()
        values |= {name: getattr(self, name) for name in ("best", "worse", "validated", "averaged")}
        values |= {"journal": self.journal.sync(), "fingerprint": self.data.train.fingerprint}
        tensors |= {"window": self.window}
        trained = checkpoint.weights(self.model, self.ranks.first)
        if self.ranks.first:
            checkpoint.save(self.folder / CHECKPOINTS, trained, tensors, values, self.settings.keep, extra)
        self.saved = self.loop.step
        self.progress.detail(f"checkpoint of step {self.saved:,} in {self.folder / CHECKPOINTS}")

    def restore(self, found: checkpoint.Checkpoint) -> None:
        """Go on from a checkpoint, exactly. The loop comes last, since it restores the random states."""
        check_state(found.values, found.folder / checkpoint.VALUES)
        with understood(found.folder):
            self._restore(found)

    def _restore(self, found: checkpoint.Checkpoint) -> None:
        checkpoint.load_weights(self.model, found.weights, found.folder)
        if self.ranks.first:
            checkpoint.drop_newer(self.folder / CHECKPOINTS, found.folder)
        for name in ("best", "worse", "validated", "averaged"):
            setattr(self, name, found.values[name])
        self.saved = found.values["step"]
        self.window.copy_(found.tensors["window"])
        self.clock, self.earlier = time.monotonic(), float(self.window[1])
        self.journal.cut_back(found.values["journal"])
        before, now = found.values.get("processes", 1), self.ranks.world
        if before != now:
            self.progress.note(
                f"saved by {before} processes, resumed by {now}: dropout draws other numbers from here on"
            )
        self.loop.restore(found.tensors, found.values)

    def _average(self) -> None:
        """The mean of the last checkpoints, kept only if it is no worse on the validation data."""
        model = self.model
        last = {name: tensor.detach().clone() for name, tensor in checkpoint.learned(model).items()}
        mean = checkpoint.averaged(self.folder / CHECKPOINTS, self.settings.average) if self.ranks.first else {}
        checkpoint.load_weights(model, self.ranks.share(mean), "the average")
        scores = self._scores() if self.data.valid is not None else {}
        before = None if self.best is None else self.best["scores"]
        better = before is None or (self._key(scores) <= self._key(before) and not self._tie(before, scores))
        if better and self.ranks.first:
            checkpoint.save_weights(self.folder / MODEL, mean)
        count = len(checkpoint.in_turn(self.folder / CHECKPOINTS)[-self.settings.average :])
        self.journal.add({"average": count, "valid": scores, "best": better})
        self.averaged = self.loop.step
        if better and scores:
            self.best = {"step": self.loop.step, "scores": scores}
        checkpoint.load_weights(model, last, "the last checkpoint")
        self._save()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM ask for a checkpoint and an end; asked twice, Ctrl-C leaves at once."""

        def ask(number: int, frame: Any) -> None:
            if number == self.loop.asked == signal.SIGINT:
                raise KeyboardInterrupt
            if number == signal.SIGINT or self.loop.asked is None:
                self.loop.asked = number
            if not self.ranks.several:  # else it may be torchrun, ending us because of another's fault
                with suppress(RuntimeError):  # amid another line, which Python does not let us interrupt
                    self.progress.note("stopping after this step; what is done will be saved")

        try:
            before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not in the main thread, where Python allows no handlers
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
