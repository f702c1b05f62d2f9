"""One value, a class or a number, from a row of a table with columns of several kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from seqloom.data.batches.table import Schema
from seqloom.data.formats.table import TableOptions
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.prepare.table import PreparedTable, prepare_table
from seqloom.models.table_model import ROW_MODELS
from seqloom.tasks.classify.task import validated
from seqloom.tasks.shared.label_predictions import label_scores
from seqloom.tasks.shared.predictor import LoadedRun
from seqloom.tasks.shared.task import Task, Validator
from seqloom.tasks.table.model import TableModel
from seqloom.training.distributed.processes import Ranks
from seqloom.training.objectives.objective import Objective
from seqloom.training.objectives.objective_table import make_objective
from seqloom.training.settings import Training


class Table(Task[PreparedTable]):
    """The task `table`. Its vocabularies are what was learned of the columns, and the tokens of their texts."""

    name = "table"
    models: Mapping[str, Any] = ROW_MODELS
    kind = "rows"
    vocabularies = ("columns", "source")
    options = TableOptions
    training: Mapping[str, Any] = {"select": "loss"}  # the one score that classes and numbers share

    @property
    def scores(self) -> tuple[str, ...]:
        return label_scores()

    def prepare(self, request: PrepareRequest[TableOptions]) -> PreparedTable:
        """Rows are kept in memory: nothing is written to the cache."""
        return prepare_table(request)

    def sizes(self, vocabularies: Mapping[str, Any]) -> dict[str, Any]:
        schema = Schema.from_json(vocabularies)
        return {
            "value_count": len(schema.labels),
            "text_count": len(schema.texts),
            "source_size": schema.codec.size,
            "label_count": schema.prediction.size,
        }

    def decoding(self, data: PreparedTable, before: Mapping[str, Any]) -> dict[str, Any]:
        """What the target turned out to be: the objective must know, and only the data says."""
        return {"target": data.schema.prediction.kind}

    def objective(self, model: nn.Module, settings: Training, config: Mapping[str, Any]) -> Objective:
        return make_objective(model, settings, self.family, config["decoding"]["target"])

    def validator(
        self, model: nn.Module, data: PreparedTable, config: Mapping[str, Any], device: torch.device
    ) -> Validator:
        def scored(objective: nn.Module, settings: Training, ranks: Ranks) -> dict[str, float]:
            held: Any = data.valid  # has all that is needed of a source here
            return validated(model, objective, held, settings, ranks, device)

        return scored

    def runner(self, run: LoadedRun) -> TableModel:
        return TableModel(run)


TASK = Table()
