"""A job resolved into the complete config of its run: here every setting gets its value, and none changes later.

`resolve` needs nothing but the job; `complete` adds the few values that only the data decide.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from seqloom.data.batches.batch_source import PreparedData
from seqloom.data.datasets import catalog
from seqloom.data.files.columns import SPLIT_VERSIONS
from seqloom.data.prepare.suggest_tokens import symbol_example, unspaced_example
from seqloom.errors import SeqloomError, known
from seqloom.options import set_values
from seqloom.runs import config as configs
from seqloom.runs.evaluate import test_scores
from seqloom.runs.load import stored_vocabularies
from seqloom.runs.train.batch_size import batch_rows
from seqloom.runs.train.job import Files, Job, file_names
from seqloom.runs.train.run_folder import run_to_resume
from seqloom.runs.train.session import CHECKPOINTS
from seqloom.runs.train.warm_start import WarmStart, check_same_vocabularies, warm_start
from seqloom.tasks.registry import TASKS
from seqloom.tasks.registry import task as find
from seqloom.training.distributed.processes import Ranks


@dataclass(frozen=True)
class ResolvedJob:
    """A job whose every setting has a value. All are JSON values: the first of several processes sends them."""

    config: dict[str, Any]
    valid: Any  # files, a share or a fold, as the user writes them
    saved: dict[str, Any] | None = None  # the config of the run that is resumed
    start: str | None = None  # the run whose weights are still to be loaded
    vocabularies: dict[str, Any] | None = None  # those taken over from it
    dataset_valid: bool = False  # the validation data come with the dataset: the user named none
    select_by_data: bool = False  # the data decide by which score the best model is selected
    batch_by_data: bool = False  # and how large a batch is
    notes: list[str] = field(default_factory=list)  # what was chosen by a look at the data


def resolve(job: Job, ranks: Ranks) -> ResolvedJob:
    """The config of the run in the job's folder if that is resumed, else a new one; the same in all processes."""
    if not ranks.distributed:
        return _resolve(job, ranks)
    return ResolvedJob(**ranks.run_on_first(lambda: asdict(_resolve(job, ranks))))


def complete(resolved: ResolvedJob, data: PreparedData) -> tuple[dict[str, Any], list[str]]:
    """The config with the values that only the data decide, and a note if a batch is smaller than usual."""
    config, notes = resolved.config, []
    task, training = find(config["task"]), dict(config["training"])
    decoding = task.decoding(data, config["decoding"])
    if resolved.select_by_data and hasattr(task, "select"):
        training["select"] = task.select(data)  # pyright: ignore[reportAttributeAccessIssue]
    if resolved.batch_by_data and config["task"] != "vectors":  # whose pairs of words are as many as one likes
        own_files = isinstance(resolved.valid, list) or resolved.dataset_valid
        training["batch_rows"], notes = batch_rows(training, data, own_files)
    return {**config, "training": training, "decoding": decoding}, notes


def _resolve(job: Job, ranks: Ranks) -> ResolvedJob:
    known(job.task, TASKS, "task")
    if job.test is not None:
        test_scores.check(file_names(job.test), job.task)
    saved = run_to_resume(job.folder, job.resume, ranks)
    if saved is None:
        return _new(job)
    if saved["task"] != job.task:
        raise SeqloomError(f"{job.folder}: holds a run of the task {saved['task']}, not of {job.task}")
    return _resumed(job, saved)


def _resumed(job: Job, saved: dict[str, Any]) -> ResolvedJob:
    """What is not given stays as it was; what is given may not change what was trained so far."""
    config, _ = configs.composed(job.task, job.model, job.size, job.data, job.training, job.settings, saved)
    if changed := configs.differences(saved, config):
        raise SeqloomError(f"{job.folder}: cannot resume with other settings: {'; '.join(changed)}")
    config["decoding"] = saved.get("decoding", {})
    inputs = {"train": job.names, "valid": saved["inputs"]["valid"] if job.valid is None else _as_written(job.valid)}
    config["inputs"] = inputs | {name: saved["inputs"][name] for name in ("from", "taken") if name in saved["inputs"]}
    return _with_vocabularies(ResolvedJob(config, inputs["valid"], saved), job.folder, job.folder)


def _new(job: Job) -> ResolvedJob:
    data, dataset_valid = catalog.with_suited_options(job.names, job.data, job.task)
    if job.start is None:  # split by the newest rules, but for a recipe that does not name any: by the first
        start = WarmStart(replace(job, data=data), None, None, 1 if job.recorded else SPLIT_VERSIONS[-1])
    else:
        start = warm_start(job, data)
    job, before = start.job, start.config
    data = {"split_version": start.split_version, **set_values(job.data)}
    notes = _choose_tokens(job, data) if job.start is None and not job.recorded else []
    config, batch_chosen = configs.composed(job.task, job.model, job.size, data, job.training, job.settings, before)
    if before is not None:
        check_same_vocabularies(job, before["data"], config["data"])
    valid = dataset_valid or "5%" if job.valid is None else _as_written(job.valid)
    config["decoding"] = (before or {}).get("decoding", {})
    config["inputs"] = {"train": job.names, "valid": valid}
    config["inputs"] |= set_values({"from": job.start and str(job.start), "taken": start.parts})
    resolved = ResolvedJob(
        config,
        valid,
        dataset_valid=job.valid is None and dataset_valid is not None,
        select_by_data=not (job.training.get("select") or job.settings.get("training.select")),
        batch_by_data=not batch_chosen and not job.recorded,
        notes=notes,
    )
    return resolved if job.start is None else _with_vocabularies(resolved, job.folder, Path(job.start))


def _with_vocabularies(resolved: ResolvedJob, folder: Path, home: Path) -> ResolvedJob:
    """A job that started from another run, with the vocabularies stored in `home`, and the name of that run while its
    weights are still to be loaded: until there is a checkpoint."""
    start, parts = (resolved.config["inputs"].get(name) for name in ("from", "taken"))
    if start is None:
        return resolved
    if resolved.config["training"]["vectors"]:
        raise SeqloomError(f"--from {start} brings the source's embedding: leave --vectors out")
    stored = stored_vocabularies(home)
    begun = any((folder / CHECKPOINTS).glob("step-*"))
    vocabularies = {name: value for name, value in stored.items() if parts is None or name in parts}
    return replace(resolved, start=None if begun else start, vocabularies=vocabularies)


def _choose_tokens(job: Job, data: dict[str, Any]) -> list[str]:
    """Where the user does not say how texts are split into tokens, and targets look like phonemes or texts have no
    spaces, sets it in `data`; a note says so."""
    name = {"translate": "target_tokens", "classify": "tokens"}.get(job.task, "")
    if not name or data.get(name) or f"data.{name}" in job.settings:
        return []
    values = data | {key.removeprefix("data."): one for key, one in job.settings.items() if key.startswith("data.")}
    with suppress(SeqloomError):  # of the settings, which are checked when the config is composed
        options = configs.data_options(job.task, values)
        if job.task == "translate" and (example := symbol_example(job.names, options)):
            data[name] = "words"
            note = f"targets look like space-separated symbols ({example}), so they are split at spaces"
            return [f"{note}; --target-tokens chars splits them into characters"]
        if job.task == "classify" and (example := unspaced_example(job.names, options)):
            data[name] = "chars"
            note = f"texts have no spaces between words ({example}), so they are split into characters"
            return [f"{note}; --tokens chooses"]
    return []


def _as_written(valid: Files | float) -> Any:
    return valid if isinstance(valid, str | int | float) else file_names(valid)
