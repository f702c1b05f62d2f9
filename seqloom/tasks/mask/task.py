"""`mask`: a two-way encoder learns from plain text by predicting tokens that are hidden from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.prepare.texts import PlainTextOptions, PreparedTexts, prepare_texts
from seqloom.data.tokenizers.vocabulary import Codec, opened
from seqloom.errors import SeqloomError
from seqloom.metrics.perplexity import perplexity
from seqloom.models.pretraining.masked_language_model import MODELS
from seqloom.tasks.mask.model import MaskModel
from seqloom.tasks.shared.predictor import LoadedRun
from seqloom.tasks.shared.task import Task, Validator
from seqloom.training.distributed.processes import Ranks
from seqloom.training.objectives.masked_tokens import MaskedTexts, predict_masked
from seqloom.training.objectives.objective import Objective
from seqloom.training.objectives.objective_table import make_objective
from seqloom.training.settings import Training
from seqloom.training.validation import all_batches


@dataclass(frozen=True, kw_only=True)
class MaskOptions(PlainTextOptions):
    """`mask_rate`: the share of the tokens that are hidden and predicted, at least one in a
    text."""

    max_length: int | None = 256
    mask_rate: float = 0.15

    def __post_init__(self) -> None:
        if not 0 < self.mask_rate < 1:
            raise SeqloomError(
                f"data.mask_rate, the share of tokens to be predicted, is above 0 and below 1, here {self.mask_rate}"
            )
        super().__post_init__()


class Mask(Task[PreparedTexts[MaskedTexts]]):
    name = "mask"
    models = MODELS
    kind = "masked"
    vocabularies = ("source",)
    options = MaskOptions
    training: Mapping[str, Any] = {"select": "loss"}

    @property
    def scores(self) -> tuple[str, ...]:
        return ("loss", "perplexity", "accuracy")

    def prepare(self, request: PrepareRequest[MaskOptions]) -> PreparedTexts[MaskedTexts]:
        texts, share = prepare_texts(request), request.options.mask_rate
        held = None if texts.valid is None else MaskedTexts(texts.valid, share, request.seed)
        return PreparedTexts(texts, MaskedTexts(texts.train, share), held)

    def sizes(self, vocabularies: Mapping[str, Any]) -> dict[str, Any]:
        return {"source_size": opened(vocabularies, "source", Codec).size}

    def decoding(self, data: PreparedTexts[MaskedTexts], before: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def objective(self, model: nn.Module, settings: Training, config: Mapping[str, Any]) -> Objective:
        return make_objective(model, settings, self.family)

    def validator(
        self, model: nn.Module, data: PreparedTexts[MaskedTexts], config: Mapping[str, Any], device: torch.device
    ) -> Validator:
        @torch.inference_mode()
        def scores(objective: nn.Module, settings: Training, ranks: Ranks) -> dict[str, float]:
            assert data.valid is not None
            training = model.training
            model.eval()
            sums = torch.zeros(3, dtype=torch.float64, device=device)
            for batch in all_batches(data.valid, settings, ranks):
                _, labels, logits = predict_masked(model, batch.to(device))
                nats = F.cross_entropy(logits.float(), labels, reduction="sum")
                hits = (logits.argmax(-1) == labels).sum()
                sums += torch.stack([nats, hits, torch.full_like(nats, labels.numel())])
            model.train(training)
            nats, hits, count = (ranks.all_reduce(sums) if ranks.distributed else sums).tolist()
            return {"loss": nats / count, "perplexity": perplexity(nats, count), "accuracy": 100 * hits / count}

        return scores

    def runner(self, run: LoadedRun) -> MaskModel:
        return MaskModel(run)


TASK = Mask()
