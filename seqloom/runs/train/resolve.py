"""Resolves a job into the complete config of its run.

`resolve` needs only the job; `complete` adds the few values that depend on the data.
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
from seqloom.options import without_none
from seqloom.runs import config as configs
from seqloom.runs.evaluate import test_scores
from seqloom.runs.load import stored_vocabularies
from seqloom.runs.train.batch_size import batch_rows
from seqloom.runs.train.job import Files, Job, file_names
from seqloom.runs.train.run_folder import run_to_resume
from seqloom.runs.train.session import CHECKPOINTS
from seqloom.runs.train.warm_start import WarmStart, check_same_vocabularies, warm_start
from seqloom.tasks.registry import TASKS
from seqloom.tasks.registry import task as get_task
from seqloom.training.distributed.processes import Ranks


@dataclass(frozen=True)
class ResolvedJob:
    """A job with a value for every setting. All are JSON values, which the first of several processes broadcasts."""

    config: dict[str, Any]
    valid: Any  # files, a share or a fold, as the user gave them
    saved: dict[str, Any] | None = None  # the config of the run that is resumed
    start: str | None = None  # the run whose weights are loaded first
    vocabularies: dict[str, Any] | None = None  # those of that run
    dataset_valid: bool = False  # the dataset brings its validation data
    select_by_data: bool = False  # the score that selects the best model depends on the data
    batch_by_data: bool = False  # so does the batch size
    notes: list[str] = field(default_factory=list)  # settings that were chosen by looking at the data


def resolve(job: Job, ranks: Ranks) -> ResolvedJob:
    """The config of the run in the job's folder if that is resumed, else a new one; the same in all processes."""
    if not ranks.distributed:
        return _resolve(job, ranks)
    return ResolvedJob(**ranks.run_on_first(lambda: asdict(_resolve(job, ranks))))


def complete(resolved: ResolvedJob, data: PreparedData) -> tuple[dict[str, Any], list[str]]:
    """The config with the values that depend on the data, and a note if the batch is smaller than the default."""
    config, notes = resolved.config, []
    task, training = get_task(config["task"]), dict(config["training"])
    decoding = task.decoding(data, config["decoding"])
    if resolved.select_by_data and (select := task.select(data)):
        training["select"] = select
    if resolved.batch_by_data and config["task"] != "vectors":  # whose number of pairs is a setting
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
    """The saved config with the settings of the job, which may not change what was trained so far."""
    config = configs.compose(job.task, job.model, job.size, job.data, job.training, job.settings, saved)
    if changed := configs.differences(saved, config):
        raise SeqloomError(f"{job.folder}: cannot resume with other settings: {'; '.join(changed)}")
    config["decoding"] = saved.get("decoding", {})
    inputs = {"train": job.names, "valid": saved["inputs"]["valid"] if job.valid is None else _as_given(job.valid)}
    config["inputs"] = inputs | {name: saved["inputs"][name] for name in ("from", "taken") if name in saved["inputs"]}
    return _with_vocabularies(ResolvedJob(config, inputs["valid"], saved), job.folder, job.folder)


def _new(job: Job) -> ResolvedJob:
    data, dataset_valid = catalog.with_suited_options(job.names, job.data, job.task)
    if job.start is None:  # split by the newest rules; a recipe that names none was recorded with the first
        start = WarmStart(replace(job, data=data), None, None, 1 if job.recorded else SPLIT_VERSIONS[-1])
    else:
        start = warm_start(job, data)
    job, before = start.job, start.config
    data = {"split_version": start.split_version, **without_none(job.data)}
    notes = _choose_tokens(job, data) if job.start is None and not job.recorded else []
    config, batch_chosen = configs.compose_with_batch_choice(
        job.task, job.model, job.size, data, job.training, job.settings, before
    )
    if before is not None:
        check_same_vocabularies(job, before["data"], config["data"])
    valid = dataset_valid or "5%" if job.valid is None else _as_given(job.valid)
    config["decoding"] = (before or {}).get("decoding", {})
    config["inputs"] = {"train": job.names, "valid": valid}
    config["inputs"] |= without_none({"from": job.start and str(job.start), "taken": start.parts})
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
    """A job that starts from another run, with the vocabularies stored in `home`. Until there is a checkpoint, `start`
    names that run, whose weights are loaded."""
    start, parts = (resolved.config["inputs"].get(name) for name in ("from", "taken"))
    if start is None:
        return resolved
    if resolved.config["training"]["vectors"]:
        raise SeqloomError(f"--from {start} brings the source's embedding: leave --vectors out")
    stored = stored_vocabularies(home)
    has_checkpoint = any((folder / CHECKPOINTS).glob("step-*"))
    vocabularies = {name: value for name, value in stored.items() if parts is None or name in parts}
    return replace(resolved, start=None if has_checkpoint else start, vocabularies=vocabularies)


def _choose_tokens(job: Job, data: dict[str, Any]) -> list[str]:
    """Unless the user chose the tokens, set them in `data` where targets look like phonemes or texts have no spaces;
    returns notes about it."""
    name = {"translate": "target_tokens", "classify": "tokens"}.get(job.task, "")
    if not name or data.get(name) or f"data.{name}" in job.settings:
        return []
    values = data | {key.removeprefix("data."): v for key, v in job.settings.items() if key.startswith("data.")}
    with suppress(SeqloomError):  # wrong settings: reported when the config is composed
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


def _as_given(valid: Files | float) -> Any:
    return valid if isinstance(valid, str | int | float) else file_names(valid)
