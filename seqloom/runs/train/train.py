"""`seqloom.train`: from files of examples to a run folder with a trained model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from seqloom.data.encoding.cache_check import explain_damage
from seqloom.errors import SeqloomError
from seqloom.plural import counted
from seqloom.reporting.task_words import wording
from seqloom.runs.evaluate import test_scores
from seqloom.runs.evaluate.report_files import finish_run, write_run_report
from seqloom.runs.folder.environment import choose_device
from seqloom.runs.folder.metrics_log import MetricsLog
from seqloom.runs.load import MODEL, load
from seqloom.runs.progress import Progress, Silent
from seqloom.runs.progress import progress as make_progress
from seqloom.runs.settings.train_keywords import Examples, Keywords, checked_model, into_sections, store_examples
from seqloom.runs.train.build_session import build_session, size_note
from seqloom.runs.train.dry_run import DryRun, two_steps
from seqloom.runs.train.job import Job, file_names
from seqloom.runs.train.resolve import resolve
from seqloom.runs.train.run_folder import locked_folder
from seqloom.runs.train.session import METRICS_FILE
from seqloom.safety import system_errors
from seqloom.tasks.shared.predictor import describe_run, stored_parameters
from seqloom.tasks.shared.task import Model
from seqloom.training.distributed.processes import Launch, Ranks, connected


@dataclass(frozen=True, repr=False)
class Run:
    """A finished (or interrupted) training run."""

    folder: Path
    config: dict[str, Any]
    step: int
    best: dict[str, Any] | None  # step and scores of the best validation
    signal: int | None = None  # what interrupted it
    scores: dict[str, Any] | None = None  # on the test data, if there was any: evaluation-test.json

    def __repr__(self) -> str:
        stopped = "" if self.signal is None else f", stopped by signal {self.signal}"
        parameters = stored_parameters(self.folder / MODEL)
        facts = describe_run(self.folder, self.config, parameters, self.best or {})
        return f"Run({facts}, {counted(self.step, 'steps')}{stopped})"

    def load(self, device: str = "auto") -> Model:
        """The best model, as its task's runner: a Translator, …"""
        return load(self.folder, device=device)

    def history(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return MetricsLog(self.folder / METRICS_FILE).lines()


def train(
    task: str,
    files: Examples,
    *,
    output: str | Path,
    valid: Examples | float | None = None,
    test: Examples | None = None,
    model: str | Path | Mapping[str, Any] | None = None,
    size: str | None = None,
    data: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    start: str | Path | None = None,
    device: str = "auto",
    resume: bool = False,
    cache: Path | None = None,
    quiet: bool = False,
    progress: Progress | None = None,
    **options: Unpack[Keywords],
) -> Run:
    """Train a model on examples and leave everything needed to use, repeat or resume it in `output`.

    `files`: files, or a dataset by name, which brings its own validation split and tokens unless others are given; or
    the examples themselves: a list or an iterable of pairs or dicts, a DataFrame, a Hugging Face dataset. They are
    written to the cache as they come; an iterable without a length may give a million, or `limit`.
    `valid`: the same, or a share of the training data such as "5%" (the default). `test`: the same, that the best model
    is scored on at the end. `model`: a preset, a YAML file or what one would hold; `size`: tiny, small or base. `data`
    and `training`: keywords of DataOptions and Training, which can be given by themselves as well: max_steps=200,
    sample=1000, source_tokens="words". `settings`: anything by its dotted name, as `--set` takes it:
    {"decoder.score": "additive"}. `start`: a run whose weights and vocabularies this one begins with. `progress` shows
    what happens (see `runs/progress.py`): by default a bar in a terminal, lines elsewhere, nothing if `quiet`.
    """
    sections = into_sections(task, options, data, training, settings)
    model = checked_model(model)
    train_files, valid_files, test_files = store_examples(task, files, valid, test, sections, cache)
    job = Job(
        task=task,
        files=train_files,
        output=output,
        valid=valid_files,
        test=test_files,
        model=model,
        size=size,
        data=sections.data,
        training=sections.training,
        settings=sections.settings,
        start=start,
        device=device,
        resume=resume,
        cache=cache,
    )
    return run_job(job, progress or make_progress("quiet" if quiet else "default"))


def run_job(job: Job, progress: Progress) -> Run:
    """Train, evaluate and report. Under torchrun every process calls this; the first one reports and writes."""
    with _processes(job) as ranks:
        resolved = resolve(job, ranks)
        progress = progress if ranks.first else Silent()
        if job.resume and resolved.saved is None:
            progress.note(f"{job.folder}: holds no run to resume; a new one begins")
        try:
            session = build_session(job, resolved, ranks, progress)
            progress.note(size_note(session))
            with locked_folder(session, session.config, resolved.saved):
                session.run()
        finally:
            progress.close()
        run = Run(job.folder, session.config, session.loop.step, session.best, session.signal)
        if session.signal is not None or not ranks.first:
            return run
        finish_run(job.folder, session.evaluate_best, progress)
        if job.test is None:
            return run
        scores = test_scores.score(job.folder, session.best_model, file_names(job.test), progress.note)
        write_run_report(job.folder)  # with these scores
        return replace(run, scores=scores)


def dry_run(job: Job, progress: Progress) -> DryRun:
    """What the job would cost, estimated from two steps; only the cache of the data is written."""
    with _processes(job) as ranks:
        resolved = resolve(job, ranks)
        session = build_session(job, resolved, ranks, progress if ranks.first else Silent())
        if hasattr(session.model, "fit"):
            preset = session.config["preset"]["model"]
            raise SeqloomError(f"{preset} is counted, not trained step by step: just train it")
        return two_steps(session.loop, wording(session.config))


@contextmanager
def _processes(job: Job) -> Iterator[Ranks]:
    """The connected processes of the training; system errors in the block become one line."""
    launch = Launch.of()
    with system_errors(job.folder), explain_damage():
        device = choose_device(job.device, launch.local if launch.world > 1 else None)
        with connected(launch, device) as ranks:
            yield ranks
