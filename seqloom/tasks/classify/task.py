"""N → 1: one value for a text: a label, several labels, or a number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from seqloom.data.batches.class_weights import class_weights
from seqloom.data.batches.labels import LabelSource, Target, encode_targets
from seqloom.data.formats.bad_lines import Skipped
from seqloom.data.formats.pairs import Example
from seqloom.data.prepare.labels import LabelOptions, label_warning, looks_swapped
from seqloom.data.prepare.pairs import PreparedPairs, prepare_pairs
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.splits.sorted_files import sorted_note
from seqloom.data.splits.split import Split
from seqloom.data.tokenizers.tokenizers import make_tokenizer
from seqloom.data.tokenizers.vocabulary import Codec, Vocabularies, opened
from seqloom.errors import SeqloomError
from seqloom.metrics.classification import score_labels
from seqloom.models.classifier import CLASSIFIERS, Logistic
from seqloom.models.ensemble import ClassifierEnsemble
from seqloom.tasks.classify.model import ClassifyModel
from seqloom.tasks.shared.label_predictions import default_metrics, label_scores, with_references
from seqloom.tasks.shared.predictor import LoadedRun
from seqloom.tasks.shared.task import Task, Validator
from seqloom.training.distributed.processes import Ranks
from seqloom.training.objectives.objective import Objective, unwrap
from seqloom.training.objectives.objective_table import make_objective
from seqloom.training.settings import Training
from seqloom.training.validation import all_batches


@dataclass(frozen=True, eq=False)
class PreparedLabels:
    """Training and validation data of `classify`."""

    source: Codec
    target: Target
    train: LabelSource
    valid: LabelSource | None
    notes: list[str]
    facts: dict[str, Any] = field(repr=False)
    prepared: PreparedPairs = field(repr=False)

    def vocabularies(self) -> Vocabularies:
        return Vocabularies(source=self.source, target=self.target)

    def validation_examples(self) -> list[Example]:
        return self.prepared.validation_examples()


class Classify(Task[PreparedLabels]):
    """The task `classify`. Its vocabularies: the tokens of texts, and the labels, or mean and deviation of numbers."""

    name = "classify"
    models: Mapping[str, Any] = CLASSIFIERS
    can_ensemble = True
    kind = "classifier"
    vocabularies = ("source", "target")
    options = LabelOptions
    training: Mapping[str, Any] = {"select": "accuracy"}

    @property
    def scores(self) -> tuple[str, ...]:
        return label_scores()

    def prepare(self, request: PrepareRequest[LabelOptions]) -> PreparedLabels:
        """Prepared as pairs: the text is the source and the label the target."""
        options, stored = request.options, request.vocabularies or {}
        source = Codec.from_json(stored["source"]) if "source" in stored else None
        target = Target.from_json(stored["target"]) if "target" in stored else None
        if target is not None and target.kind != options.target:
            raise SeqloomError(f"the labels that were brought are of the kind {target.kind}, not {options.target}")
        codecs = (source, None if target is None else _label_codec(target)) if source or target else None
        prepared = prepare_pairs(request, codecs)
        target = _target(prepared, options) if target is None else target
        values = encode_targets(prepared.train, target)
        files = ", ".join(str(group) for group in prepared.split.train)
        _check(values, target, files, _one_label_hint(prepared, options), options.limit)
        doubts = _doubtful_labels(prepared, options, target, len(values), files)
        plain = LabelSource(prepared.train, target, values)
        weights = class_weights(options.class_weights, target, plain.counts())
        held = prepared.valid
        return PreparedLabels(
            source=prepared.source,
            target=target,
            train=plain if weights is None else LabelSource(prepared.train, target, values, weights),
            valid=None if held is None else LabelSource(held, target, encode_targets(held, target)),
            notes=(notes := [*prepared.notes, *doubts, *_sorted_file_notes(prepared.split, options, target)]),
            facts=_facts(prepared.facts, plain) | {"notes": notes},
            prepared=prepared,
        )

    def sizes(self, vocabularies: Mapping[str, Any]) -> dict[str, Any]:
        source, target = opened(vocabularies, "source", Codec), opened(vocabularies, "target", Target)
        return {"source_size": source.size, "label_count": target.size}

    def decoding(self, data: PreparedLabels, before: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def objective(self, model: nn.Module, settings: Training, config: Mapping[str, Any]) -> Objective:
        target = config["data"]["target"]
        if isinstance(model, Logistic) and target != "label":
            raise SeqloomError(f"model logistic predicts one of two labels, not {target}; choose softmax")
        return make_objective(model, settings, self.family, target)

    def validator(
        self, model: nn.Module, data: PreparedLabels, config: Mapping[str, Any], device: torch.device
    ) -> Validator:
        def scored(objective: nn.Module, settings: Training, ranks: Ranks) -> dict[str, float]:
            assert data.valid is not None
            return validated(model, objective, data.valid, settings, ranks, device)

        return scored

    def ensemble(self, models: Sequence[nn.Module], vocabularies: Mapping[str, Any]) -> nn.Module:
        return ClassifierEnsemble(models, opened(vocabularies, "target", Target).kind)

    def runner(self, run: LoadedRun) -> ClassifyModel:
        return ClassifyModel(run)


TASK = Classify()


@torch.inference_mode()
def validated(
    model: nn.Module,
    objective: nn.Module,
    source: LabelSource,
    settings: Training,
    ranks: Ranks,
    device: torch.device,
) -> dict[str, float]:
    """The mean loss and the scores on validation data. Every rank predicts its rows; the outputs are gathered."""
    training = objective.training
    objective.eval()
    total, count, rows, logits = torch.zeros((), dtype=torch.float64, device=device), 0, [], []
    for batch in all_batches(source, settings, ranks):
        outputs = model(batch.source.to(device))
        loss = unwrap(objective).loss(outputs, batch.to(device))
        total, count = total + loss.total, count + loss.count
        rows += batch.rows
        logits.append(outputs[: len(batch.rows)].float().cpu().numpy())
    objective.train(training)
    gathered = ranks.all_gather(
        {"total": float(total), "count": count, "rows": rows, "logits": np.concatenate(logits).tolist()}
    )
    order = np.concatenate([np.array(rank["rows"], np.int64) for rank in gathered])
    outputs = np.concatenate(
        [np.array(rank["logits"], np.float32).reshape(-1, source.target.size) for rank in gathered]
    )
    missing = source.missing()[order] if source.target.kind == "labels" else None  # a single missing label is -1
    predictions = with_references(source.target, outputs, source.values[order], missing)
    names = default_metrics(source.target.kind)
    count = sum(rank["count"] for rank in gathered)
    loss = sum(rank["total"] for rank in gathered) / count if count else math.nan
    return {"loss": loss, **score_labels(predictions, metrics=names, samples=0).metrics}


def _label_codec(target: Target) -> Codec:
    """The codec with which pairs encode the labels."""
    kind = target.tokens
    return Codec.build("bytes", ()) if kind == "bytes" else Codec(kind, make_tokenizer(kind), list(target.names))


def _target(prepared: PreparedPairs, options: LabelOptions) -> Target:
    if options.target != "number":
        return Target(options.target, tuple(prepared.target.tokens), options.separator)
    numbers = encode_targets(prepared.train, Target("number")).astype(np.float64)
    return Target("number", mean=float(numbers.mean()), deviation=float(numbers.std()) or 1.0)


def _doubtful_labels(
    prepared: PreparedPairs, options: LabelOptions, target: Target, count: int, files: str
) -> list[str]:
    """A note if nearly every line has a label of its own; an error if few texts show that the columns are swapped."""
    if target.kind != "label":
        return []
    amounts = count, prepared.facts["train"]["distinct_sources"], target.size
    message = label_warning(*amounts)
    if looks_swapped(*amounts) and options.columns is None:
        raise SeqloomError(f"{files}: {message}")
    return [message] if message else []


def _sorted_file_notes(split: Split, options: LabelOptions, target: Target) -> Iterator[str]:
    """A note if the file is sorted by label and `limit` takes its first examples."""
    if options.limit is None or target.kind == "number":
        return
    whole = replace(split, reading=replace(split.reading, limit=None), decision=None)
    with suppress(SeqloomError):  # lines after the limit may be broken
        labels = (label for part in whole.training_parts(Skipped(), None) for label in part.labels or ())
        if message := sorted_note(labels, options.limit):
            yield message


def _one_label_hint(prepared: PreparedPairs, options: LabelOptions) -> str:
    """What to do if all examples have the same label."""
    if options.limit is not None:
        return f"--sample {options.limit} draws from the whole of a sorted file"
    if any(group.form == "jsonl" for group in prepared.split.train):
        return "--columns names the keys of text and label"
    read = "the second" if options.columns is None else f"the second of {options.columns}"
    return f"the label is read from {read} column; --columns chooses another, as in --columns 1,3"


def _check(values: np.ndarray, target: Target, files: str, hint: str, limit: int | None) -> None:
    if target.kind == "label" and (unknown := int((values < 0).sum())):
        names = ", ".join(target.names[:10])
        message = f"{unknown:,} of {len(values):,} examples have labels that the run it starts from lacks"
        raise SeqloomError(f"{files}: {message}; it has {names}")
    if target.kind == "label" and target.size < 2:
        which = "all examples" if limit is None else f"all of the first {limit:,} examples"
        message = f"{which} have the label {target.names[0]!r}: there is nothing to tell apart"
        raise SeqloomError(f"{files}: {message}; {hint}")
    if target.kind == "labels" and not target.size:
        raise SeqloomError(f"{files}: no example has a label")


def _facts(facts: dict[str, Any], train: LabelSource) -> dict[str, Any]:
    """The facts of the pairs and the counts of the labels; of numbers mean and deviation, not their bytes."""
    target = train.target
    if target.kind != "number":
        counts = train.counts().astype(int).tolist()
        return facts | {"labels": dict(zip(target.names, counts, strict=True))}
    scale = {"mean": target.mean, "deviation": target.deviation}
    facts = facts | {"numbers": scale, "vocabulary": {"source": facts["vocabulary"]["source"]}}
    for name in ("train", "valid"):
        facts[name] = facts[name] and {key: value for key, value in facts[name].items() if key != "target"}
    return facts
