"""`vectors`: a vector for every word, learned from the words around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.prepare.texts import PlainTextOptions, PreparedTexts, prepare_texts
from seqloom.data.tokenizers.vocabulary import Codec, opened
from seqloom.errors import SeqloomError
from seqloom.models.pretraining.skip_gram import MODELS
from seqloom.tasks.shared.predictor import LoadedRun
from seqloom.tasks.shared.task import Task, Validator
from seqloom.tasks.vectors.model import VectorModel
from seqloom.training.distributed.processes import Ranks
from seqloom.training.objectives.objective import Objective
from seqloom.training.objectives.objective_table import make_objective
from seqloom.training.objectives.skip_gram import Windows
from seqloom.training.settings import Training
from seqloom.training.validation import all_batches, validation_loss


@dataclass(frozen=True, kw_only=True)
class VectorOptions(PlainTextOptions):
    """`window`: how many words away a neighbour may be; `negatives`: words drawn beside each pair; `subsample`:
    words of a larger share of the text are thinned out."""

    min_count: int = 5
    window: int = 5
    negatives: int = 5
    subsample: float = 1e-3

    def __post_init__(self) -> None:
        for name in ("window", "negatives"):
            if getattr(self, name) < 1:
                raise SeqloomError(f"data.{name} must be a whole number of 1 or more, not {getattr(self, name)}")
        if not self.subsample > 0:
            raise SeqloomError(f"data.subsample, a share of the text, must be above 0, here {self.subsample}")
        super().__post_init__()


class Vectors(Task[PreparedTexts[Windows]]):
    name = "vectors"
    models = MODELS
    kind = "skipgram"
    vocabularies = ("source",)
    options = VectorOptions
    training: Mapping[str, Any] = {"select": "loss"}

    def prepare(self, request: PrepareRequest[VectorOptions]) -> PreparedTexts[Windows]:
        texts, options = prepare_texts(request), request.options
        counts = np.bincount(texts.train.ids, minlength=texts.codec.size)
        how = {
            "window": options.window,
            "negatives": options.negatives,
            "often": options.subsample,
            "seed": request.seed,
        }
        windows = Windows(texts.train, counts, **how)
        if not len(windows):
            raise SeqloomError(
                f"{', '.join(request.train)}: no two words that come at least {options.min_count} times stand in one "
                "text; lower --min-count or give more text"
            )
        held = None if texts.valid is None else Windows(texts.valid, counts, **how)
        return PreparedTexts(texts, windows, held if held is not None and len(held) else None)

    def sizes(self, vocabularies: Mapping[str, Any]) -> dict[str, Any]:
        return {"source_size": opened(vocabularies, "source", Codec).size}

    def decoding(self, data: PreparedTexts[Windows], before: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def objective(self, model: nn.Module, settings: Training, config: Mapping[str, Any]) -> Objective:
        return make_objective(model, settings, self.family)

    def validator(
        self, model: nn.Module, data: PreparedTexts[Windows], config: Mapping[str, Any], device: torch.device
    ) -> Validator:
        def scores(objective: nn.Module, settings: Training, ranks: Ranks) -> dict[str, float]:
            """The mean loss of a pair; the same pairs and drawn words in every validation."""
            assert data.valid is not None
            return {"loss": validation_loss(objective, all_batches(data.valid, settings, ranks), device, ranks)["loss"]}

        return scores

    def runner(self, run: LoadedRun) -> VectorModel:
        return VectorModel(run)


TASK = Vectors()
