"""`vectors`: a vector for every word, learned from the words around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from seqloom.data.batches.batch_source import Ready
from seqloom.data.prepare.texts import TextOptions, TextReady, collect
from seqloom.data.splits.split import Fold
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.errors import SeqloomError
from seqloom.models.pretraining.skip_gram import MODELS
from seqloom.tasks.shared.task import Judge
from seqloom.tasks.vectors.model import Likeness
from seqloom.training.distributed.processes import Ranks
from seqloom.training.objectives.skip_gram import NegativeSampling, Windows
from seqloom.training.settings import Training
from seqloom.training.validation import all_batches, likelihood


@dataclass(frozen=True, kw_only=True)
class VectorOptions(TextOptions):
    """Of `TextOptions`, and: `window`: how many words away a neighbour may be; `negatives`: words drawn beside each
    pair; `often`: words of a larger share of the text are thinned out."""

    min_count: int = 5
    window: int = 5
    negatives: int = 5
    often: float = 1e-3

    def __post_init__(self) -> None:
        for name in ("window", "negatives"):
            if getattr(self, name) < 1:
                raise SeqloomError(f"data.{name} must be a whole number of 1 or more, not {getattr(self, name)}")
        if not self.often > 0:
            raise SeqloomError(f"data.often, a share of the text, must be above 0, here {self.often}")
        super().__post_init__()


class Vectors:
    name = "vectors"
    models = MODELS
    kind = "skipgram"
    vocabularies = ("source",)
    options = VectorOptions
    training: Mapping[str, Any] = {"select": "loss"}
    scores = ("loss",)

    def prepare(
        self,
        train: list[str],
        valid: list[str] | float | Fold,
        options: VectorOptions,
        *,
        seed: int,
        cache: Path | None = None,
        kept: Mapping[str, Any] | None = None,
    ) -> TextReady[Windows]:
        texts = collect(train, valid, options, seed=seed, cache=cache, kept=kept)
        counts = np.bincount(texts.train.ids, minlength=texts.codec.size)
        how = {"window": options.window, "negatives": options.negatives, "often": options.often, "seed": seed}
        windows = Windows(texts.train, counts, **how)
        if not len(windows):
            raise SeqloomError(
                f"{', '.join(train)}: no two words that come at least {options.min_count} times stand in one text; "
                "lower --min-count or give more text"
            )
        held = None if texts.valid is None else Windows(texts.valid, counts, **how)
        return TextReady(texts, windows, held if held is not None and len(held) else None)

    def sizes(self, vocabularies: Mapping[str, Any]) -> dict[str, Any]:
        return {"source_size": Codec.from_json(vocabularies["source"]).size}

    def decoding(self, ready: Ready, before: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def objective(self, model: nn.Module, settings: Training, config: Mapping[str, Any]) -> nn.Module:
        return NegativeSampling(model)  # pyright: ignore[reportArgumentType]

    def judge(self, model: nn.Module, ready: Ready, config: Mapping[str, Any], device: torch.device) -> Judge:
        def scores(objective: nn.Module, settings: Training, ranks: Ranks) -> dict[str, float]:
            """The mean loss of a pair; the same pairs and drawn words in every validation."""
            assert ready.valid is not None
            return {"loss": likelihood(objective, all_batches(ready.valid, settings, ranks), device, ranks)["loss"]}

        return scores

    def runner(
        self,
        folder: Path,
        config: dict[str, Any],
        model: nn.Module,
        vocabularies: Mapping[str, Any],
        device: torch.device,
    ) -> Likeness:
        return Likeness(folder, config, model, Codec.from_json(vocabularies["source"]), device)


TASK = Vectors()
