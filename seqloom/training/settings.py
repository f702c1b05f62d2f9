"""The `training` section of a run's config. Free of torch, so that the command line can print it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from seqloom.errors import SeqloomError, SettingError, known, shown
from seqloom.metrics.metric_table import SELECT
from seqloom.options import checked

EPOCHS = 20  # unless something else says when to stop
UPDATES = 12_000  # that a training of the usual length should have; benchmarks/small.py measures it
LEAST_ROWS = 16
FEW = 500  # updates: so few are worth a word
OPTIMISERS = ("adamw", "muon", "sgd", "asgd")
SCHEDULES = ("constant", "inverse-sqrt", "cosine", "plateau")
PRECISIONS = ("fp32", "bf16")
CAPTURES = ("auto", "on", "off")
SPELLINGS = {"optimizer": "optimiser"}  # other spellings that are understood; configs keep the one on the right
ABOVE_ZERO = ("epochs", "max_steps", "time", "patience", "batch_rows", "batch_tokens", "valid_every", "save_every")
ABOVE_ZERO += ("accumulate", "log_every", "keep", "rate", "trigger")


@dataclass(frozen=True, kw_only=True)
class Training:
    """How to train. Stops at whichever comes first of `epochs`, `max_steps`, `time` and `patience`."""

    epochs: int | None = None  # passes over the data; 20 if nothing else says when to stop, 100 with patience alone
    max_steps: int | None = None  # updates
    time: float | None = None  # seconds, over all resumes
    patience: int | None = None  # validations without a better score
    batch_rows: int | None = None  # examples a batch; 128, fewer of small data, where batch_tokens is not set
    batch_tokens: int | None = None  # padded tokens of the wider side a batch
    accumulate: int = 1  # batches an update
    optimiser: str = "adamw"
    rate: float = 1e-3  # learning rate at its highest
    weight_decay: float = 0.01  # of matrices; biases and norms are spared
    momentum: float = 0.9  # of sgd; the first beta of adamw (and of muon's adamw); asgd has none, and 0.0 is filled in
    beta2: float = 0.98  # the second beta of adamw: how long it remembers how large gradients are
    trigger: int = 5  # of asgd: averages once a score is worse than the best one of more than so many validations ago
    schedule: str = "cosine"
    warmup: int = 100  # steps over which the rate rises from nothing
    clip: float = 1.0  # largest norm of the gradient of the mean loss; 0: no clipping
    smoothing: float = 0.0  # label smoothing (Szegedy et al. 2016, section 7)
    agreement: float = 0.0  # weight of how far two guesses of a row, each with its own dropout, are apart (R-Drop)
    precision: str = "fp32"
    capture: str = "auto"  # record the passes of shapes that come back and replay them: on a GPU, in one process
    compile: bool = False  # fuse the passes' kernels; the first steps then take a minute
    seed: int = 7
    log_every: int = 50  # steps a line of metrics.jsonl
    valid_every: int | None = None  # steps between validations; None: after every epoch
    valid_decode: int = 1000  # at most so many validation examples are decoded for the score
    select: str = "per"  # the best model is the one with the best validation score: a metric's name, or `loss`
    save_every: int | None = None  # steps between checkpoints; None: at every validation
    keep: int = 3  # checkpoints kept
    ema: float = 0.0  # decay of a running mean of the weights, which is then what is scored and kept, such as 0.999
    average: int = 0  # at the end, average the weights of so many last checkpoints
    vectors: str | None = None  # of words, for the source's embedding to begin with: a file, a dataset or a run
    freeze: str | None = None  # parts whose weights stay as they are, commas between: source,encoder
    shard: bool = False  # with several processes, share the model's parameters out among them (FSDP) instead of copying

    def __post_init__(self) -> None:
        known(self.optimiser, OPTIMISERS, "optimiser")
        known(self.schedule, SCHEDULES, "schedule")
        known(self.precision, PRECISIONS, "precision")
        known(self.capture, CAPTURES, "capture")
        known(self.select, SELECT, "score to select by")
        for name in ABOVE_ZERO:
            value = getattr(self, name)
            if value is not None and not value > 0:  # not a number is not above 0 either
                raise SeqloomError(f"training.{name} must be above 0, here {value}")
        for name in ("weight_decay", "warmup", "clip", "valid_decode", "average", "agreement"):
            if not getattr(self, name) >= 0:
                raise SeqloomError(f"training.{name} is at least 0, here {getattr(self, name)}")
        if not 0 <= self.seed < 2**63:
            raise SeqloomError(f"training.seed is at least 0 and below 2^63, here {self.seed}")
        if self.batch_rows and self.batch_tokens:
            raise SeqloomError("set training.batch_rows or training.batch_tokens, not both")
        for name in ("smoothing", "momentum", "beta2", "ema"):
            if not 0 <= getattr(self, name) < 1:
                raise SeqloomError(f"training.{name} is at least 0 and below 1, here {getattr(self, name)}")
        if self.optimiser == "asgd":
            self._check_averaging()
        if self.ema and (self.average or self.optimiser == "asgd"):
            other = "asgd" if self.optimiser == "asgd" else "--average"
            raise SeqloomError(f"training.ema and {other} are two ways to average the weights: choose one")

    def _check_averaging(self) -> None:
        """Of averaged SGD, which is plain until its trigger and keeps a mean of its own from there."""
        if self.momentum:
            raise SeqloomError(f"asgd has no momentum, here {self.momentum}: leave training.momentum out or choose sgd")
        if self.average:
            raise SeqloomError("asgd averages while it trains: leave --average out, or choose sgd or adamw")
        if self.patience is not None and self.patience <= self.trigger:
            raise SeqloomError(
                f"training.patience {self.patience} would end the training before asgd averages: set it above "
                f"training.trigger, here {self.trigger}"
            )

    @classmethod
    def of(cls, values: dict[str, Any]) -> Training:
        """From a config section: names are checked, and what nobody set is filled in, so that nothing stays hidden."""
        values = checked(cls, respelled(values), "training")
        if all(values.get(name) is None for name in ("epochs", "max_steps", "time")):
            values = {**values, "epochs": EPOCHS if values.get("patience") is None else 100}
        if values.get("batch_rows") is None and values.get("batch_tokens") is None:
            values = {**values, "batch_rows": 128}
        if values.get("optimiser") == "asgd":
            values = {"momentum": 0.0, **values}
        settings = cls(**values)
        return cls(**{**asdict(settings), "keep": max(settings.keep, settings.average)})


def suited_rows(usual: int, examples: int, settings: Training) -> int:
    """How many examples a batch is to hold: of small data fewer than usual, so that there are updates enough.

    As many as `UPDATES` allow by the epochs that are set, to the next power of two below. Where the number of updates
    is set itself, small batches would only see less of the data.
    """
    if settings.max_steps is not None and settings.epochs is None:
        return usual
    rows = examples * (settings.epochs or EPOCHS) // (UPDATES * settings.accumulate)
    return usual if rows >= usual else min(usual, max(LEAST_ROWS, 1 << max(rows.bit_length() - 1, 0)))


def planned(settings: Training, batches: int) -> int | None:
    """How many updates the epochs make, where they alone say when to stop."""
    if settings.epochs is None or settings.max_steps is not None or settings.time is not None:
        return None
    return settings.epochs * -(-batches // settings.accumulate)


def respelled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under the names that configs have."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        usual = SPELLINGS.get(name, name)
        if found.get(usual, value) not in (None, value) and value is not None:
            raise SeqloomError(
                f"{' and '.join(n for n in (*SPELLINGS, usual) if n in values)} are one setting: set it once"
            )
        found[usual] = found.get(usual) if value is None else value
    return found


def seconds(text: str) -> float:
    """`90`, `90s`, `5m`, `1.5h` -> seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not found:
        raise SettingError(f"cannot read the time {shown(text)}; write it as 90s, 5m or 1.5h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]
