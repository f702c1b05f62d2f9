"""`--from RUN`: a new run starts with the settings, vocabularies and weights of another, of its task or another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.data.files.columns import ReadOptions
from seqloom.errors import SeqloomError
from seqloom.options import hints_of, without_none
from seqloom.runs import config as configs
from seqloom.runs.load import MODEL, read_vocabularies, stored_config
from seqloom.runs.train.job import Job
from seqloom.runs.train.session import Session
from seqloom.tasks.presets import SIZES, about
from seqloom.tasks.registry import task as get_task
from seqloom.tasks.shared.transfer import copy_shared_weights, transfer_settings
from seqloom.training import checkpoint

# Data settings that the vocabularies depend on.
VOCABULARY_SETTINGS = (
    *("source_tokens", "target_tokens", "tokens", "lowercase", "half_width", "max_vocab", "min_count"),
    *("shorten_repeats", "repair_tags", "stop_words", "separator", "target"),
)


class WarmStart(NamedTuple):
    """A job with what it takes over from another run before its data are read."""

    job: Job  # its model, data and settings completed by those of the other run
    config: dict[str, Any] | None  # of the other run if it is of the same task: the new config is based on it
    parts: list[str] | None  # names of the vocabularies that are taken over; None: all
    split_version: int  # of the other run: another split would validate on its training data


def warm_start(job: Job, data: Mapping[str, Any]) -> WarmStart:
    """The job with what it takes over from the run `job.start`. `data`: its data settings and those of its datasets."""
    assert job.start is not None
    folder = Path(job.start)
    config = stored_config(folder)
    split_version = config["data"].get("split_version", 1)
    if config["task"] == job.task:  # its model and encoding; not its training settings, nor how its files were read
        if job.model is not None or job.size is not None:
            raise SeqloomError(f"--from {job.start} brings its model: leave --model and --size out")
        encoding = {name: value for name, value in config["data"].items() if name not in hints_of(ReadOptions)}
        return WarmStart(job, config | {"data": encoding, "training": {}}, None, split_version)
    preset = config["preset"]
    if job.model is None and preset["model"] in about(job.task):  # the preset of that name, if this task has it too
        size = job.size or (preset["size"] if preset["size"] in SIZES else None)
        job = replace(job, model=preset["model"], size=size)
    kind = configs.compose(job.task, job.model, job.size, {}, {}, {})["model"]["kind"]
    transfer = transfer_settings(folder, config, read_vocabularies(folder, config), get_task(job.task), kind)
    data = {**data, **transfer.data, **without_none(job.data)}
    check_same_vocabularies(job, transfer.data, data)
    job = replace(job, data=data, settings={**transfer.model, **job.settings})
    return WarmStart(job, None, list(transfer.vocabularies), split_version)


def check_same_vocabularies(job: Job, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Refuse settings that split or normalize texts in another way than the vocabularies were made with."""
    for name in VOCABULARY_SETTINGS:
        if name in before and before[name] != after.get(name, before[name]):
            raise SeqloomError(f"--from {job.start} brings its vocabularies: {name} stays {before[name]}")


def load_start_weights(session: Session, run: Path, same_task: bool) -> None:
    """Load the weights of another run, read by the first process; of another task's run, embedding and encoder."""
    ranks, weights = session.ranks, {}
    with ranks.fail_together():
        if ranks.first:
            weights = checkpoint.read_tensors(run / MODEL)
    shared = ranks.broadcast_tensors(weights)
    if same_task:
        checkpoint.load_weights(session.model, shared, run / MODEL)
        session.progress.note(f"starts from the weights and vocabularies of {run}")
        return
    copied, new = copy_shared_weights(session.model, shared, run)
    copied_parts = " and ".join(sorted({name.split(".")[0] for name in copied}, reverse=True))
    new_parts = ", ".join(sorted({name.split(".")[0] for name in new}))
    session.progress.note(f"takes {copied_parts} from {run}; new: {new_parts}")
