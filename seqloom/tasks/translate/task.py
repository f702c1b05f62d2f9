"""N → M: pairs of source and target, of any kind and length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from seqloom.data.prepare.pairs import DataOptions, PreparedPairs, prepare_pairs
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.tokenizers.vocabulary import Codec, opened
from seqloom.decoding.batched import LengthLimit, TextPredictor
from seqloom.errors import SeqloomError
from seqloom.metrics.metric_table import METRICS as ALL
from seqloom.metrics.metric_table import task_metrics
from seqloom.metrics.text.text_metrics import METRICS
from seqloom.models.ensemble import StepperEnsemble
from seqloom.models.seq2seq import MODELS
from seqloom.tasks.shared.predictor import LoadedRun
from seqloom.tasks.shared.task import Task, Validator
from seqloom.tasks.translate.model import Translator
from seqloom.training.distributed.processes import Ranks
from seqloom.training.objectives.objective import Objective
from seqloom.training.objectives.objective_table import make_objective
from seqloom.training.settings import Training
from seqloom.training.validation import all_batches, greedy_scores, validation_loss


class Translate(Task[PreparedPairs]):
    name = "translate"
    models: Mapping[str, Any] = MODELS
    can_ensemble = True
    kind = "seq2seq"
    vocabularies = ("source", "target")
    options = DataOptions
    training: Mapping[str, Any] = {"select": "per"}

    @property
    def scores(self) -> tuple[str, ...]:
        return ("loss", "perplexity", *(name for name in task_metrics(self.family) if ALL[name].selects))

    def prepare(self, request: PrepareRequest[DataOptions]) -> PreparedPairs:
        stored = request.vocabularies or {}  # of another task's run the source alone
        source, target = (Codec.from_json(stored[side]) if side in stored else None for side in self.vocabularies)
        return prepare_pairs(request, (source, target) if source or target else None)

    def sizes(self, vocabularies: Mapping[str, Any]) -> dict[str, Any]:
        source, target = _codecs(vocabularies)
        return {"source_size": source.size, "target_size": target.size}

    def decoding(self, data: PreparedPairs, before: Mapping[str, Any]) -> dict[str, Any]:
        """How long targets get, from the training data: the largest ratio to the source, and the longest.

        Other rules of the run before stay, and no bound gets smaller.
        """
        source, target = data.train.source_lengths, data.train.target_lengths
        found = {"ratio": float(np.ceil(10 * (target / source).max()) / 10), "longest": int(target.max())}
        return {**before, **{name: max(value, before.get(name, value)) for name, value in found.items()}}

    def objective(self, model: nn.Module, settings: Training, config: Mapping[str, Any]) -> Objective:
        return make_objective(model, settings, self.family)

    def validator(
        self, model: nn.Module, data: PreparedPairs, config: Mapping[str, Any], device: torch.device
    ) -> Validator:
        texts, examples = _texts(model, (data.source, data.target), config, device), data.validation_examples()

        def scores(objective: nn.Module, settings: Training, ranks: Ranks) -> dict[str, float]:
            assert data.valid is not None
            found = validation_loss(objective, all_batches(data.valid, settings, ranks), device, ranks)
            if settings.valid_decode:
                metrics = list(dict.fromkeys(["per", "exact_match", *({settings.select} & METRICS.keys())]))
                found |= greedy_scores(texts, examples, metrics, settings.valid_decode, ranks)
            return found

        return scores

    def ensemble(self, models: Sequence[nn.Module], vocabularies: Mapping[str, Any]) -> nn.Module:
        return StepperEnsemble(models)

    def runner(self, run: LoadedRun) -> Translator:
        return Translator(run, _texts(run.model, _codecs(run.vocabularies), run.config, run.device))


def _codecs(vocabularies: Mapping[str, Any]) -> tuple[Codec, Codec]:
    return opened(vocabularies, "source", Codec), opened(vocabularies, "target", Codec)


def _texts(model: Any, codecs: tuple[Codec, Codec], config: Mapping[str, Any], device: torch.device) -> TextPredictor:
    data, bound, size = config["data"], LengthLimit(**config["decoding"]), codecs[1].size
    for number in (*bound.never, *(() if bound.first is None else (bound.first,))):
        if number >= size:
            raise SeqloomError(f"decoding names the token {number}, and the vocabulary of targets has {size}")
    return TextPredictor(model, *codecs, bound, device, max_length=data["max_length"], cut=data["truncate"])


TASK = Translate()
