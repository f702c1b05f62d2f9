"""So many of something, in words."""

from __future__ import annotations


def counted(count: int | None, plural: str) -> str:
    """1 broken line, 1,234 broken lines; a dash for a number that is not known. The plural ends in s."""
    number = "–" if count is None else f"{count:,}"
    return f"{number} {plural.removesuffix('s') if count == 1 else plural}"
