"""Transfer from one task to another: the encoding of text, the encoder, and the weights of both.

Every model's source side is called alike: `source`, the embedding of the ids of source.json, and `encoder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.build import nested_tables, settings
from seqloom.errors import SeqloomError, known
from seqloom.options import hints_of
from seqloom.tasks.shared.task import Task
from seqloom.training.checkpoint import trained_tensors
from seqloom.training.distributed.sharding import place_like

SHARED_PARTS = ("source", "encoder")  # the parts that are handed over
EMBEDDING_ONLY = {
    "characters": {"kind": "none"}
}  # keywords of models that would give the encoder more than the embedding
VOCABULARY_SETTINGS = (
    "lowercase",
    "half_width",
    "max_vocab",
    "min_count",
)  # data settings that belong to a vocabulary, beside its tokens


@dataclass(frozen=True)
class Transfer:
    """What a run takes over from one of another task. Everything else is as for a run from scratch."""

    data: dict[str, Any]  # settings of the new task's `data` section; others would not fit the vocabulary
    vocabularies: dict[str, Any]  # what the new task's `prepare` takes as vocabularies
    model: dict[str, Any]  # keywords of the new task's model


def transfer_settings(
    run: Path | str, config: Mapping[str, Any], vocabularies: Mapping[str, Any], task: Task, kind: str | None = None
) -> Transfer:
    """What a model of `task` (of `kind`, an entry of its table, if not the usual) takes over from a `run` with this
    config and these vocabularies."""
    make, model = task.models[kind or task.kind], config["model"]
    words = f"{run}: a {config['task']} run"
    if "source" not in vocabularies or "embedding" not in model:
        raise SeqloomError(f"{words} has no embedding of text to hand over; train from one that reads text")
    if "embedding" not in settings(make) or "source" not in task.vocabularies:
        raise SeqloomError(f"{words} reads text, and {task.name} with this model does not: --from does not go with it")
    mine, tokens = hints_of(task.options), config["data"].get("tokens", config["data"].get("source_tokens", "words"))
    own = next((name for name in ("tokens", "source_tokens") if name in mine), None)
    if own is None and tokens != "words":
        raise SeqloomError(f"{words} reads {tokens}, and {task.name} reads words: train from a run with tokens: words")
    data = {own: tokens} if own else {}
    data |= {name: config["data"][name] for name in VOCABULARY_SETTINGS if name in config["data"] and name in mine}
    parts = {name: model[name] for name in ("embedding",) if name in settings(make)}
    if "encoder" in model and "encoder" in settings(make):
        _check_embedding_only(model, words)
        parts |= {
            "encoder": _encoder_config(model["encoder"], make, f"encoder of {task.name}, brought by --from {run}:")
        }
        parts |= {name: value for name, value in EMBEDDING_ONLY.items() if name in settings(make)}
    return Transfer(data, {"source": vocabularies["source"]}, parts)


def _check_embedding_only(model: Mapping[str, Any], words: str) -> None:
    """An encoder that was given more than the embedding cannot read without it."""
    for name, value in EMBEDDING_ONLY.items():
        if model.get(name, value)["kind"] != value["kind"]:
            cure = f"train from one with --set {name}={value['kind']}"
            raise SeqloomError(f"{words} whose encoder reads {name} beside the embedding cannot hand it over; {cure}")


def _encoder_config(config: Mapping[str, Any], make: Callable[..., Any], what: str) -> dict[str, Any]:
    """The same encoder as the table of another model knows it. The stack of a language model has fewer keywords, and
    reads in one direction."""
    table = nested_tables(make)["encoder"]
    choices = settings(table[known(config["kind"], table, what)])
    one_way = {"directions": 1} if "directions" in choices else {}
    return one_way | {name: value for name, value in config.items() if name == "kind" or name in choices}


def copy_shared_weights(
    model: nn.Module, weights: Mapping[str, Tensor], run: Path | str
) -> tuple[list[str], list[str]]:
    """Copy the weights of the source side; gives the names of those that were taken and of those that stay new.

    A part that both have, `source` or `encoder`, must fit whole. Word vectors have no encoder: they hand over their
    embedding alone.
    """
    parameters = trained_tensors(model)
    here, there = ({name.split(".")[0] for name in names} & {*SHARED_PARTS} for names in (parameters, weights))
    offered, wanted = ({n for n in names if n.split(".")[0] in here & there} for names in (weights, parameters))
    if not wanted:
        raise SeqloomError(
            f"{run}: has no weights under the names {' or '.join(SHARED_PARTS)}, or the new model has none"
        )
    if odd := sorted(wanted ^ offered):
        raise SeqloomError(f"{run}: its {odd[0].split('.')[0]} is made otherwise: {odd[0]} is in one model only")
    for name in sorted(wanted):
        if parameters[name].shape != weights[name].shape:
            shapes = f"{tuple(weights[name].shape)} there and {tuple(parameters[name].shape)} here"
            raise SeqloomError(f"{run}: {name} is {shapes}; leave the embedding and encoder as --from brings them")
    with torch.no_grad():
        for name in wanted:
            parameters[name].copy_(place_like(weights[name], parameters[name]))
    return sorted(wanted), sorted(parameters.keys() - wanted)
