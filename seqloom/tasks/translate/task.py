"""N → M: pairs of source and target, of any kind and length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from seqloom.data.prepare.pairs import DataOptions, Prepared, prepare
from seqloom.data.splits.split import Fold
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.decoding.batched import Bound, Texts
from seqloom.errors import SeqloomError
from seqloom.metrics.text.text_metrics import METRICS
from seqloom.models.ensemble import Writers
from seqloom.models.seq2seq import MODELS
from seqloom.tasks.shared.task import Judge
from seqloom.tasks.translate.model import Translator
from seqloom.training.distributed.processes import Ranks
from seqloom.training.objectives.teacher_forcing import TeacherForcing
from seqloom.training.settings import Training
from seqloom.training.validation import all_batches, likelihood, written


class Translate:
    name = "translate"
    models: Mapping[str, Any] = MODELS
    kind = "seq2seq"
    vocabularies = ("source", "target")
    options = DataOptions
    training: Mapping[str, Any] = {"select": "per"}
    scores = ("loss", "perplexity", *METRICS)

    def prepare(
        self,
        train: list[str],
        valid: list[str] | float | Fold,
        options: DataOptions,
        *,
        seed: int,
        cache: Path | None = None,
        kept: Mapping[str, Any] | None = None,
    ) -> Prepared:
        kept = kept or {}  # of another task's run the source alone
        source, target = (Codec.from_json(kept[side]) if side in kept else None for side in self.vocabularies)
        codecs = (source, target) if source or target else None
        return prepare(train, valid, options, seed=seed, cache=cache, codecs=codecs)

    def sizes(self, vocabularies: Mapping[str, Any]) -> dict[str, Any]:
        source, target = _codecs(vocabularies)
        return {"source_size": source.size, "target_size": target.size}

    def decoding(self, ready: Prepared, before: Mapping[str, Any]) -> dict[str, Any]:
        """How long targets get, from the training data: the largest ratio to the source, and the longest.

        Other rules of the run before stay, and no bound gets smaller.
        """
        source, target = ready.train.source_lengths, ready.train.target_lengths
        found = {"ratio": float(np.ceil(10 * (target / source).max()) / 10), "longest": int(target.max())}
        return {**before, **{name: max(value, before.get(name, value)) for name, value in found.items()}}

    def objective(self, model: nn.Module, settings: Training, config: Mapping[str, Any]) -> nn.Module:
        return TeacherForcing(model, settings.smoothing, settings.agreement)  # pyright: ignore[reportArgumentType]

    def judge(self, model: nn.Module, ready: Prepared, config: Mapping[str, Any], device: torch.device) -> Judge:
        texts, examples = _texts(model, (ready.source, ready.target), config, device), ready.held()

        def scores(objective: nn.Module, settings: Training, ranks: Ranks) -> dict[str, float]:
            assert ready.valid is not None
            found = likelihood(objective, all_batches(ready.valid, settings, ranks), device, ranks)
            if settings.valid_decode:
                metrics = list(dict.fromkeys(["per", "exact_match", *({settings.select} & METRICS.keys())]))
                found |= written(texts, examples, metrics, settings.valid_decode, ranks)
            return found

        return scores

    def ensemble(self, models: Sequence[nn.Module], vocabularies: Mapping[str, Any]) -> nn.Module:
        return Writers(models)

    def runner(
        self,
        folder: Path,
        config: dict[str, Any],
        model: nn.Module,
        vocabularies: Mapping[str, Any],
        device: torch.device,
    ) -> Translator:
        return Translator(folder, config, _texts(model, _codecs(vocabularies), config, device))


def _codecs(vocabularies: Mapping[str, Any]) -> tuple[Codec, Codec]:
    return Codec.from_json(vocabularies["source"]), Codec.from_json(vocabularies["target"])


def _texts(model: Any, codecs: tuple[Codec, Codec], config: Mapping[str, Any], device: torch.device) -> Texts:
    data, bound, size = config["data"], Bound(**config["decoding"]), codecs[1].size
    for number in (*bound.never, *(() if bound.first is None else (bound.first,))):
        if number >= size:
            raise SeqloomError(f"decoding names the token {number}, and the vocabulary of targets has {size}")
    return Texts(model, *codecs, bound, device, max_length=data["max_length"], cut=data["cut"])


TASK = Translate()
