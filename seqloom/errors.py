"""Errors that the user can correct, in one line each."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

MOST = 100  # characters of a wrong value that are shown


class SeqloomError(Exception):
    """An error that the user can correct. The command line prints it as one line and exits with a non-zero status."""


class SettingError(SeqloomError):
    """A wrong setting or option: the command line exits with 2, as for an unknown option."""


@contextmanager
def setting_errors(name: str = "") -> Iterator[None]:
    """Turn errors in this block into a SettingError, with the name of the setting."""
    try:
        yield
    except SeqloomError as error:
        raise SettingError(f"{name}: {error}" if name else str(error)) from error


def shown(value: object) -> str:
    """A value as errors show it: on one line, shortened, and without control characters."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write numbers of more than some thousand digits
        return "a number of thousands of digits"
    text = text if len(text) <= MOST else f"{text[:MOST]}…"
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)  # as repr does of text


def missing(path: str | Path) -> SeqloomError:
    """The error for a missing file, with the name of the one that was probably meant."""
    path = Path(path)
    beside = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, beside, 1)
    return SeqloomError(f"{path}: no such file" + (f"; did you mean {str(path.with_name(near[0]))!r}?" if near else ""))


def is_known(name: object, names: Collection[str]) -> bool:
    """Whether `name` is one of `names`."""
    return name in [*names]  # not by hash: a config may give anything for a name


def known(name: str, names: Collection[str], what: str = "name") -> str:
    """`name` itself if it is one of `names`; else an error that suggests what was meant."""
    if is_known(name, names):
        return name
    choices = sorted(names)
    near = difflib.get_close_matches(str(name), choices, 1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    which = f"Choose from: {', '.join(choices)}" if choices else "There is none."
    raise SeqloomError(f"unknown {what} {shown(name)}{hint} {which}")
