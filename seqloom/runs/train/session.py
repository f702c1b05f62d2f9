"""Drives the training loop: logs, validates, saves, stops. Everything that happens after an update is here."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqloom.data.batches.batch_source import PreparedData
from seqloom.data.encoding.cache_check import finish_check
from seqloom.metrics.metric_table import lower_is_better
from seqloom.plural import counted
from seqloom.runs.folder.folder_checks import check_state
from seqloom.runs.folder.metrics_log import MetricsLog, NoMetricsLog
from seqloom.runs.load import MODEL, load
from seqloom.runs.progress import Progress
from seqloom.safety import understood
from seqloom.tasks.registry import task as find
from seqloom.tasks.shared.predict import LoadedRun
from seqloom.tasks.shared.task import Runner, Validator
from seqloom.training import checkpoint
from seqloom.training.distributed.sharding import is_shard
from seqloom.training.early_stopping import EarlyStopping
from seqloom.training.loop import Loop, NonFiniteError, Update
from seqloom.training.settings import Training

METRICS_FILE, CHECKPOINTS = "metrics.jsonl", "checkpoints"


class Session:
    """One training run in one folder. Its own state is saved in checkpoints together with that of the loop.

    Every rank has a session and does the same; only the first writes.
    """

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any],
        loop: Loop,
        model: nn.Module,
        data: PreparedData,
        judge: Validator,
        progress: Progress,
    ) -> None:
        self.folder, self.config, self.loop, self.model, self.data = folder, dict(config), loop, model, data
        self.judge, self.progress = judge, progress
        self.settings: Training = loop.settings
        self.ranks = loop.ranks
        self.journal = (MetricsLog if self.ranks.first else NoMetricsLog)(folder / METRICS_FILE, progress.record)
        self.best: dict[str, Any] | None = None  # the best validation so far
        self.early_stopping = EarlyStopping(self.settings.patience)
        self.validated = 0  # the step of the last validation
        self.averaged = 0  # the step of the last average
        self.saved = 0  # the step of the last checkpoint
        self.window = torch.zeros(2, dtype=torch.float64, device=loop.device)  # loss and tokens since the last line
        self.clock, self.earlier = time.monotonic(), 0.0  # and how much of the window was trained before it

    @property
    def signal(self) -> int | None:
        """What the training was interrupted by."""
        return self.loop.stopping

    @cached_property
    def runner(self) -> Runner:
        """The model, with the weights that it has when it is asked."""
        run = LoadedRun(self.folder, self.config, self.model, self.data.vocabularies(), self.loop.device)
        return find(self.config["task"]).runner(run)

    @cached_property
    def best_model(self) -> Runner:
        """When the training is over: the model with the weights of the best validation. A sharded model, which all
        processes hold together, is loaded anew."""
        if self._is_sharded():
            return load(self.folder, device=str(self.loop.device))
        file = self.folder / MODEL
        checkpoint.load_weights(self.model, checkpoint.read_tensors(file), file)
        self.model.eval()
        return self.runner

    def evaluate_best(self) -> dict[str, Any] | None:
        """What the best model reaches on the held-out examples, as values for the report; None: there are none."""
        examples = self.data.validation_examples()
        return self.best_model.evaluation_details(examples) if examples else None

    def _is_sharded(self) -> bool:
        return any(map(is_shard, self.model.parameters()))

    def run(self) -> None:
        """Train until a limit, early stopping or a signal ends it; its best model and last state are kept."""
        with self._signals():
            try:
                self._fit() if hasattr(self.model, "fit") else self._train()
            except NonFiniteError as error:
                self._skipped(error.where)
                self._save(extra=True)
                if not self.ranks.first:  # on all ranks, and one reports it
                    sys.exit(1)
                raise

    def _train(self) -> None:
        for update in () if self.early_stopping.stop else self.loop:
            self._log(update)
            due, every = self.settings.valid_every, self.settings.save_every
            if (update.step % due == 0) if due else update.ends_epoch:
                self._validate()
            if (update.step % every == 0) if every else self.validated == update.step:
                self._save()
            if self.signal and self.saved != update.step:
                self._save(extra=True)
            if self.signal or self.early_stopping.stop:
                break
        if self.signal:
            return
        if self.validated != self.loop.step:
            self._validate()
            self._save()
        self.progress.note(f"stopped: {self._reason()}")
        if self.settings.average_checkpoints > 1 and self.averaged != self.loop.step:
            self._average()

    def _fit(self) -> None:
        """Fit a model that is counted, not trained step by step: one pass over the data, and no checkpoint."""
        self.model.fit(self.loop.source)  # pyright: ignore[reportCallIssue]
        self._validate()
        self.progress.note("stopped: everything is counted")

    def _reason(self) -> str:
        s = self.settings
        if self.early_stopping.stop:
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
        if skipped := self.loop.check_last():
            self._skipped(skipped)
        loss, count = self.window.tolist()
        self.window.zero_()
        now = time.monotonic()
        speed = (count - self.earlier) / max(now - self.clock, 1e-9)
        self.clock, self.earlier = now, 0.0
        mean = loss / count if count else None  # None: every update since the last line was skipped
        line = {"step": update.step, "epoch": update.epoch, "loss": mean, "learning_rate": update.learning_rate}
        line |= {"norm": float(update.grad_norm), "tokens": int(count)}
        self.journal.add(line | {"tokens_per_second": round(speed, 1), "seconds": round(self.loop.elapsed, 3)})
        facts = {"step": update.step, "epoch": update.epoch + 1, "loss": mean or math.nan}
        facts[f"{getattr(self.progress, 'unit', 'tokens')}/s"] = round(speed)
        self.progress.show(self.loop.progress(), facts)

    def _skipped(self, where: dict[str, Any]) -> None:
        self.journal.add({"skipped": where["step"], "epoch": where["epoch"], "rows": where["rows"]})

    def _validate(self) -> None:
        self.validated = self.loop.step
        averaging = self.loop.averaging
        with averaging.applied():
            if self.data.valid is None:
                self._save_best()
                return
            scores = self._compare()
        if averaging.after_validation(self._key(scores)):
            self.early_stopping.worse = 0  # from here on another model is scored
            self.journal.add({"averaging": self.loop.step, "epoch": self.loop.epoch})

    def _compare(self) -> dict[str, float]:
        """The scores of the model as it is now; if they are the best so far, it is saved as the best model."""
        started = time.monotonic()
        scores = self._scores()
        before = None if self.best is None else self.best["scores"]
        better = before is None or self._key(scores) < self._key(before)
        is_best = better or self._tie(scores, before)
        if is_best:
            self._save_best()
            self.best = {"step": self.loop.step, "scores": scores}
        self.early_stopping.update(better)  # a tie is no better score
        self.loop.plateau.update(better)
        line = {"step": self.loop.step, "epoch": self.loop.epoch, "valid": scores, "best": is_best}
        taken = time.monotonic() - started
        self.journal.add(line | {"seconds": round(taken, 3)})
        self._write_sample()
        self.clock += taken  # the next rate counts training alone
        return scores

    def _write_sample(self) -> None:
        """A sample of what the model writes goes to the journal; not of a sharded model, which needs all processes."""
        glimpse = getattr(find(self.config["task"]), "glimpse", None)
        if glimpse is None or not self.ranks.first or self._is_sharded():
            return
        training = self.model.training
        self.journal.add({"step": self.loop.step, "sample": glimpse(self.runner)})
        self.model.train(training)

    def _save_best(self) -> None:
        """Save the model as it is now as the one to use, once its data are known to be undamaged."""
        finish_check(self.data.train.folder)
        trained = checkpoint.weights(self.model, self.ranks.first)
        if self.ranks.first:
            checkpoint.save_weights(self.folder / MODEL, trained)

    def _scores(self) -> dict[str, float]:
        """The same scores on every rank, to the last bit: ranks decide by them when to stop."""
        return self.ranks.broadcast(self.judge(self.loop.objective, self.settings, self.ranks))

    def _key(self, scores: dict[str, float]) -> float:
        """The score to select by, made so that lower is better; NaN is worst."""
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
        finish_check(self.data.train.folder)
        if skipped := self.loop.check_last():
            self._skipped(skipped)
        tensors, values = self.loop.state()
        values |= {"best": self.best, "worse": self.early_stopping.worse}
        values |= {"validated": self.validated, "averaged": self.averaged}
        values |= {"journal": self.journal.sync(), "fingerprint": self.data.train.fingerprint}
        tensors |= {"window": self.window}
        trained = checkpoint.weights(self.model, self.ranks.first)
        if self.ranks.first:
            checkpoint.save(self.folder / CHECKPOINTS, trained, tensors, values, self.settings.keep_checkpoints, extra)
        self.saved = self.loop.step
        self.progress.detail(f"checkpoint of step {self.saved:,} in {self.folder / CHECKPOINTS}")

    def restore(self, found: checkpoint.Checkpoint) -> None:
        """Continue from a checkpoint, exactly. The loop is restored last, since it sets the random states."""
        check_state(found.values, found.folder / checkpoint.VALUES)
        with understood(found.folder):
            self._restore(found)

    def _restore(self, found: checkpoint.Checkpoint) -> None:
        checkpoint.load_weights(self.model, found.weights, found.folder)
        if self.ranks.first:
            checkpoint.drop_newer(self.folder / CHECKPOINTS, found.folder)
        self.early_stopping.worse = found.values["worse"]
        for name in ("best", "validated", "averaged"):
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
        last = {name: tensor.detach().clone() for name, tensor in checkpoint.trained_tensors(model).items()}
        mean = (
            checkpoint.average_weights(self.folder / CHECKPOINTS, self.settings.average_checkpoints)
            if self.ranks.first
            else {}
        )
        checkpoint.load_weights(model, self.ranks.broadcast_tensors(mean), "the average")
        scores = self._scores() if self.data.valid is not None else {}
        before = None if self.best is None else self.best["scores"]
        better = before is None or (self._key(scores) <= self._key(before) and not self._tie(before, scores))
        if better and self.ranks.first:
            checkpoint.save_weights(self.folder / MODEL, mean)
        count = len(checkpoint.scheduled(self.folder / CHECKPOINTS)[-self.settings.average_checkpoints :])
        self.journal.add({"average": count, "valid": scores, "best": better})
        self.averaged = self.loop.step
        if better and scores:
            self.best = {"step": self.loop.step, "scores": scores}
        checkpoint.load_weights(model, last, "the last checkpoint")
        self._save()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM save a checkpoint and end the training; a second Ctrl-C ends it at once."""

        def ask(number: int, frame: Any) -> None:
            if number == self.loop.stop_signal == signal.SIGINT:
                raise KeyboardInterrupt
            if number == signal.SIGINT or self.loop.stop_signal is None:
                self.loop.stop_signal = number
            if not self.ranks.distributed:  # else it may be torchrun, ending us because of another's fault
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
