"""What commands share: errors in how one was given, and runs before files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

UsageError: Any = typer.BadParameter.__mro__[1]  # click's, which newer typers carry inside under another name


def members(run: str, more: Sequence[str]) -> tuple[list[str], list[str]]:
    """All runs that a command was given, and what stands behind the last of them."""
    from seqloom.runs.ensemble import is_run

    count = next((place for place, one in enumerate(more) if not is_run(one)), len(more))
    return [run, *more[:count]], list(more[count:])
