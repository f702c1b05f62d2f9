"""The `training` section of a run's config. Free of torch, so that the command line can print it."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from seqloom.build import kind_of
from seqloom.errors import SeqloomError, SettingError, known, shown
from seqloom.metrics.metric_table import check_select
from seqloom.options import checked, hints_of
from seqloom.setting_names import with_current_names
from seqloom.training.optim.optimizer_table import OPTIMIZERS, Optimizer
from seqloom.training.optim.schedule import SCHEDULES

EPOCHS = 20  # if no other limit is set
UPDATES = 12_000  # that a training should have at least; see benchmarks/quality/small_data.py
MIN_ROWS = 16
FEW_UPDATES = 500  # fewer updates cause a warning
AUTO = "auto"  # the objective that the task trains unless another is set
PRECISIONS = ("fp32", "bf16")
CUDA_GRAPH_MODES = ("auto", "on", "off")
ABOVE_ZERO = ("epochs", "max_steps", "time", "patience", "batch_rows", "batch_tokens", "valid_every", "save_every")
ABOVE_ZERO += ("accumulate", "log_every", "keep_checkpoints", "learning_rate", "asgd_patience")


@dataclass(frozen=True, kw_only=True)
class Training:
    """How to train. Stops at whichever comes first of `epochs`, `max_steps`, `time` and `patience`."""

    epochs: int | None = None  # passes over the data; 20 if no other limit is set, 100 with patience alone
    max_steps: int | None = None  # updates
    time: float | None = None  # seconds, over all resumes
    patience: int | None = None  # stop after so many validations without a better score
    batch_rows: int | None = None  # examples a batch; 128, fewer for small data, where batch_tokens is not set
    batch_tokens: int | None = None  # padded tokens a batch, counted on the wider side
    accumulate: int = 1  # batches an update
    objective: str | dict[str, Any] = AUTO  # what is minimized; auto: what suits the task
    optimizer: str | dict[str, Any] = "adamw"
    learning_rate: float = 1e-3  # the highest, after warmup
    weight_decay: float = 0.01  # of matrices; biases and norms have none
    momentum: float = 0.9  # of sgd; the first beta of adamw (and of muon's adamw); asgd has none, and 0.0 is filled in
    beta2: float = 0.98  # the second beta of adamw: how long it remembers how large gradients are
    asgd_patience: int = 5  # asgd averages once a score is worse than the best of more than so many validations ago
    schedule: str | dict[str, Any] = "cosine"
    warmup: int = 100  # steps over which the learning rate rises from 0
    clip: float = 1.0  # largest norm of the gradient of the mean loss; 0: no clipping
    label_smoothing: float = 0.0  # share of probability spread over all labels (Szegedy et al. 2016, section 7)
    r_drop: float = 0.0  # weight of the divergence of two predictions under different dropout (Liang et al. 2021)
    precision: str = "fp32"
    cuda_graphs: str = "auto"  # record the passes of batch shapes that recur and replay them: on one GPU, one process
    compile: bool = False  # torch.compile: fuse the kernels of a pass; the first steps then take a minute
    seed: int = 7
    log_every: int = 50  # steps a line of metrics.jsonl
    valid_every: int | None = None  # steps between validations; None: after every epoch
    valid_decode: int = 1000  # at most so many validation examples are decoded for the score
    select: str = "per"  # the best model is the one with the best validation score: a metric's name, or `loss`
    save_every: int | None = None  # steps between checkpoints; None: at every validation
    keep_checkpoints: int = 3  # so many of the last checkpoints stay
    ema: float = 0.0  # decay of a running mean of the weights, such as 0.999; the mean is then scored and saved
    average_checkpoints: int = 0  # at the end, average the weights of so many last checkpoints
    vectors: str | None = None  # word vectors that the source's embedding starts from: a file, a dataset or a run
    freeze: str | None = None  # parts whose weights are not trained, commas between: source,encoder
    shard: bool = False  # with several processes, split the parameters among them (FSDP) instead of copying them

    def __post_init__(self) -> None:
        known(kind_of(self.optimizer), OPTIMIZERS, "optimizer")
        known(kind_of(self.schedule), SCHEDULES, "schedule")
        known(self.precision, PRECISIONS, "precision")
        known(self.cuda_graphs, CUDA_GRAPH_MODES, "cuda_graphs")
        check_select(self.select)
        for name in ABOVE_ZERO:
            value = getattr(self, name)
            if value is not None and not value > 0:  # not a number is not above 0 either
                raise SeqloomError(f"training.{name} must be above 0, here {value}")
        for name in ("weight_decay", "warmup", "clip", "valid_decode", "average_checkpoints", "r_drop"):
            if not getattr(self, name) >= 0:
                raise SeqloomError(f"training.{name} is at least 0, here {getattr(self, name)}")
        if not 0 <= self.seed < 2**63:
            raise SeqloomError(f"training.seed is at least 0 and below 2^63, here {self.seed}")
        if self.batch_rows and self.batch_tokens:
            raise SeqloomError("set training.batch_rows or training.batch_tokens, not both")
        for name in ("label_smoothing", "momentum", "beta2", "ema"):
            if not 0 <= getattr(self, name) < 1:
                raise SeqloomError(f"training.{name} is at least 0 and below 1, here {getattr(self, name)}")
        self._check_averaging()

    @property
    def optimizer_entry(self) -> Optimizer:
        return OPTIMIZERS[kind_of(self.optimizer)]

    def _check_averaging(self) -> None:
        name, entry = kind_of(self.optimizer), self.optimizer_entry
        if self.momentum and not entry.momentum:
            raise SeqloomError(
                f"{name} has no momentum, here {self.momentum}: leave training.momentum out or choose sgd"
            )
        if self.average_checkpoints and entry.averages:
            raise SeqloomError(
                f"{name} averages while it trains: leave --average-checkpoints out, or choose sgd or adamw"
            )
        if entry.averages and self.patience is not None and self.patience <= self.asgd_patience:
            raise SeqloomError(
                f"training.patience {self.patience} would end the training before {name} averages: set it above "
                f"training.asgd_patience, here {self.asgd_patience}"
            )
        if self.ema and (self.average_checkpoints or entry.averages):
            other = name if entry.averages else "--average-checkpoints"
            raise SeqloomError(f"training.ema and {other} are two ways to average the weights: choose one")

    @classmethod
    def of(cls, values: dict[str, Any]) -> Training:
        """From a config section: checks the names and fills in all defaults, so that the saved config is complete."""
        values = checked(cls, with_current_names("training", values, hints_of(cls), "training."), "training")
        if all(values.get(name) is None for name in ("epochs", "max_steps", "time")):
            values = {**values, "epochs": EPOCHS if values.get("patience") is None else 100}
        if values.get("batch_rows") is None and values.get("batch_tokens") is None:
            values = {**values, "batch_rows": 128}
        optimizer = kind_of(values.get("optimizer", cls.optimizer))
        if not OPTIMIZERS[known(optimizer, OPTIMIZERS, "optimizer")].momentum:
            values = {"momentum": 0.0, **values}
        settings = cls(**values)
        return cls(
            **{**asdict(settings), "keep_checkpoints": max(settings.keep_checkpoints, settings.average_checkpoints)}
        )


def default_batch_rows(default: int, examples: int, settings: Training) -> int:
    """Examples per batch: for small data fewer than the default, so that there are enough updates.

    The largest power of two that allows `UPDATES` in the epochs that are set. Where the number of updates is set,
    small batches would only see less of the data.
    """
    if settings.max_steps is not None and settings.epochs is None:
        return default
    rows = examples * (settings.epochs or EPOCHS) // (UPDATES * settings.accumulate)
    return default if rows >= default else min(default, max(MIN_ROWS, 1 << max(rows.bit_length() - 1, 0)))


def planned_updates(settings: Training, batches: int) -> int | None:
    """The number of updates, if it is limited by epochs alone."""
    if settings.epochs is None or settings.max_steps is not None or settings.time is not None:
        return None
    return settings.epochs * -(-batches // settings.accumulate)


def parse_seconds(text: str) -> float:
    """`90`, `90s`, `5m`, `1.5h` -> seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not found:
        raise SettingError(f"cannot read the time {shown(text)}; write it as 90s, 5m or 1.5h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]
