"""`mask`: a two-way encoder learns from plain text by guessing tokens that were hidden from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from seqloom.data.batches.batch_source import Ready
from seqloom.data.prepare.texts import TextOptions, TextReady, collect
from seqloom.data.splits.split import Fold
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.errors import SeqloomError
from seqloom.metrics.perplexity import perplexity
from seqloom.models.pretraining.masked_language_model import MODELS
from seqloom.tasks.mask.model import Filler
from seqloom.tasks.shared.task import Judge
from seqloom.training.distributed.processes import Ranks
from seqloom.training.objectives.masked_tokens import Clozes, MaskedPrediction, guessed
from seqloom.training.settings import Training
from seqloom.training.validation import all_batches


@dataclass(frozen=True, kw_only=True)
class MaskOptions(TextOptions):
    """Of `TextOptions`, and `masked`: the share of the tokens that is chosen to be guessed, at least one in a text."""

    max_length: int | None = 256
    masked: float = 0.15

    def __post_init__(self) -> None:
        if not 0 < self.masked < 1:
            raise SeqloomError(
                f"data.masked, the share of tokens to be guessed, is above 0 and below 1, here {self.masked}"
            )
        super().__post_init__()


class Mask:
    name = "mask"
    models = MODELS
    kind = "masked"
    vocabularies = ("source",)
    options = MaskOptions
    training: Mapping[str, Any] = {"select": "loss"}
    scores = ("loss", "perplexity", "accuracy")

    def prepare(
        self,
        train: list[str],
        valid: list[str] | float | Fold,
        options: MaskOptions,
        *,
        seed: int,
        cache: Path | None = None,
        kept: Mapping[str, Any] | None = None,
    ) -> TextReady[Clozes]:
        texts = collect(train, valid, options, seed=seed, cache=cache, kept=kept)
        held = None if texts.valid is None else Clozes(texts.valid, options.masked, seed)
        return TextReady(texts, Clozes(texts.train, options.masked), held)

    def sizes(self, vocabularies: Mapping[str, Any]) -> dict[str, Any]:
        return {"source_size": Codec.from_json(vocabularies["source"]).size}

    def decoding(self, ready: Ready, before: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def objective(self, model: nn.Module, settings: Training, config: Mapping[str, Any]) -> nn.Module:
        return MaskedPrediction(model)  # pyright: ignore[reportArgumentType]

    def judge(self, model: nn.Module, ready: Ready, config: Mapping[str, Any], device: torch.device) -> Judge:
        @torch.inference_mode()
        def scores(objective: nn.Module, settings: Training, ranks: Ranks) -> dict[str, float]:
            assert ready.valid is not None
            training = model.training
            model.eval()
            sums = torch.zeros(3, dtype=torch.float64, device=device)
            for batch in all_batches(ready.valid, settings, ranks):
                _, labels, logits = guessed(model, batch.to(device))
                nats = F.cross_entropy(logits.float(), labels, reduction="sum")
                hits = (logits.argmax(-1) == labels).sum()
                sums += torch.stack([nats, hits, torch.full_like(nats, labels.numel())])
            model.train(training)
            nats, hits, count = (ranks.add(sums) if ranks.several else sums).tolist()
            return {"loss": nats / count, "perplexity": perplexity(nats, count), "accuracy": 100 * hits / count}

        return scores

    def runner(
        self,
        folder: Path,
        config: dict[str, Any],
        model: nn.Module,
        vocabularies: Mapping[str, Any],
        device: torch.device,
    ) -> Filler:
        return Filler(folder, config, model, Codec.from_json(vocabularies["source"]), device)


TASK = Mask()
