"""`seqloom.train`: from files of examples to a run folder with a trained model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import torch

from seqloom.data.batches.batch_source import Ready
from seqloom.data.encoding.cache_check import explained
from seqloom.errors import SeqloomError, setting
from seqloom.files import locked, tidy, write_json
from seqloom.plural import counted
from seqloom.reporting.task_words import wording
from seqloom.runs import config as configs
from seqloom.runs.evaluate import test_scores
from seqloom.runs.evaluate.report_files import finish, write
from seqloom.runs.folder.environment import choose_device, environment
from seqloom.runs.folder.folder_checks import allowed
from seqloom.runs.folder.metrics_log import Journal
from seqloom.runs.load import MODEL, load
from seqloom.runs.progress import Progress, Silent
from seqloom.runs.progress import progress as make_progress
from seqloom.runs.settings.train_keywords import Examples, Keywords, checked_model, read_in, sorted_out
from seqloom.runs.train.batch_size import few, suit
from seqloom.runs.train.dry_run import Trial, trial
from seqloom.runs.train.job import Job, Settled, check_free, file_names, prepared, settle
from seqloom.runs.train.session import CHECKPOINTS, JOURNAL, Session
from seqloom.safety import named
from seqloom.tasks.registry import task as find
from seqloom.tasks.shared import pretrained_vectors
from seqloom.tasks.shared.predict import described, stored_parameters
from seqloom.tasks.shared.task import Model
from seqloom.tasks.shared.transfer import take_over
from seqloom.training import checkpoint
from seqloom.training.distributed.processes import Launch, Ranks, connected
from seqloom.training.distributed.sharding import wrapped
from seqloom.training.forward_backward import in_halves
from seqloom.training.freeze import freeze
from seqloom.training.loop import Loop
from seqloom.training.objectives.r_drop import agreeable
from seqloom.training.settings import Training


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
        told = described(self.folder, self.config, parameters, self.best or {})
        return f"Run({told}, {counted(self.step, 'steps')}{stopped})"

    def load(self, device: str = "auto") -> Model:
        """The best model, as its task's runner: a Translator, …"""
        return load(self.folder, device=device)

    def history(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return Journal(self.folder / JOURNAL).lines()


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
    written to the cache as they come; an iterable that does not say how many it has may give a million, or `limit`.
    `valid`: the same, or a share of the training data such as "5%" (the default). `test`: the same, that the best model
    is scored on at the end. `model`: a preset, a YAML file or what one would hold; `size`: tiny, small or base. `data`
    and `training`: keywords of DataOptions and Training, which can be given by themselves as well: max_steps=200,
    sample=1000, source_tokens="words". `settings`: anything by its dotted name, as `--set` takes it:
    {"decoder.score": "additive"}. `start`: a run whose weights and vocabularies this one begins with. `progress` shows
    what happens (see `runs/progress.py`): by default a bar in a terminal, lines elsewhere, nothing if `quiet`.
    """
    chosen = sorted_out(task, options, data, training, settings)
    model = checked_model(model)
    names, held, tested = read_in(task, files, valid, test, chosen, cache)
    job = Job(
        task=task,
        files=names,
        output=output,
        valid=held,
        test=tested,
        model=model,
        size=size,
        data=chosen.data,
        training=chosen.training,
        settings=chosen.settings,
        start=start,
        device=device,
        resume=resume,
        cache=cache,
    )
    return carry_out(job, progress or make_progress("quiet" if quiet else "usual"))


def carry_out(job: Job, progress: Progress) -> Run:
    """Train as the job says. Under torchrun every process does this; the first one speaks and writes."""
    with named(job.folder), explained(), _joined(job) as ranks:
        settled = Settled(**ranks.lead(lambda: asdict(settle(job, ranks))))
        progress = progress if ranks.first else Silent()
        if job.resume and settled.saved is None:
            progress.note(f"{job.folder}: holds no run to resume; a new one begins")
        try:
            session = _session(job, settled, ranks, progress)
            progress.note(_size(session))
            with _ready(session, settled.config, settled.saved):
                session.run()
        finally:
            progress.close()
        if session.signal is None and ranks.first:
            finish(job.folder, session.data.held, ranks.device, progress)
        run = Run(job.folder, settled.config, session.loop.step, session.best, session.signal)
        return _tested(job, run, progress) if ranks.first else run


def _tested(job: Job, run: Run, progress: Progress) -> Run:
    """The run with its scores on the job's test data, which its report then tells too."""
    if job.test is None or run.signal is not None:
        return run
    scores = test_scores.score(job.folder, file_names(job.test), job.device, progress.note)
    write(job.folder)
    return replace(run, scores=scores)


def rehearse(job: Job, progress: Progress) -> Trial:
    """What the job would cost, from two steps; nothing is written but the cache of the data."""
    with named(job.folder), explained(), _joined(job) as ranks:
        settled = Settled(**ranks.lead(lambda: asdict(settle(job, ranks))))
        progress = progress if ranks.first else Silent()
        session = _session(job, settled, ranks, progress)
        if hasattr(session.model, "fit"):
            raise SeqloomError(
                f"{settled.config['preset']['model']} is counted, not trained step by step: just train it"
            )
        return trial(session.loop, wording(settled.config))


def _joined(job: Job) -> AbstractContextManager[Ranks]:
    launch = Launch.of()
    return connected(launch, choose_device(job.device, launch.local if launch.world > 1 else None))


def _session(job: Job, settled: Settled, ranks: Ranks, progress: Progress) -> Session:
    """Data and model, ready to train; what is about to happen is said."""
    data = prepared(job, settled, ranks)
    task = find(job.task)
    settled.config["decoding"] = task.decoding(data, settled.config["decoding"])
    asked = job.training.get("select") or job.settings.get("training.select")
    if hasattr(task, "select") and settled.saved is None and not asked:
        settled.config["training"]["select"] = task.select(data)  # pyright: ignore[reportAttributeAccessIssue]
    told = suit(settled, data) if settled.free else []
    with ranks.together():
        session = make_session(job.folder, settled.config, data, ranks, progress)
        if settled.brought:
            progress.note(f"validates on {settled.valid}")
        _greet(session, data, progress)
        for note in (*settled.told, *(() if hasattr(session.model, "fit") else (*told, *few(session)))):
            progress.note(note)
    if settled.start is not None:
        _take_over(session, Path(settled.start), "taken" not in settled.config["inputs"])
    return session


def _take_over(session: Session, run: Path, alike: bool) -> None:
    """The weights of another run, read by the first of us; of another task's, those that read text."""
    ranks, weights = session.ranks, {}
    with ranks.together():
        if ranks.first:
            weights = checkpoint.read_tensors(run / MODEL)
    shared = ranks.share(weights)
    if alike:
        checkpoint.load_weights(session.model, shared, run / MODEL)
        session.progress.note(f"starts from the weights and vocabularies of {run}")
        return
    taken, new = take_over(session.model, shared, run)
    parts = " and ".join(sorted({name.split(".")[0] for name in taken}, reverse=True))
    fresh = ", ".join(sorted({name.split(".")[0] for name in new}))
    session.progress.note(f"takes {parts} from {run}; new: {fresh}")


@contextmanager
def _ready(session: Session, config: Mapping[str, Any], saved: Mapping[str, Any] | None) -> Iterator[None]:
    """The folder for us alone, and the session where the newest whole checkpoint left it.

    Nothing is written before the model stands and the checkpoint fits the data: what is refused changes nothing.
    """
    folder, ranks = session.folder, session.ranks
    found: list[checkpoint.Checkpoint] = []

    def begin() -> tuple[str, dict[str, Any]] | None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SeqloomError(f"{folder}: cannot be made: {error.strerror or error}") from error
        configs.check_folder(folder)
        stack.enter_context(locked(folder))
        if saved is None:
            check_free(folder)  # another may have trained here while we read the data
        if saved is not None and (newest := _newest(session)):
            found.append(newest)
        if saved is None:
            _start_folder(folder, config, session.data, ranks)
        else:
            configs.save(folder, config)
        return (str(found[0].folder), found[0].values) if found else None

    with ExitStack() as stack:
        told = ranks.lead(begin)
        if told is None:
            session.journal.cut_back(0)
        else:
            weights, tensors = (found[0].weights, found[0].tensors) if found else ({}, {})
            session.restore(checkpoint.Checkpoint(Path(told[0]), ranks.share(weights), ranks.share(tensors), told[1]))
            session.progress.note(f"resumed at step {session.loop.step:,}")
        yield


def _newest(session: Session) -> checkpoint.Checkpoint | None:
    parent = session.folder / CHECKPOINTS
    tidy(session.folder)
    tidy(parent)
    found, problems = checkpoint.newest(parent)
    for problem in problems:
        session.progress.note(problem)
    if found is not None and found.values.get("fingerprint") != session.data.train.fingerprint:
        raise SeqloomError(f"{session.folder}: cannot resume: the training data or its options have changed")
    return found


def make_session(folder: Path, config: Mapping[str, Any], prepared: Ready, ranks: Ranks, progress: Progress) -> Session:
    settings, task = Training.of(config["training"]), find(config["task"])
    torch.manual_seed(settings.seed)
    stored = prepared.vocabularies()
    with allowed(folder, config, MODEL):
        model = configs.built(config, task.sizes(stored))
    if settings.vectors and not any((folder / CHECKPOINTS).glob("step-*")):
        told = pretrained_vectors.given(model, stored, settings.vectors)
        progress.note(f"{settings.vectors}: {told}")
    if settings.freeze:
        with setting():
            frozen = freeze(model, settings.freeze)
        progress.detail(f"frozen: {', '.join(frozen)}")
    with setting():
        objective = agreeable(task.objective(model, settings, config), settings, task.name)
    objective = wrapped(objective, ranks, settings.shard)
    loop = Loop(objective, prepared.train, settings, ranks.device, ranks)
    judge = task.judge(model, prepared, config, ranks.device)
    if hasattr(progress, "unit"):
        progress.unit = f"{wording(config).label.split()[-1]}s"  # pyright: ignore[reportAttributeAccessIssue]
    session = Session(folder, loop, model, prepared, judge, progress)
    if glimpse := getattr(task, "glimpse", None):
        runner = task.runner(folder, dict(config), model, stored, ranks.device)
        session.glimpse = lambda: glimpse(runner)
    return session


def _greet(session: Session, prepared: Ready, progress: Progress) -> None:
    """Say what is about to happen."""
    if session.settings.patience is not None and prepared.valid is None:
        raise SeqloomError("patience counts validations, and there is no validation data; set --valid or --epochs")
    if session.settings.optimiser == "asgd" and prepared.valid is None:
        raise SeqloomError("asgd averages once validations get worse, and there is no validation data; set --valid")
    for note in prepared.notes:
        progress.note(note)
    if session.settings.precision == "bf16" and not in_halves(session.settings, session.loop.device):
        progress.note("this processor has no arithmetic in bf16: training in fp32, which is quicker here")
    if prepared.train.folder is not None:
        progress.detail(f"numbered data in {prepared.train.folder}")
    progress.detail(f"config, vocabularies, best model and metrics in {session.folder}")


def _size(session: Session) -> str:
    """How much there is to train, where, and in how many steps; a dry run tells it with its costs."""
    count = sum(p.numel() for p in session.model.parameters())
    where = f"{session.loop.device}" if not session.ranks.several else f"{session.ranks.world} processes"
    return f"{count:,} parameters on {where}; {counted(len(session.loop.plan), 'batches')} an epoch"


def _start_folder(folder: Path, config: Mapping[str, Any], prepared: Ready, ranks: Ranks) -> None:
    for name, value in prepared.vocabularies().items():
        write_json(folder / f"{name}.json", value)
    write_json(folder / "data.json", prepared.facts)
    begun = {"processes": ranks.world, "launches": sorted({launch.name for launch in ranks.launches if launch.name})}
    write_json(folder / "env.json", environment() | begun)
    configs.save(folder, config)  # last: a folder with a config is a run
