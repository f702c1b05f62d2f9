"""`generate`: language models, which predict the next token."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from seqloom.data.batches.language import StreamOptions
from seqloom.data.prepare.language import PreparedLanguage, prepare_language
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.tokenizers.vocabulary import Codec, opened
from seqloom.decoding.generation import GenerationOptions
from seqloom.errors import SeqloomError
from seqloom.models.language_model import LANGUAGE_MODELS
from seqloom.parts.layers.output_layers import Adaptive
from seqloom.tasks.generate.model import GenerateModel
from seqloom.tasks.shared.predictor import LoadedRun
from seqloom.tasks.shared.task import Runner, Task, Validator
from seqloom.training.distributed.processes import Ranks
from seqloom.training.objectives.next_token import validation_loss
from seqloom.training.objectives.objective import Objective
from seqloom.training.objectives.objective_table import make_objective
from seqloom.training.settings import Training

UNRANKED = ("bytes", "bpe")  # tokens whose ids do not go from the most frequent to the rarest


class Generate(Task[PreparedLanguage]):
    name = "generate"
    models = LANGUAGE_MODELS
    samples_in_training = True
    kind = "language"
    vocabularies = ("source", "lines")
    options = StreamOptions
    training: Mapping[str, Any] = {"select": "loss"}

    def prepare(self, request: PrepareRequest[StreamOptions]) -> PreparedLanguage:
        return prepare_language(request)

    def sizes(self, vocabularies: Mapping[str, Any]) -> dict[str, Any]:
        size = opened(vocabularies, "source", Codec).size
        return {"source_size": size, "labels": len(vocabularies["lines"]["labels"])}

    def decoding(self, data: PreparedLanguage, before: Mapping[str, Any]) -> dict[str, Any]:
        """`room`: the context length of a Transformer, as in training. `longest`: the default length of a generated
        text; of lines, a quarter more than the longest line of the training data."""
        train: Any = data.train
        room = max(2, train.length if train.offsets is None else int(train.lengths.max()))
        longest = 200 if train.offsets is None else math.ceil(1.25 * int(train.lengths.max()))
        return {"room": max(room, before.get("room", 0)), "longest": max(longest, before.get("longest", 0))}

    def objective(self, model: nn.Module, settings: Training, config: Mapping[str, Any]) -> Objective:
        tokens = config["data"].get("tokens", StreamOptions.tokens)
        if isinstance(getattr(model, "output", None), Adaptive) and tokens.startswith(UNRANKED):
            raise SeqloomError(
                f"output: adaptive needs tokens numbered from the most frequent to the rarest; {tokens} are not: "
                "choose output: softmax, or tokens: words, chars or jieba"
            )
        return make_objective(model, settings, self.family)

    def validator(
        self, model: nn.Module, data: PreparedLanguage, config: Mapping[str, Any], device: torch.device
    ) -> Validator:
        stream: Any = data.valid

        def scores(objective: nn.Module, settings: Training, ranks: Ranks) -> dict[str, float]:
            return validation_loss(objective, stream, stream.options.length, device, ranks)

        return scores

    def runner(self, run: LoadedRun) -> Runner:
        return GenerateModel(run)

    def training_sample(self, runner: GenerateModel) -> str:
        """A short text of the current model for the log, always with the same seed."""
        label = next(iter(runner.texts.labels), None)
        return "".join(runner.generate(course=GenerationOptions(length=100, label=label)))


TASK = Generate()
