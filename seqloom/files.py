"""Files that are either whole or not there: a kill, a crash or a full disk leaves no half-written one behind."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from seqloom.errors import SeqloomError, missing

MANIFEST = "manifest.json"


def default_cache() -> Path:
    """$SEQLOOM_CACHE, or a folder of ours where caches go."""
    named = os.environ.get("SEQLOOM_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "seqloom"


def write_atomic(path: Path, content: bytes | str) -> None:
    """The whole file at once; see `writing`."""
    content = content.encode() if isinstance(content, str) else content
    with writing(path, len(content)) as file:
        file.write(content)


@contextmanager
def writing(path: Path, needed: int = 0) -> Iterator[BinaryIO]:
    """A file to write piece by piece: a temporary name in the same folder, then fsync, rename, fsync the folder.

    Whatever goes wrong inside, nothing is left behind and what stood there before stays. `needed`: how many bytes it
    will have, if that is known.
    """
    temporary = _beside(path)
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise unwritten(path, error, temporary, needed) from error
    finally:
        with suppress(OSError):  # the folder may be no folder
            temporary.unlink()


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Keys and values of a JSON file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise missing(path) from error
    except (OSError, ValueError) as error:
        raise SeqloomError(f"{path}: cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise SeqloomError(f"{path}: expected keys and values")
    return value


def read_yaml(path: Path) -> dict[str, Any]:
    """Keys and values of a YAML file; what is wrong with it is said with its line."""
    import yaml

    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise missing(path) from error
    except (OSError, UnicodeDecodeError) as error:
        raise SeqloomError(f"{path}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise SeqloomError(f"{where}: not YAML: {getattr(error, 'problem', error)}") from error
    if not isinstance(loaded, dict):
        raise SeqloomError(f"{path}: expected keys and values")
    return loaded


@contextmanager
def new_folder(path: Path, keep_existing: bool = False) -> Iterator[Path]:
    """A temporary folder to fill; on leaving, everything in it is hashed, fsynced and renamed to `path` at once.

    What stood there before is moved aside first and removed last; `tidy` brings it back after a kill between.
    With `keep_existing`, somebody else who was faster wins, and their folder stays.
    """
    temporary = _beside(path)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        sums = {file.name: sha256(file) for file in sorted(temporary.iterdir())}
        write_json(temporary / MANIFEST, sums)
        for file in temporary.iterdir():
            _sync(file)
        sync_folder(temporary)
        _put(temporary, path, keep_existing)
        sync_folder(path.parent)
    except OSError as error:
        raise unwritten(path, error, temporary) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def unwritten(path: Path, error: OSError, begun: Path, needed: int = 0) -> SeqloomError:
    """Why `path` could not be written; of a full disk also how much it holds and how much is needed. `begun`: the file
    or folder that was being filled, still there."""
    reason = error.strerror or str(error)
    if error.errno == errno.ENOSPC:
        with suppress(OSError):
            files = [begun, *begun.iterdir()] if begun.is_dir() else [begun]
            written = sum(file.stat().st_size for file in files if file.is_file())
            free = shutil.disk_usage(begun.parent).free + written
            amount = f"{needed:,}" if needed > written else f"more than {written:,}"
            reason += f": {amount} bytes are needed, and {free:,} are free in {begun.parent}"
    return SeqloomError(f"{path}: could not be written: {reason}")


def _beside(path: Path) -> Path:
    """A name that nobody else has: in two containers with one volume processes have the same numbers."""
    return path.with_name(f".{path.name}.{uuid4().hex[:12]}.tmp")


def _put(temporary: Path, path: Path, keep_existing: bool) -> None:
    aside = path.with_name(f".{path.name}.old")
    if path.exists() and not keep_existing:
        path.rename(aside)
    try:
        temporary.rename(path)
    except OSError as error:
        if not (keep_existing and error.errno in (errno.ENOTEMPTY, errno.EEXIST)):
            raise
    shutil.rmtree(aside, ignore_errors=True)


def tidy(parent: Path) -> None:
    """After a kill: bring back what was moved aside and not replaced, and remove what was half written."""
    for aside in parent.glob(".*.old"):
        path = parent / aside.name[1:].removesuffix(".old")
        if path.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.rename(path)
    for left in parent.glob(".*.tmp"):
        shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one process at a time works in this folder."""
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SeqloomError(f"{folder}: another training is at work in it") from None
        yield


def damage(folder: Path) -> str | None:
    """What is wrong with a folder made by `new_folder`; None if every file matches its manifest."""
    try:
        sums = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError):
        return f"{MANIFEST} is missing or unreadable"
    if not sums:
        return f"{MANIFEST} is empty"
    for name, expected in sums.items():
        file = folder / name
        if not file.is_file():
            return f"{name} is missing"
        if sha256(file) != expected:
            return f"{name} does not match its checksum"
    return None


def clear_damaged(folder: Path) -> None:
    """Make room for a new one; a whole folder, which somebody else may just have finished, stays."""
    if folder.is_dir() and damage(folder):
        shutil.rmtree(folder, ignore_errors=True)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync(file: Path) -> None:
    with file.open("rb") as handle:
        os.fsync(handle.fileno())
