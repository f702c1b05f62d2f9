"""The folder of a training: free for a new run, or with a run to resume; locked while it is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from seqloom.data.batches.batch_source import PreparedData
from seqloom.documents import read_json
from seqloom.errors import SeqloomError
from seqloom.files import locked, tidy, write_json
from seqloom.runs import config as configs
from seqloom.runs.folder.environment import environment
from seqloom.runs.load import stored_config
from seqloom.runs.train.session import CHECKPOINTS, Session
from seqloom.training import checkpoint
from seqloom.training.distributed.processes import Ranks
from seqloom.version import IMPORTED


def run_to_resume(folder: Path, resume: bool, ranks: Ranks) -> dict[str, Any] | None:
    """The config of the run in the folder if it is to be resumed; an error if it may not be."""
    if folder.is_file():
        raise SeqloomError(f"{folder}: is a file; --output names a folder")
    if not resume and not _is_restart(folder, ranks):
        check_free(folder)
    saved = stored_config(folder) if (folder / configs.FILE).exists() else None
    if saved is not None and saved["preset"]["size"] == IMPORTED and "from" not in saved["inputs"]:
        raise SeqloomError(f"{folder}: was imported, not trained here: train from it with --from {folder}")
    return saved


def check_free(folder: Path) -> None:
    if (folder / configs.FILE).exists():
        raise SeqloomError(f"{folder}: already holds a run; add --resume to go on with it, or name another --output")


def _is_restart(folder: Path, ranks: Ranks) -> bool:
    """Whether torchrun restarted a failed training: then the folder holds an earlier attempt of the same launch."""
    if not any(launch.attempt for launch in ranks.launches) or not (folder / "env.json").is_file():
        return False
    launches = read_json(folder / "env.json").get("launches", [])
    return isinstance(launches, list) and any(launch.name in launches for launch in ranks.launches)


@contextmanager
def locked_folder(session: Session, config: Mapping[str, Any], saved: Mapping[str, Any] | None) -> Iterator[None]:
    """Lock the folder for this training and restore the session from the newest undamaged checkpoint.

    Comes after the model was built, so that errors in settings or data leave the folder as it was.
    """
    folder, ranks = session.folder, session.ranks
    newest: checkpoint.Checkpoint | None = None

    def begin() -> tuple[str, dict[str, Any]] | None:
        nonlocal newest
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SeqloomError(f"{folder}: cannot be made: {error.strerror or error}") from error
        configs.check_folder(folder)
        stack.enter_context(locked(folder))
        if saved is None:
            check_free(folder)  # another process may have trained here while the data were read
            _write_run_files(folder, config, session.data, ranks)
            return None
        newest = _newest_checkpoint(session)
        configs.save(folder, config)
        return None if newest is None else (str(newest.folder), newest.values)

    with ExitStack() as stack:
        folder_and_values = ranks.run_on_first(begin)
        if folder_and_values is None:
            session.journal.cut_back(0)
        else:
            path, values = folder_and_values
            weights, tensors = ({}, {}) if newest is None else (newest.weights, newest.tensors)
            session.restore(
                checkpoint.Checkpoint(
                    Path(path), ranks.broadcast_tensors(weights), ranks.broadcast_tensors(tensors), values
                )
            )
            session.progress.note(f"resumed at step {session.loop.step:,}")
        yield


def _newest_checkpoint(session: Session) -> checkpoint.Checkpoint | None:
    parent = session.folder / CHECKPOINTS
    tidy(session.folder)
    tidy(parent)
    newest, problems = checkpoint.newest(parent)
    for problem in problems:
        session.progress.note(problem)
    if newest is not None and newest.values.get("fingerprint") != session.data.train.fingerprint:
        raise SeqloomError(f"{session.folder}: cannot resume: the training data or its options have changed")
    return newest


def _write_run_files(folder: Path, config: Mapping[str, Any], data: PreparedData, ranks: Ranks) -> None:
    for name, value in data.vocabularies().items():
        write_json(folder / f"{name}.json", value)
    write_json(folder / "data.json", data.facts)
    names = sorted({launch.name for launch in ranks.launches if launch.name})
    write_json(folder / "env.json", environment() | {"processes": ranks.world, "launches": names})
    configs.save(folder, config)  # last: a folder with a config is a run
