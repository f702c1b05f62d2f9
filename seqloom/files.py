"""Files that are either whole or not there: a kill, a crash or a full disk leaves no half-written one behind."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from seqloom.documents import parse_json
from seqloom.errors import SeqloomError
from seqloom.safety import file_errors, kind_of, open_own

MANIFEST = "manifest.json"
BLOCK = 1 << 23  # bytes summed at a time: long enough that a thread which sums rarely waits for the others


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
        with file_errors(path, "written", temporary, needed):
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
    finally:
        with suppress(OSError):  # the folder may be no folder
            temporary.unlink()


@contextmanager
def writing_output(path: Path) -> Iterator[BinaryIO]:
    """As `writing`, for a file that the user names: what is no plain file there is written through, not replaced.

    A link keeps its place and the file that it leads to is written; a device, a FIFO and our own standard streams
    (/dev/stdout) get the bytes as they come.
    """
    with file_errors(path, "written"):
        opened = _stream(path)
    if opened is None:
        with writing(Path(os.path.realpath(path)) if path.is_symlink() else path) as file:
            yield file
        return
    with file_errors(path, "written"), opened as file:
        yield file


def write_output(path: Path, content: bytes | str) -> None:
    """The whole content at once; see `writing_output`."""
    with writing_output(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def _stream(path: Path) -> BinaryIO | None:
    """A device, a FIFO or a standard stream by its path, opened; None for plain files, and where there is nothing."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    for number in (1, 2):
        with suppress(OSError):  # a stream may be closed
            if path.is_symlink() and os.path.samestat(os.fstat(number), found):
                return open(os.dup(number), "wb")
    if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
        return None
    return path.open("wb")


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


@contextmanager
def new_folder(path: Path, keep_existing: bool = False) -> Iterator[Path]:
    """A temporary folder to fill; on leaving, everything in it is hashed, fsynced and renamed to `path` at once.

    What stood there before is moved aside first and removed last; `tidy` brings it back after a kill between.
    With `keep_existing`, if another process was faster, its folder stays.
    """
    temporary = _beside(path)
    try:
        with file_errors(path, "written", temporary):
            temporary.mkdir(parents=True)
            yield temporary
            sums = {file.name: sha256(file) for file in sorted(temporary.iterdir())}
            write_json(temporary / MANIFEST, sums)
            for file in temporary.iterdir():
                _sync(file)
            sync_folder(temporary)
            _put(temporary, path, keep_existing)
            sync_folder(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _beside(path: Path) -> Path:
    """A unique name: in two containers with one volume processes have the same numbers."""
    if not path.name:
        raise SeqloomError(f"'{path}' is the name of no file or folder")
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
    with file_errors(parent, "tidied up"):
        for aside in parent.glob(".*.old"):
            path = parent / aside.name[1:].removesuffix(".old")
            if path.exists():
                shutil.rmtree(aside, ignore_errors=True)
            else:
                aside.rename(path)
        for left in parent.glob(".*.tmp"):
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one process at a time works in this folder."""
    with open_own(folder / ".lock", os.O_RDWR | os.O_CREAT) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SeqloomError(f"{folder}: another training is at work in it") from None
        except OSError as error:
            raise SeqloomError(f"{folder / '.lock'}: cannot be locked: {error.strerror or error}") from error
        yield


def damage(folder: Path, required: Iterable[str] = (), beside: Iterable[str] = ()) -> str | None:
    """What is wrong with a folder made by `new_folder`; None if every file matches its manifest.

    A manifest that leaves out a `required` file, or any that is there, says nothing: only those `beside` the manifest,
    and hidden ones, as file managers make them, may be missing in it. What the system does not let us read may be
    whole, and is an error.
    """
    try:
        with file_errors(folder, "read"):
            found = {entry.name: entry.stat(follow_symlinks=False) for entry in os.scandir(folder)}
    except SeqloomError as error:
        if not isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            raise
        found = {}
    sums = _sums(folder / MANIFEST) if MANIFEST in found and _is_plain(found[MANIFEST]) else None
    if not sums:
        return f"{MANIFEST} is missing, empty or unreadable"
    for name in (*sums, *required):
        if name not in found:
            return f"{_shown(name)} is missing"
        if name not in sums or not _is_plain(found[name]):
            return f"{_shown(name)} is not in {MANIFEST}, or no file"
    for name in found.keys() - sums.keys() - {MANIFEST, *beside}:
        if not name.startswith("."):
            return f"{_shown(name)} is not in {MANIFEST}"
    for name, expected in sums.items():
        with file_errors(folder / name, "read"):
            if sha256(folder / name) != expected:
                return f"{_shown(name)} does not match its checksum"
    return None


def _shown(name: str) -> str:
    """A file name from a manifest, on one line."""
    return name if name.isprintable() else ascii(name)


def _is_plain(about: os.stat_result) -> bool:
    return kind_of(about.st_mode) is None


def _sums(manifest: Path) -> dict[str, Any] | None:
    """None: it cannot be one that `new_folder` wrote."""
    with file_errors(manifest, "read"), manifest.open("rb") as file:
        raw = file.read(BLOCK)
    try:
        found = parse_json(raw, manifest)
    except SeqloomError:
        return None
    return found if isinstance(found, dict) else None


def remove_folder(folder: Path) -> None:
    """Removes the folder in one visible step: what a kill leaves of it is hidden, and `tidy` removes it."""
    with suppress(OSError):
        hidden = _beside(folder)
        folder.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def clear_damaged(folder: Path) -> None:
    """Make room for a new one; a whole folder, which another process may just have finished, stays."""
    if folder.is_dir() and damage(folder):
        shutil.rmtree(folder, ignore_errors=True)


def sha256(path: Path) -> str:
    total, buffer = hashlib.sha256(), bytearray(min(BLOCK, max(path.stat().st_size + 1, 1 << 16)))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            total.update(memoryview(buffer)[:count])
    return total.hexdigest()


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync(file: Path) -> None:
    with file.open("rb") as handle:
        os.fsync(handle.fileno())
