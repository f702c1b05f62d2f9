"""The cache of prepared data: one folder per fingerprint."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from seqloom.data.tokenizers.tokenizers import make_tokenizer
from seqloom.errors import SeqloomError
from seqloom.files import damage, default_cache, new_folder

Made = TypeVar("Made")


def fingerprint(key: Mapping[str, Any]) -> str:
    """SHA-256 of everything that determines the ids: contents of files, not names or dates."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def tokenizer_versions(kinds: Iterable[str]) -> dict[str, str]:
    """Versions of the tokenizer packages for these kinds of tokens; they determine the ids too."""
    versions: dict[str, str] = {}
    for kind in kinds:
        if kind.startswith("bpe"):
            versions["tokenizers"] = metadata.version("tokenizers")
        if kind.startswith("jieba"):
            make_tokenizer(kind).split("")  # reports a missing package before its version is read
            versions["rjieba"] = metadata.version("rjieba")
    return versions


def cached(
    name: str,
    cache: Path | None,
    build: Callable[[Path], Made],
    intact: Callable[[Path], bool] = lambda folder: damage(folder) is None,
) -> tuple[Path, Made | None]:
    """The folder `name` of the cache, filled by `build` unless intact; and its result, None if not called."""
    folder = (cache or default_cache()) / name
    if intact(folder):
        return folder, None
    _make_writable(folder.parent)
    if folder.exists() and not intact(folder):  # another process may have finished it meanwhile
        shutil.rmtree(folder, ignore_errors=True)
    with new_folder(folder, keep_existing=True) as fresh:
        made = build(fresh)
    return folder, made


def _make_writable(cache: Path) -> None:
    """Create the cache folder; an error names it before any work is done."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        writable, why = os.access(cache, os.W_OK), "no permission"
    except OSError as error:
        writable, why = False, str(error.strerror or error)
    if not writable:
        raise SeqloomError(f"{cache}: the cache of data cannot be written: {why}; set $SEQLOOM_CACHE elsewhere")
