"""A resolved job becomes a session: its data, model, objective and loop, ready to train."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from seqloom.build import kind_of
from seqloom.data.batches.batch_source import PreparedData
from seqloom.data.files.lines import STDIN
from seqloom.data.prepare.request import PrepareRequest
from seqloom.errors import SeqloomError, setting_errors
from seqloom.plural import counted
from seqloom.reporting.task_words import wording
from seqloom.runs import config as configs
from seqloom.runs.folder.folder_checks import model_size_limit
from seqloom.runs.load import MODEL
from seqloom.runs.progress import Progress
from seqloom.runs.train.batch_size import few_updates_note
from seqloom.runs.train.job import Job
from seqloom.runs.train.resolve import ResolvedJob, complete
from seqloom.runs.train.session import CHECKPOINTS, Session
from seqloom.runs.train.validation_split import parse_valid, split_seed
from seqloom.runs.train.warm_start import load_start_weights
from seqloom.tasks.registry import dataset_files
from seqloom.tasks.registry import task as get_task
from seqloom.tasks.shared import pretrained_vectors
from seqloom.training.distributed.processes import Ranks
from seqloom.training.distributed.sharding import distributed_objective
from seqloom.training.forward_backward import uses_bf16
from seqloom.training.freeze import freeze
from seqloom.training.loop import Loop
from seqloom.training.settings import Training


def build_session(job: Job, resolved: ResolvedJob, ranks: Ranks, progress: Progress) -> Session:
    """Data, model, objective and loop of a job, with notes for the user."""
    data = prepare_data(job, resolved, ranks)
    config, batch_notes = complete(resolved, data)
    with ranks.fail_together():
        session = _make_session(job.folder, config, data, ranks, progress)
        if resolved.dataset_valid:
            progress.note(f"validates on {resolved.valid}")
        _check_and_note(session)
        step_notes = [] if hasattr(session.model, "fit") else [*batch_notes, *few_updates_note(session)]
        for note in (*resolved.notes, *step_notes):
            progress.note(note)
    if resolved.start is not None:
        load_start_weights(session, Path(resolved.start), same_task="taken" not in config["inputs"])
    return session


def prepare_data(job: Job, resolved: ResolvedJob, ranks: Ranks) -> PreparedData:
    """The training and validation data, prepared once for each cache; the same on every machine, else an error."""
    config, (held_out, seed) = resolved.config, split_seed(resolved.valid, resolved.config["training"]["seed"])

    def prepare() -> PreparedData:
        if ranks.distributed and STDIN in job.names:
            raise SeqloomError("several processes cannot share standard input; write the data to a file first")
        valid = parse_valid(held_out)
        request = PrepareRequest(
            dataset_files(job.names, "train", job.task),
            dataset_files(valid, "valid", job.task) if isinstance(valid, list) else valid,
            configs.data_options(job.task, config["data"]),
            seed=seed,
            cache=job.cache,
            vocabularies=resolved.vocabularies,
        )
        return get_task(job.task).prepare(request)

    data = ranks.in_turn(prepare)
    if data.valid is None and re.match("fold ", str(resolved.valid)):
        raise SeqloomError(f"{resolved.valid} holds nothing: there are too few examples for so many folds; take fewer")
    fingerprints = set(ranks.all_gather(data.train.fingerprint))
    with ranks.fail_together():
        if len(fingerprints) > 1:
            raise SeqloomError("the training data differ between the machines; give every one the same files")
    return data


def _make_session(
    folder: Path, config: Mapping[str, Any], data: PreparedData, ranks: Ranks, progress: Progress
) -> Session:
    settings, task = Training.of(config["training"]), get_task(config["task"])
    torch.manual_seed(settings.seed)
    vocabularies = data.vocabularies()
    with model_size_limit(folder, config, MODEL):
        model = configs.build_model(config, task.sizes(vocabularies))
    if settings.vectors and not any((folder / CHECKPOINTS).glob("step-*")):
        note = pretrained_vectors.load_into_model(model, vocabularies, settings.vectors)
        progress.note(f"{settings.vectors}: {note}")
    if settings.freeze:
        with setting_errors():
            frozen = freeze(model, settings.freeze)
        progress.detail(f"frozen: {', '.join(frozen)}")
    with setting_errors():
        objective = task.objective(model, settings, config)
    loop = Loop(distributed_objective(objective, ranks, settings.shard), data.train, settings, ranks.device, ranks)
    validator = task.validator(model, data, config, ranks.device)
    if hasattr(progress, "unit"):
        progress.unit = f"{wording(config).label.split()[-1]}s"  # pyright: ignore[reportAttributeAccessIssue]
    return Session(folder, config, loop, model, data, validator, progress)


def _check_and_note(session: Session) -> None:
    data, settings, note = session.data, session.settings, session.progress.note
    if settings.patience is not None and data.valid is None:
        raise SeqloomError("patience counts validations, and there is no validation data; set --valid or --epochs")
    if settings.optimizer_entry.averages and data.valid is None:
        name = kind_of(settings.optimizer)
        raise SeqloomError(f"{name} averages once validations get worse, and there is no validation data; set --valid")
    for text in data.notes:
        note(text)
    if settings.precision == "bf16" and not uses_bf16(settings, session.loop.device):
        note("this processor has no arithmetic in bf16: training in fp32, which is faster here")
    if data.train.folder is not None:
        session.progress.detail(f"encoded data in {data.train.folder}")
    session.progress.detail(f"config, vocabularies, best model and metrics in {session.folder}")


def size_note(session: Session) -> str:
    """The number of parameters, the device and the batches of an epoch, in a sentence."""
    count = sum(p.numel() for p in session.model.parameters())
    where = f"{session.loop.device}" if not session.ranks.distributed else f"{session.ranks.world} processes"
    return f"{count:,} parameters on {where}; {counted(len(session.loop.plan), 'batches')} an epoch"
