"""Files that are either whole or not there: a kill, a crash or a full disk leaves no half-written one behind."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqloom.errors import SeqloomError

MANIFEST = "manifest.json"


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write to a temporary name in the same folder, fsync, rename, fsync the folder."""
    raw = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SeqloomError(f"{path}: could not be written: {error.strerror or error}") from error


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder to fill; on leaving, everything in it is hashed, fsynced and renamed to `path` at once."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        sums = {file.name: sha256(file) for file in sorted(temporary.iterdir())}
        write_json(temporary / MANIFEST, sums)
        for file in temporary.iterdir():
            _sync(file)
        sync_folder(temporary)
        if path.exists():
            shutil.rmtree(path)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise SeqloomError(f"{path}: could not be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def damage(folder: Path) -> str | None:
    """What is wrong with a folder made by `new_folder`; None if every file matches its manifest."""
    try:
        sums = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError):
        return f"{MANIFEST} is missing or unreadable"
    for name, expected in sums.items():
        file = folder / name
        if not file.is_file():
            return f"{name} is missing"
        if sha256(file) != expected:
            return f"{name} does not match its checksum"
    return None


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
