"""So many of something, in words."""

from __future__ import annotations


def counted(count: int | None, plural: str) -> str:
    """1 broken line, 1,234 broken lines, 1 batch; a dash for a number that is not known. The plural ends in s."""
    number = "–" if count is None else f"{count:,}"
    return f"{number} {plural.removesuffix('es' if plural.endswith('ches') else 's') if count == 1 else plural}"
