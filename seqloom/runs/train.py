"""`seqloom.train`: from files of examples to a run folder with a trained model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqloom.data.corpus import Prepared, prepare
from seqloom.decoding.texts import Bound, Texts
from seqloom.errors import SeqloomError, known
from seqloom.files import locked, tidy, write_json
from seqloom.models.seq2seq import MODELS
from seqloom.parts.choose import build
from seqloom.runs import config as configs
from seqloom.runs.environment import choose_device, environment
from seqloom.runs.journal import Journal
from seqloom.runs.progress import Progress
from seqloom.runs.progress import progress as make_progress
from seqloom.runs.session import CHECKPOINTS, JOURNAL, Session
from seqloom.runs.translator import Translator, load
from seqloom.training import checkpoint
from seqloom.training.loop import Loop
from seqloom.training.objective import TeacherForcing
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
) -> Run:
    """Train a model on files of examples and leave everything needed to use, repeat or resume it in `output`.

    `valid`: files, or a share of the training data such as "5%" (the default). `model`: a preset or a YAML file;
    `size`: tiny, small or base. `data` and `training`: keywords of DataOptions and Training. `settings`: anything by
    its dotted name, as `--set` takes it: {"decoder.score": "additive"}.
    """
    known(task, TASKS, "task")
    folder, saved = _open(Path(output), resume)
    config = configs.compose(model, size, data or {}, training or {}, settings or {}, saved)
    if saved is not None and (changed := configs.differences(saved, config)):
        raise SeqloomError(f"{folder}: cannot resume with other settings: {'; '.join(changed)}")
    place = choose_device(device)
    held: Files | float = valid if valid is not None else "5%" if saved is None else saved["inputs"]["valid"]
    prepared = prepare(
        file_names(files),
        share_or_files(held),
        configs.data_options(config["data"]),
        seed=config["training"]["seed"],
        cache=cache,
    )
    config |= {"decoding": bound_of(prepared), "inputs": {"train": file_names(files), "valid": _plain(held)}}
    progress = make_progress(quiet)
    session = make_session(folder, config, prepared, place, progress)
    try:
        _greet(session, prepared, progress)
        with _ready(session, config, saved):
            session.run()
    finally:
        progress.close()
    if session.signal is None:
        progress.note(f"done: {folder}")
    return Run(folder, config, session.loop.step, session.best, session.signal)


@contextmanager
def _ready(session: Session, config: Mapping[str, Any], saved: Mapping[str, Any] | None) -> Iterator[None]:
    """The folder for us alone, and the session where the newest whole checkpoint left it.

    Nothing is written before the model stands and the checkpoint fits the data: what is refused changes nothing.
    """
    folder = session.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SeqloomError(f"{folder}: cannot be made: {error.strerror or error}") from error
    with locked(folder):
        found = None if saved is None else _newest(session)
        if saved is None:
            _start_folder(folder, config, session.data)
        else:
            configs.save(folder, config)
        if found is None:
            session.journal.cut_back(0)
        else:
            session.restore(found)
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
    folder: Path, config: Mapping[str, Any], prepared: Prepared, device: torch.device, progress: Progress
) -> Session:
    settings = Training.of(config["training"])
    torch.manual_seed(settings.seed)
    model = build(MODELS, config["model"], source_size=prepared.source.size, target_size=prepared.target.size)
    model = model.to(device)
    options = config["data"]
    texts = Texts(
        model,
        prepared.source,
        prepared.target,
        Bound(**config["decoding"]),
        device,
        max_length=options["max_length"],
        cut=options["cut"],
    )
    loop = Loop(TeacherForcing(model, settings.smoothing), prepared.train, settings, device)
    return Session(folder, loop, texts, prepared, progress)


def _greet(session: Session, prepared: Prepared, progress: Progress) -> None:
    """Say what is about to happen."""
    if session.settings.patience is not None and prepared.valid is None:
        raise SeqloomError("patience counts validations, and there is no validation data; set --valid or --epochs")
    for note in prepared.notes:
        progress.note(note)
    count = sum(p.numel() for p in session.texts.model.parameters())
    progress.note(f"{count:,} parameters on {session.loop.device}; {len(session.loop.plan):,} batches an epoch")


def _open(folder: Path, resume: bool) -> tuple[Path, dict[str, Any] | None]:
    """The folder, and the config of the run it holds if that is to go on."""
    if folder.is_file():
        raise SeqloomError(f"{folder}: is a file; --output names a folder")
    holds = (folder / configs.FILE).exists()
    if holds and not resume:
        raise SeqloomError(f"{folder}: already holds a run; add --resume to go on with it, or name another --output")
    return folder, configs.load(folder) if holds else None


def _start_folder(folder: Path, config: Mapping[str, Any], prepared: Prepared) -> None:
    write_json(folder / "source.json", prepared.source.to_json())
    write_json(folder / "target.json", prepared.target.to_json())
    write_json(folder / "data.json", prepared.facts)
    write_json(folder / "env.json", environment())
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


def _plain(valid: Any) -> Any:
    return valid if valid is None or isinstance(valid, str | int | float) else file_names(valid)
