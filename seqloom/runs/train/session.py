"""Drives the training loop: what happens after an update, such as logging, validating, saving and stopping."""

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
from seqloom.safety import content_errors
from seqloom.tasks.registry import task as get_task
from seqloom.tasks.shared.predictor import LoadedRun
from seqloom.tasks.shared.task import Runner, Validator
from seqloom.training import checkpoint
from seqloom.training.distributed.sharding import is_shard
from seqloom.training.early_stopping import EarlyStopping
from seqloom.training.loop import Loop, NonFiniteError, Update
from seqloom.training.settings import Training

METRICS_FILE, CHECKPOINTS = "metrics.jsonl", "checkpoints"


class Session:
    """One training run in one folder. Checkpoints hold its state and that of the loop.

    Every rank has a session; only the first writes files.
    """

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any],
        loop: Loop,
        model: nn.Module,
        data: PreparedData,
        validator: Validator,
        progress: Progress,
    ) -> None:
        self.folder, self.config, self.loop, self.model, self.data = folder, dict(config), loop, model, data
        self.validator, self.progress = validator, progress
        self.settings: Training = loop.settings
        self.ranks = loop.ranks
        self.journal = (MetricsLog if self.ranks.first else NoMetricsLog)(folder / METRICS_FILE, progress.record)
        self.best: dict[str, Any] | None = None  # the best validation so far
        self.early_stopping = EarlyStopping(self.settings.patience)
        self.validated = 0  # the step of the last validation
        self.averaged = 0  # the step of the last average
        self.saved = 0  # the step of the last checkpoint
        self.window = torch.zeros(2, dtype=torch.float64, device=loop.device)  # loss and tokens since the last log line
        # When the measurement of speed began, and the tokens of the window that were trained before.
        self.window_start, self.tokens_before = time.monotonic(), 0.0

    @property
    def signal(self) -> int | None:
        """The signal that interrupted the training."""
        return self.loop.stopping

    @cached_property
    def runner(self) -> Runner:
        """The model with its current weights."""
        run = LoadedRun(self.folder, self.config, self.model, self.data.vocabularies(), self.loop.device)
        return get_task(self.config["task"]).runner(run)

    @cached_property
    def best_model(self) -> Runner:
        """After training: the model with the weights of the best validation. A sharded model is loaded again."""
        if self._is_sharded():
            return load(self.folder, device=str(self.loop.device))
        file = self.folder / MODEL
        checkpoint.load_weights(self.model, checkpoint.read_tensors(file), file)
        self.model.eval()
        return self.runner

    def evaluate_best(self) -> dict[str, Any] | None:
        """The evaluation of the best model on the held-out examples; None if there are none."""
        examples = self.data.validation_examples()
        return self.best_model.evaluation_details(examples) if examples else None

    def _is_sharded(self) -> bool:
        return any(map(is_shard, self.model.parameters()))

    def run(self) -> None:
        """Train until a limit, early stopping or a signal; the best model and the last checkpoint are saved."""
        with self._signals():
            try:
                self._fit() if hasattr(self.model, "fit") else self._train()
            except NonFiniteError as error:
                self._log_skipped(error.where)
                self._save(extra=True)
                if not self.ranks.first:  # it is raised on all ranks; the first one reports it
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
        self.progress.note(f"stopped: {self._stop_reason()}")
        if self.settings.average_checkpoints > 1 and self.averaged != self.loop.step:
            self._average()

    def _fit(self) -> None:
        """Fit a model of counts, such as n-grams: one pass over the data, no checkpoint."""
        self.model.fit(self.loop.source)  # pyright: ignore[reportCallIssue]
        self._validate()
        self.progress.note("stopped: everything is counted")

    def _stop_reason(self) -> str:
        settings = self.settings
        if self.early_stopping.stop:
            return f"no better score in {counted(settings.patience, 'validations')}"
        if settings.max_steps and self.loop.step >= settings.max_steps:
            return f"max_steps {settings.max_steps:,} reached"
        if settings.time and self.loop.elapsed >= settings.time:
            return f"time {settings.time:g}s reached"
        return f"epochs {settings.epochs:,} reached"

    def _log(self, update: Update) -> None:
        if update.skipped:
            self._log_skipped(update.skipped)
        self.window += torch.stack([update.loss, update.count]).double()
        if update.step % self.settings.log_every:
            self.progress.show(self.loop.progress(), {"step": update.step, "epoch": update.epoch + 1})
            return
        if skipped := self.loop.check_last():
            self._log_skipped(skipped)
        loss, count = self.window.tolist()
        self.window.zero_()
        now = time.monotonic()
        speed = (count - self.tokens_before) / max(now - self.window_start, 1e-9)
        self.window_start, self.tokens_before = now, 0.0
        mean = loss / count if count else None  # None: all updates since the last line were skipped
        line = {"step": update.step, "epoch": update.epoch, "loss": mean, "learning_rate": update.learning_rate}
        line |= {"norm": float(update.grad_norm), "tokens": int(count)}
        self.journal.add(line | {"tokens_per_second": round(speed, 1), "seconds": round(self.loop.elapsed, 3)})
        facts = {"step": update.step, "epoch": update.epoch + 1, "loss": mean or math.nan}
        facts[f"{getattr(self.progress, 'unit', 'tokens')}/s"] = round(speed)
        self.progress.show(self.loop.progress(), facts)

    def _log_skipped(self, where: dict[str, Any]) -> None:
        self.journal.add({"skipped": where["step"], "epoch": where["epoch"], "rows": where["rows"]})

    def _validate(self) -> None:
        self.validated = self.loop.step
        averaging = self.loop.averaging
        with averaging.applied():
            if self.data.valid is None:
                self._save_best()
                return
            scores = self._score_current()
        if averaging.after_validation(self._key(scores)):
            self.early_stopping.worse = 0  # from now on the averaged model is scored
            self.journal.add({"averaging": self.loop.step, "epoch": self.loop.epoch})

    def _score_current(self) -> dict[str, float]:
        """Score the current model; if it is the best so far, save it as the best model."""
        started = time.monotonic()
        scores = self._scores()
        before = None if self.best is None else self.best["scores"]
        better = before is None or self._key(scores) < self._key(before)
        is_best = better or self._tie(scores, before)
        if is_best:
            self._save_best()
            self.best = {"step": self.loop.step, "scores": scores}
        self.early_stopping.update(better)  # a tie is no improvement
        self.loop.plateau.update(better)
        line = {"step": self.loop.step, "epoch": self.loop.epoch, "valid": scores, "best": is_best}
        seconds = time.monotonic() - started
        self.journal.add(line | {"seconds": round(seconds, 3)})
        self._log_sample()
        self.window_start += seconds  # the speed of training does not count validation
        return scores

    def _log_sample(self) -> None:
        """Log a sample of generated text; not of a sharded model, which needs all processes."""
        task = get_task(self.config["task"])
        if not task.samples_in_training or not self.ranks.first or self._is_sharded():
            return
        training = self.model.training
        self.journal.add({"step": self.loop.step, "sample": task.training_sample(self.runner)})
        self.model.train(training)

    def _save_best(self) -> None:
        """Save the current model as the best one, once the encoded data were checked."""
        finish_check(self.data.train.folder)
        weights = checkpoint.weights(self.model, self.ranks.first)
        if self.ranks.first:
            checkpoint.save_weights(self.folder / MODEL, weights)

    def _scores(self) -> dict[str, float]:
        """Validation scores, the same on every rank to the last bit: all must stop at the same step."""
        return self.ranks.broadcast(self.validator(self.loop.objective, self.settings, self.ranks))

    def _key(self, scores: dict[str, float]) -> float:
        """The score that selects the best model, as a number of which lower is better; NaN is worst."""
        name = self.settings.select if self.settings.select in scores else "loss"
        value = scores[name] if lower_is_better(name) else -scores[name]
        return math.inf if math.isnan(value) else value

    def _tie(self, scores: dict[str, float], before: dict[str, float] | None) -> bool:
        """Whether the scores equal those `before`, with a lower loss. If a loss is unknown, the earlier model stays."""
        if before is None or self._key(scores) != self._key(before):
            return False
        new, old = scores.get("loss", math.inf), before.get("loss", -math.inf)
        return new < (math.inf if math.isnan(old) else old)

    def _save(self, extra: bool = False) -> None:
        finish_check(self.data.train.folder)
        if skipped := self.loop.check_last():
            self._log_skipped(skipped)
        tensors, values = self.loop.state()
        values |= {"best": self.best, "worse": self.early_stopping.worse}
        values |= {"validated": self.validated, "averaged": self.averaged}
        values |= {"journal": self.journal.sync(), "fingerprint": self.data.train.fingerprint}
        tensors |= {"window": self.window}
        weights = checkpoint.weights(self.model, self.ranks.first)
        if self.ranks.first:
            checkpoint.save(self.folder / CHECKPOINTS, weights, tensors, values, self.settings.keep_checkpoints, extra)
        self.saved = self.loop.step
        self.progress.detail(f"checkpoint of step {self.saved:,} in {self.folder / CHECKPOINTS}")

    def restore(self, saved: checkpoint.Checkpoint) -> None:
        """Continue from a checkpoint, exactly. The loop is restored last, since it sets the random states."""
        values = saved.values
        check_state(values, saved.folder / checkpoint.VALUES)
        with content_errors(saved.folder):
            checkpoint.load_weights(self.model, saved.weights, saved.folder)
            if self.ranks.first:
                checkpoint.drop_newer(self.folder / CHECKPOINTS, saved.folder)
            self.early_stopping.worse = values["worse"]
            for name in ("best", "validated", "averaged"):
                setattr(self, name, values[name])
            self.saved = values["step"]
            self.window.copy_(saved.tensors["window"])
            self.window_start, self.tokens_before = time.monotonic(), float(self.window[1])
            self.journal.cut_back(values["journal"])
            before, now = values.get("processes", 1), self.ranks.world
            if before != now:
                self.progress.note(
                    f"saved by {before} processes, resumed by {now}: dropout draws other numbers from here on"
                )
            self.loop.restore(saved.tensors, values)

    def _average(self) -> None:
        """Average the last checkpoints; the mean becomes the best model if it is no worse on the validation data."""
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
            if not self.ranks.distributed:  # torchrun sends SIGTERM when another process failed
                with suppress(RuntimeError):  # of a stream that is just being written: no reentrant calls
                    self.progress.note("stopping after this step; what is done will be saved")

        try:
            before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # only the main thread may set handlers
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
