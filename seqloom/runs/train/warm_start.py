"""`--from RUN`: a new run begins with the settings, vocabularies and weights of another, of its own task or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.data.files.columns import ReadOptions
from seqloom.errors import SeqloomError
from seqloom.options import hints_of, set_values
from seqloom.runs import config as configs
from seqloom.runs.load import MODEL, stored_config, vocabularies
from seqloom.runs.train.job import Job
from seqloom.runs.train.session import Session
from seqloom.tasks.presets import SIZES, about
from seqloom.tasks.registry import task as find
from seqloom.tasks.shared.transfer import handed, take_over
from seqloom.training import checkpoint

# Settings of the data that its vocabularies depend on.
VOCABULARY_SETTINGS = (
    *("source_tokens", "target_tokens", "tokens", "lowercase", "half_width", "max_vocab", "min_count"),
    *("shorten_repeats", "repair_tags", "stop_words", "separator", "target"),
)


class WarmStart(NamedTuple):
    """A job together with what it takes over from another run before its data is read."""

    job: Job  # its model, data and settings completed by those of the other run
    config: dict[str, Any] | None  # of the other run, if it is of the same task: the new config is made from it
    parts: list[str] | None  # names of the vocabularies that are taken over; None: all there are
    split_version: int  # of the rule by which the other run held out examples: never validate on what it was trained on


def warm_start(job: Job, data: Mapping[str, Any]) -> WarmStart:
    """What the job takes over from the run `job.start`. `data`: the job's data settings with those of its datasets."""
    assert job.start is not None
    folder = Path(job.start)
    config = stored_config(folder)
    split_version = config["data"].get("split_version", 1)
    if config["task"] == job.task:
        return WarmStart(job, _same_task(job, config), None, split_version)
    named = config["preset"]
    if job.model is None and named["model"] in about(job.task):  # the model of that name, if this task has it too
        size = job.size or (named["size"] if named["size"] in SIZES else None)
        job = replace(job, model=named["model"], size=size)
    kind = configs.compose(job.task, job.model, job.size, {}, {}, {})["model"]["kind"]
    given = handed(folder, config, vocabularies(folder, config), find(job.task), kind)
    data = {**data, **given.data, **set_values(job.data)}
    check_same_vocabularies(job, given.data, data)
    job = replace(job, data=data, settings={**given.model, **job.settings})
    return WarmStart(job, None, list(given.vocabularies), split_version)


def _same_task(job: Job, config: dict[str, Any]) -> dict[str, Any]:
    """All that belongs to the weights, which cannot be chosen again. How that run was trained, and which lines and
    columns of its files it read, is not taken over."""
    if job.model is not None or job.size is not None:
        raise SeqloomError(f"--from {job.start} brings its model: leave --model and --size out")
    data = {name: value for name, value in config["data"].items() if name not in hints_of(ReadOptions)}
    return config | {"data": data, "training": {}}


def check_same_vocabularies(job: Job, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Refuse settings by which texts would be split or normalized in another way than for the vocabularies."""
    for name in VOCABULARY_SETTINGS:
        if name in before and before[name] != after.get(name, before[name]):
            raise SeqloomError(f"--from {job.start} brings its vocabularies: {name} stays {before[name]}")


def load_start_weights(session: Session, run: Path, same_task: bool) -> None:
    """The weights of another run, read by the first process; from another task's run, those that read text."""
    ranks, weights = session.ranks, {}
    with ranks.fail_together():
        if ranks.first:
            weights = checkpoint.read_tensors(run / MODEL)
    shared = ranks.broadcast_tensors(weights)
    if same_task:
        checkpoint.load_weights(session.model, shared, run / MODEL)
        session.progress.note(f"starts from the weights and vocabularies of {run}")
        return
    taken, new = take_over(session.model, shared, run)
    parts = " and ".join(sorted({name.split(".")[0] for name in taken}, reverse=True))
    fresh = ", ".join(sorted({name.split(".")[0] for name in new}))
    session.progress.note(f"takes {parts} from {run}; new: {fresh}")
