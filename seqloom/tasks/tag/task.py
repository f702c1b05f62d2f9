"""N → N: one tag for each word of a sentence, such as its part of speech or the name that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from seqloom.data.batches.tags import PreparedTags, TagOptions, Tags, lexicon_of
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.prepare.tags import prepare_tags
from seqloom.models.ensemble import TaggerEnsemble
from seqloom.models.tagger import TAGGERS
from seqloom.tasks.shared.predictor import LoadedRun
from seqloom.tasks.shared.task import Task, Validator
from seqloom.tasks.tag.model import TagModel
from seqloom.training.distributed.processes import Ranks
from seqloom.training.objectives.objective import Objective
from seqloom.training.objectives.objective_table import make_objective
from seqloom.training.objectives.tags import tag_scores
from seqloom.training.settings import Training


class TagTask(Task[PreparedTags]):
    """See `Task`."""

    name = "tag"
    models: Mapping[str, Any] = TAGGERS
    can_ensemble = True
    kind = "tagger"
    vocabularies = ("source", "characters", "tags")
    options = TagOptions
    training: Mapping[str, Any] = {"select": "accuracy"}

    def prepare(self, request: PrepareRequest[TagOptions]) -> PreparedTags:
        """Numbered in memory: reading takes seconds, so that nothing is kept in the cache."""
        return prepare_tags(request)

    def select(self, data: PreparedTags) -> str:
        """The score that the best model is chosen by, where the user names none."""
        return "accuracy" if data.tags.scheme is None else "f1"

    def sizes(self, vocabularies: Mapping[str, Any]) -> dict[str, Any]:
        lexicon = lexicon_of(vocabularies)
        return {
            "source_size": lexicon.words.size,
            "characters_size": lexicon.characters.size,
            "tags": len(Tags.from_json(vocabularies["tags"]).names),
            "rare": vocabularies["source"].get("rare", lexicon.words.size),
        }

    def decoding(self, data: PreparedTags, before: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def objective(self, model: nn.Module, settings: Training, config: Mapping[str, Any]) -> Objective:
        return make_objective(model, settings, self.family)

    def validator(
        self, model: nn.Module, data: PreparedTags, config: Mapping[str, Any], device: torch.device
    ) -> Validator:
        def scores(objective: nn.Module, settings: Training, ranks: Ranks) -> dict[str, float]:
            return {} if data.valid is None else tag_scores(objective, data.valid, data.tags, settings, device, ranks)

        return scores

    def ensemble(self, models: Sequence[nn.Module], vocabularies: Mapping[str, Any]) -> nn.Module:
        return TaggerEnsemble(models)

    def runner(self, run: LoadedRun) -> TagModel:
        return TagModel(run)


TASK = TagTask()
