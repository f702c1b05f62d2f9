"""The `training` section of a run's config. Free of torch, so that the command line can print it."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Any

from seqloom.errors import SeqloomError, known

OPTIMISERS = ("adamw", "sgd")
SCHEDULES = ("constant", "inverse-sqrt", "cosine", "plateau")
PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True, kw_only=True)
class Training:
    """How to train. Stops at whichever comes first of `epochs`, `max_steps`, `time` and `patience`."""

    epochs: int | None = None  # passes over the data; 20 if nothing else says when to stop
    max_steps: int | None = None  # updates
    time: float | None = None  # seconds, over all resumes
    patience: int | None = None  # validations without a better score
    batch_rows: int | None = None  # examples a batch; 128 if batch_tokens is not set
    batch_tokens: int | None = None  # padded tokens of the wider side a batch
    accumulate: int = 1  # batches an update
    optimiser: str = "adamw"
    rate: float = 1e-3  # learning rate at its highest
    weight_decay: float = 0.01  # of matrices; biases and norms are spared
    momentum: float = 0.9  # of sgd; the first beta of adamw
    schedule: str = "cosine"
    warmup: int = 100  # steps over which the rate rises from nothing
    clip: float = 1.0  # largest norm of the gradient of the mean loss; 0: no clipping
    smoothing: float = 0.0  # label smoothing (Szegedy et al. 2016, section 7)
    precision: str = "fp32"
    seed: int = 7
    log_every: int = 50  # steps a line of metrics.jsonl
    valid_every: int | None = None  # steps between validations; None: after every epoch
    valid_decode: int = 1000  # at most so many validation examples are decoded for the score
    select: str = "per"  # the best model is the one with the best validation score: a metric's name, or `loss`
    save_every: int | None = None  # steps between checkpoints; None: at every validation
    keep: int = 3  # checkpoints kept
    average: int = 0  # at the end, average the weights of so many last checkpoints

    def __post_init__(self) -> None:
        known(self.optimiser, OPTIMISERS, "optimiser")
        known(self.schedule, SCHEDULES, "schedule")
        known(self.precision, PRECISIONS, "precision")
        for name in ("epochs", "max_steps", "time", "patience", "batch_rows", "batch_tokens", "valid_every"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise SeqloomError(f"training.{name} must be above 0, here {value}")
        for name in ("accumulate", "log_every", "keep"):
            if getattr(self, name) < 1:
                raise SeqloomError(f"training.{name} is at least 1, here {getattr(self, name)}")
        if self.batch_rows and self.batch_tokens:
            raise SeqloomError("set training.batch_rows or training.batch_tokens, not both")
        if not 0 <= self.smoothing < 1:
            raise SeqloomError(f"training.smoothing lies in 0 … 1, here {self.smoothing}")

    @classmethod
    def of(cls, values: dict[str, Any]) -> Training:
        """From a config section: names are checked, and what nobody set is filled in, so that nothing stays hidden."""
        names = [field.name for field in fields(cls)]
        for name in values:
            known(name, names, "setting of training")
        if not any(values.get(name) for name in ("epochs", "max_steps", "time", "patience")):
            values = {**values, "epochs": 20}
        if not values.get("batch_rows") and not values.get("batch_tokens"):
            values = {**values, "batch_rows": 128}
        try:
            settings = cls(**values)
        except TypeError as error:
            raise SeqloomError(f"training settings: {error}") from error
        return cls(**{**asdict(settings), "keep": max(settings.keep, settings.average)})


def seconds(text: str) -> float:
    """`90`, `90s`, `5m`, `1.5h` -> seconds."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", text)
    if not found:
        raise SeqloomError(f"cannot read the time {text!r}; write it as 90s, 5m or 1.5h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]
