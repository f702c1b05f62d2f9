"""N → N: one tag for each word of a sentence, such as its part of speech or the name that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqloom.data.batches.tags import TagOptions, TagReady, Tags, lexicon_of
from seqloom.data.prepare.tags import prepare_tags
from seqloom.data.splits.split import Fold
from seqloom.models.ensemble import Taggers
from seqloom.models.tagger import TAGGERS
from seqloom.tasks.shared.task import Judge
from seqloom.tasks.tag.model import SentenceTagger
from seqloom.training.distributed.processes import Ranks
from seqloom.training.objectives.tags import TagLikelihood, tag_scores
from seqloom.training.settings import Training


class TagTask:
    """See `Task`."""

    name = "tag"
    models: Mapping[str, Any] = TAGGERS
    kind = "tagger"
    vocabularies = ("source", "characters", "tags")
    options = TagOptions
    training: Mapping[str, Any] = {"select": "accuracy"}
    scores = ("loss", "accuracy", "f1")

    def prepare(
        self,
        train: list[str],
        valid: list[str] | float | Fold,
        options: TagOptions,
        *,
        seed: int,
        cache: Path | None = None,
        kept: Mapping[str, Any] | None = None,
    ) -> TagReady:
        """Numbered in memory: reading takes seconds, so that nothing is kept in the cache."""
        return prepare_tags(train, valid, options, seed=seed, kept=kept)

    def select(self, ready: TagReady) -> str:
        """The score that the best model is chosen by, where the user names none."""
        return "accuracy" if ready.tags.scheme is None else "f1"

    def sizes(self, vocabularies: Mapping[str, Any]) -> dict[str, Any]:
        lexicon = lexicon_of(vocabularies)
        return {
            "source_size": lexicon.words.size,
            "characters_size": lexicon.characters.size,
            "tags": len(Tags.from_json(vocabularies["tags"]).names),
            "rare": vocabularies["source"].get("rare", lexicon.words.size),
        }

    def decoding(self, ready: TagReady, before: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def objective(self, model: nn.Module, settings: Training, config: Mapping[str, Any]) -> nn.Module:
        return TagLikelihood(model, settings.smoothing, settings.agreement)

    def judge(self, model: nn.Module, ready: TagReady, config: Mapping[str, Any], device: torch.device) -> Judge:
        def scores(objective: nn.Module, settings: Training, ranks: Ranks) -> dict[str, float]:
            return (
                {} if ready.valid is None else tag_scores(objective, ready.valid, ready.tags, settings, device, ranks)
            )

        return scores

    def ensemble(self, models: Sequence[nn.Module], vocabularies: Mapping[str, Any]) -> nn.Module:
        return Taggers(models)

    def runner(
        self,
        folder: Path,
        config: dict[str, Any],
        model: nn.Module,
        vocabularies: Mapping[str, Any],
        device: torch.device,
    ) -> SentenceTagger:
        return SentenceTagger(folder, config, model, vocabularies, device)


TASK = TagTask()
