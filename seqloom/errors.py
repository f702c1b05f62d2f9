"""What goes wrong on the user's side, said in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

MOST = 100  # characters of a wrong value that are shown


class SeqloomError(Exception):
    """Something the user can mend. The command line prints its text as one line and leaves with a non-zero status."""


class SettingError(SeqloomError):
    """A setting or an option that is refused: the command line leaves with 2, as of an option that it does not know."""


@contextmanager
def setting(name: str = "") -> Iterator[None]:
    """Whatever is refused meanwhile is a setting, of that name."""
    try:
        yield
    except SeqloomError as error:
        raise SettingError(f"{name}: {error}" if name else str(error)) from error


def shown(value: object) -> str:
    """A value as an error shows it: on one line, not at length, and with nothing that a terminal would obey."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write numbers of more than some thousand digits
        return "a number of thousands of digits"
    text = text if len(text) <= MOST else f"{text[:MOST]}…"
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)  # as repr does of text


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
    which = f"Choose from: {', '.join(choices)}" if choices else "There is none."
    raise SeqloomError(f"unknown {what} {shown(name)}{guess} {which}")
