"""`seqloom.train`: from files of examples to a run folder with a trained model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqloom.data import registry
from seqloom.data.corpus import Prepared, prepare
from seqloom.data.lines import STDIN
from seqloom.decoding.texts import Bound, Texts
from seqloom.errors import SeqloomError, known
from seqloom.files import locked, tidy, write_json
from seqloom.models.seq2seq import MODELS
from seqloom.parts.choose import build
from seqloom.runs import config as configs
from seqloom.runs.environment import choose_device, environment
from seqloom.runs.journal import Journal
from seqloom.runs.progress import Progress, Silent
from seqloom.runs.progress import progress as make_progress
from seqloom.runs.report import finish
from seqloom.runs.session import CHECKPOINTS, JOURNAL, Session
from seqloom.runs.translator import Translator, load
from seqloom.training import checkpoint
from seqloom.training.distributed import Launch, Ranks, connected
from seqloom.training.loop import Loop
from seqloom.training.objective import TeacherForcing
from seqloom.training.parallel import wrapped
from seqloom.training.settings import Training

TASKS = ("translate",)
Files = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class Run:
    """A finished (or interrupted) training run."""

    folder: Path
    config: dict[str, Any]
    step: int
    best: dict[str, Any] | None  # step and scores of the best validation
    signal: int | None = None  # what interrupted it

    def load(self, device: str = "auto") -> Translator:
        return load(self.folder, device)

    def history(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return Journal(self.folder / JOURNAL).lines()


def train(
    task: str,
    files: Files,
    *,
    output: str | Path,
    valid: Files | float | str | None = None,
    model: str | None = None,
    size: str | None = None,
    data: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    device: str = "auto",
    resume: bool = False,
    cache: Path | None = None,
    quiet: bool = False,
    progress: Progress | None = None,
) -> Run:
    """Train a model on files of examples and leave everything needed to use, repeat or resume it in `output`.

    `files`: files, or a dataset by name, which brings its own validation split and tokens unless others are given.
    `valid`: files, or a share of the training data such as "5%" (the default). `model`: a preset or a YAML file;
    `size`: tiny, small or base. `data` and `training`: keywords of DataOptions and Training. `settings`: anything by
    its dotted name, as `--set` takes it: {"decoder.score": "additive"}. `progress` shows what
    happens (see `runs/progress.py`): by default a bar in a terminal, lines elsewhere, nothing if `quiet`.
    """
    known(task, TASKS, "task")
    launch = Launch.of()
    with connected(launch, choose_device(device, launch.local if launch.world > 1 else None)) as ranks:
        folder, names = Path(output), file_names(files)
        given = (model, size, data or {}, training or {}, settings or {})
        config, saved, own_valid = ranks.lead(lambda: _settled(folder, resume, ranks, names, given))
        usual = own_valid or "5%" if saved is None else saved["inputs"]["valid"]
        held: Files | float = usual if valid is None else valid
        prepared = _prepared(ranks, (task, names, held), config, cache)
        config |= {"decoding": bound_of(prepared), "inputs": {"train": names, "valid": _plain(held)}}
        progress = (progress or make_progress("quiet" if quiet else "usual")) if ranks.first else Silent()
        try:
            with ranks.together():
                session = make_session(folder, config, prepared, ranks, progress)
                if held == own_valid:
                    progress.note(f"validates on {held}")
                _greet(session, prepared, progress)
            with _ready(session, config, saved):
                session.run()
        finally:
            progress.close()
        if session.signal is None and ranks.first:
            finish(folder, session.examples, ranks.device, progress)
        return Run(folder, config, session.loop.step, session.best, session.signal)


def _settled(
    folder: Path, resume: bool, ranks: Ranks, names: list[str], given: tuple[Any, ...]
) -> tuple[dict[str, Any], dict[str, Any] | None, str | None]:
    """The config of this run, that of the run in the folder if it goes on, and the validation split that a dataset
    brings."""
    saved = _open(folder, resume or _begun_by(folder, ranks))
    model, size, data, *more = given
    own, own_valid = registry.suited(names, data) if saved is None else (data, None)
    config = configs.compose(model, size, own, *more, saved=saved)
    if saved is not None and (changed := configs.differences(saved, config)):
        raise SeqloomError(f"{folder}: cannot resume with other settings: {'; '.join(changed)}")
    return config, saved, own_valid


def _begun_by(folder: Path, ranks: Ranks) -> bool:
    """torchrun starts this training again, and what is in the folder comes from an earlier attempt of its own."""
    if not any(launch.attempt for launch in ranks.launches) or not (folder / "env.json").is_file():
        return False
    begun = json.loads((folder / "env.json").read_text(encoding="utf-8")).get("launches", [])
    return any(launch.name in begun for launch in ranks.launches)


def _prepared(
    ranks: Ranks, inputs: tuple[str, list[str], Files | float], config: Mapping[str, Any], cache: Path | None
) -> Prepared:
    """The data, once a cache; every machine must have been given the same."""

    task, names, held = inputs

    def work() -> Prepared:
        if ranks.several and STDIN in names:
            raise SeqloomError("several processes cannot share standard input; write the data to a file first")
        options = configs.data_options(config["data"])
        train, valid = registry.resolve(names, "train", task), _share_or_found(held, task)
        return prepare(train, valid, options, seed=config["training"]["seed"], cache=cache)

    prepared = ranks.in_turn(work)
    found = set(ranks.gather(prepared.train.fingerprint))
    with ranks.together():
        if len(found) > 1:
            raise SeqloomError("the training data differ between the machines; give every one the same files")
    return prepared


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
        stack.enter_context(locked(folder))
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
    if found is not None and found.values["fingerprint"] != session.data.train.fingerprint:
        raise SeqloomError(f"{session.folder}: cannot resume: the training data or its options have changed")
    return found


def make_session(
    folder: Path, config: Mapping[str, Any], prepared: Prepared, ranks: Ranks, progress: Progress
) -> Session:
    settings = Training.of(config["training"])
    torch.manual_seed(settings.seed)
    model = build(MODELS, config["model"], source_size=prepared.source.size, target_size=prepared.target.size)
    objective = wrapped(TeacherForcing(model, settings.smoothing), ranks, settings.shard)
    options = config["data"]
    texts = Texts(
        model,
        prepared.source,
        prepared.target,
        Bound(**config["decoding"]),
        ranks.device,
        max_length=options["max_length"],
        cut=options["cut"],
    )
    loop = Loop(objective, prepared.train, settings, ranks.device, ranks)
    return Session(folder, loop, texts, prepared, progress)


def _greet(session: Session, prepared: Prepared, progress: Progress) -> None:
    """Say what is about to happen."""
    if session.settings.patience is not None and prepared.valid is None:
        raise SeqloomError("patience counts validations, and there is no validation data; set --valid or --epochs")
    for note in prepared.notes:
        progress.note(note)
    progress.detail(f"numbered data in {prepared.train.folder}")
    progress.detail(f"config, vocabularies, best model and metrics in {session.folder}")
    count = sum(p.numel() for p in session.texts.model.parameters())
    where = f"{session.loop.device}" if not session.ranks.several else f"{session.ranks.world} processes"
    progress.note(f"{count:,} parameters on {where}; {len(session.loop.plan):,} batches an epoch")


def _open(folder: Path, resume: bool) -> dict[str, Any] | None:
    """The config of the run that the folder holds, if that is to go on."""
    if folder.is_file():
        raise SeqloomError(f"{folder}: is a file; --output names a folder")
    holds = (folder / configs.FILE).exists()
    if holds and not resume:
        raise SeqloomError(f"{folder}: already holds a run; add --resume to go on with it, or name another --output")
    return configs.load(folder) if holds else None


def _start_folder(folder: Path, config: Mapping[str, Any], prepared: Prepared, ranks: Ranks) -> None:
    write_json(folder / "source.json", prepared.source.to_json())
    write_json(folder / "target.json", prepared.target.to_json())
    write_json(folder / "data.json", prepared.facts)
    begun = {"processes": ranks.world, "launches": sorted({launch.name for launch in ranks.launches if launch.name})}
    write_json(folder / "env.json", environment() | begun)
    configs.save(folder, config)  # last: a folder with a config is a run


def bound_of(prepared: Prepared) -> dict[str, Any]:
    """How long targets get, from the training data: the largest ratio to the source, and the longest."""
    source, target = prepared.train.source_lengths, prepared.train.target_lengths
    return {"ratio": float(np.ceil(10 * (target / source).max()) / 10), "longest": int(target.max())}


def file_names(files: Files) -> list[str]:
    return [str(files)] if isinstance(files, str | Path) else [str(file) for file in files]


def share_or_files(valid: Files | float | str) -> list[str] | float:
    """`0.05`, `"5%"` or file names."""
    if isinstance(valid, int | float):
        share = float(valid)
    elif isinstance(valid, str) and valid.endswith("%"):
        try:
            share = float(valid[:-1]) / 100
        except ValueError:
            raise SeqloomError(f"cannot read the share {valid!r}; write it as 5%") from None
    elif isinstance(valid, str) and re.fullmatch(r"0?\.\d+|0", valid):
        share = float(valid)
    else:
        return file_names(valid)
    if not 0 <= share < 1:
        raise SeqloomError(f"a validation share lies between 0% and 100%, here {share:.0%}")
    return share


def _share_or_found(valid: Files | float | str, task: str) -> list[str] | float:
    """As `share_or_files`, with files for the names of datasets."""
    held = share_or_files(valid)
    return registry.resolve(held, "valid", task) if isinstance(held, list) else held


def _plain(valid: Any) -> Any:
    return valid if valid is None or isinstance(valid, str | int | float) else file_names(valid)
