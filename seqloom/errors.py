"""What goes wrong on the user's side, said in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class SeqloomError(Exception):
    """Something the user can mend. The command line prints its text as one line and leaves with a non-zero status."""


def missing(path: str | Path) -> SeqloomError:
    """A file that is not there, and the one beside it that was probably meant."""
    path = Path(path)
    beside = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, beside, 1)
    return SeqloomError(f"{path}: no such file" + (f"; did you mean {str(path.with_name(near[0]))!r}?" if near else ""))


def known(name: str, names: Iterable[str], what: str = "name") -> str:
    """`name` itself if it is one of `names`; else an error that guesses what was meant."""
    choices = sorted(names)
    if name in choices:
        return name
    near = difflib.get_close_matches(str(name), choices, 1)
    guess = f"; did you mean {near[0]!r}?" if near else "."
    raise SeqloomError(f"unknown {what} {name!r}{guess} Choose from: {', '.join(choices)}")
