"""What reports and cards call a task and its data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqloom.tasks.about import Wording
from seqloom.tasks.registry import TASKS


def wording(config: Mapping[str, Any]) -> Wording:
    """The words of a run's task; those of `translate` for a task that this version does not know."""
    return TASKS.get(str(config.get("task", "translate")), TASKS["translate"]).words
