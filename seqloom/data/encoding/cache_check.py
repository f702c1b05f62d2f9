"""Whether encoded data in the cache is what was written, found out beside the training that already reads it.

The manifest of every cache holds SHA-256 sums, which processors count at more than a gigabyte a second. Large caches
are compared with them once a process, in a thread, and nothing that was trained is kept before that is over.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seqloom.errors import SeqloomError
from seqloom.files import MANIFEST, damage

AT_ONCE = 1 << 25  # bytes: a cache up to here is compared before it is used, too little for a thread of its own

_checks: dict[Path, _Check] = {}


class _Check(threading.Thread):
    def __init__(self, folder: Path) -> None:
        super().__init__(name=f"sums of {folder.name}", daemon=True)
        self.folder = folder
        self.wrong: str | None = None

    def run(self) -> None:
        try:
            self.wrong = damage(self.folder)
        except SeqloomError as error:  # what cannot be read now cannot be trusted either
            self.wrong = str(error)


def begin(folder: Path) -> None:
    """Start to compare a folder of encoded data with its sums, unless this process has done so."""
    if folder not in _checks:
        _checks[folder] = _Check(folder)
        _checks[folder].start()


@contextmanager
def explained() -> Iterator[None]:
    """What fails inside may be due to damaged data; then that error is raised instead."""
    try:
        yield
    except SeqloomError:
        raise
    except Exception:
        for folder in list(_checks):
            settle(folder)
        raise


def settle(folder: Path | None) -> None:
    """Wait until the folder is compared. One that is damaged is an error, and is made anew by the next training."""
    check = _checks.get(folder) if folder is not None else None
    if check is None:
        return
    check.join()
    if check.wrong:
        del _checks[check.folder]
        with suppress(OSError):
            (check.folder / MANIFEST).unlink()
        raise SeqloomError(
            f"{check.folder}: the cache of encoded data is damaged: {check.wrong}; nothing trained on it was kept: "
            "start again, and the data are encoded again"
        )
