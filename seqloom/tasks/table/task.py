"""One value, a class or a number, from a row of a table with columns of several kinds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqloom.data.batches.table import Schema
from seqloom.data.formats.table import TableOptions
from seqloom.data.prepare.table import Rowset, prepare
from seqloom.data.splits.split import Fold
from seqloom.models.table_model import ROW_MODELS
from seqloom.tasks.classify.task import validated
from seqloom.tasks.shared.label_predictions import SCORES
from seqloom.tasks.shared.task import Judge
from seqloom.tasks.table.model import Estimator
from seqloom.training.distributed.processes import Ranks
from seqloom.training.objectives.labels import label_objective
from seqloom.training.settings import Training


class Table:
    """The task `table`. Its vocabularies are what was learned of the columns, and the tokens of their texts."""

    name = "table"
    models: Mapping[str, Any] = ROW_MODELS
    kind = "rows"
    vocabularies = ("columns", "source")
    options = TableOptions
    training: Mapping[str, Any] = {"select": "loss"}  # the one score that classes and numbers share
    scores = SCORES

    def prepare(
        self,
        train: list[str],
        valid: list[str] | float | Fold,
        options: TableOptions,
        *,
        seed: int,
        cache: Path | None = None,
        kept: Mapping[str, Any] | None = None,
    ) -> Rowset:
        """Rows are kept in memory: nothing is written to the cache."""
        return prepare(train, valid, options, seed=seed, kept=kept)

    def sizes(self, vocabularies: Mapping[str, Any]) -> dict[str, Any]:
        schema = Schema.from_json(vocabularies)
        return {
            "value_count": len(schema.labels),
            "text_count": len(schema.texts),
            "source_size": schema.codec.size,
            "label_count": schema.answer.size,
        }

    def decoding(self, ready: Rowset, before: Mapping[str, Any]) -> dict[str, Any]:
        """What the target turned out to be: the objective must know, and only the data says."""
        return {"target": ready.schema.answer.kind}

    def objective(self, model: nn.Module, settings: Training, config: Mapping[str, Any]) -> nn.Module:
        return label_objective(config["decoding"]["target"], model, settings.smoothing, settings.agreement)

    def judge(self, model: nn.Module, ready: Rowset, config: Mapping[str, Any], device: torch.device) -> Judge:
        def judged(objective: nn.Module, settings: Training, ranks: Ranks) -> dict[str, float]:
            held: Any = ready.valid  # has all that is asked of a supply here
            return validated(model, objective, held, settings, ranks, device)

        return judged

    def runner(
        self,
        folder: Path,
        config: dict[str, Any],
        model: nn.Module,
        vocabularies: Mapping[str, Any],
        device: torch.device,
    ) -> Estimator:
        return Estimator(folder, config, model, Schema.from_json(vocabularies), device)


TASK = Table()
