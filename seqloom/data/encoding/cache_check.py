"""Integrity of the cache of encoded data, checked in a thread while training already reads it.

The manifest of every cache holds SHA-256 sums. Large caches are verified once per process, in a thread; checkpoints
are written only after that.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seqloom.errors import SeqloomError
from seqloom.files import MANIFEST, damage

SMALL_CACHE = 1 << 25  # bytes; up to this size a cache is verified before it is used, without a thread

_checks: dict[Path, _Check] = {}


class _Check(threading.Thread):
    def __init__(self, folder: Path) -> None:
        super().__init__(name=f"sums of {folder.name}", daemon=True)
        self.folder = folder
        self.damage: str | None = None

    def run(self) -> None:
        try:
            self.damage = damage(self.folder)
        except SeqloomError as error:  # an unreadable file counts as damaged
            self.damage = str(error)


def start_check(folder: Path) -> None:
    """Start to verify a folder of encoded data, unless this process has done so."""
    if folder not in _checks:
        _checks[folder] = _Check(folder)
        _checks[folder].start()


@contextmanager
def explain_damage() -> Iterator[None]:
    """If a failure inside the block is due to damaged data, raise that error instead."""
    try:
        yield
    except SeqloomError:
        raise
    except Exception:
        for folder in list(_checks):
            finish_check(folder)
        raise


def finish_check(folder: Path | None) -> None:
    """Wait until the folder is verified. A damaged one is an error; the next training builds it again."""
    check = _checks.get(folder) if folder is not None else None
    if check is None:
        return
    check.join()
    if check.damage:
        del _checks[check.folder]
        with suppress(OSError):
            (check.folder / MANIFEST).unlink()
        raise SeqloomError(
            f"{check.folder}: the cache of encoded data is damaged: {check.damage}; nothing trained on it was kept: "
            "start again, and the data are encoded again"
        )
