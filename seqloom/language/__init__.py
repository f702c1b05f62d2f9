"""The language that help and reports are written in: English, or a table from the English text to another.

A table is one JSON file a language, its entries by where they appear; it is read only when its language is asked for.
Error messages, logs and what stands in files stay English, so that they can be searched for.
"""

from __future__ import annotations

import os
import string
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from seqloom.documents import read_json
from seqloom.errors import known, setting_errors
from seqloom.plural import counted

LANGUAGES = {"en": "en", "zh": "zh-CN"}  # and what HTML calls them
VARIABLE = "SEQLOOM_LANG"
LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")  # the first that is set decides
_chosen: ContextVar[str | None] = ContextVar("language", default=None)


def language() -> str:
    """The language of this context: the one it was given by `using`, else that of the environment."""
    return _chosen.get() or preferred(os.environ)


def preferred(environment: Mapping[str, str]) -> str:
    """By SEQLOOM_LANG, else by the locale; a locale that there is no table for is English."""
    if wanted := environment.get(VARIABLE):
        return checked(wanted, VARIABLE)
    locale = next((environment[name] for name in LOCALE if environment.get(name)), "")
    return name if (name := _short(locale)) in LANGUAGES else "en"


def checked(name: str, given_by: str) -> str:
    """A language by any of its names (zh, zh_CN, zh_CN.UTF-8); a SettingError for one that there is no table for."""
    with setting_errors(given_by):
        return short if (short := _short(name)) in LANGUAGES else known(name, LANGUAGES, "language")


def _short(name: str) -> str:
    return name.replace("-", "_").partition("_")[0].partition(".")[0].lower()


@contextmanager
def using(name: str) -> Iterator[None]:
    """Everything is written in this language meanwhile."""
    before = _chosen.set(checked(name, "language"))
    try:
        yield
    finally:
        _chosen.reset(before)


def tag() -> str:
    """The language as HTML wants it."""
    return LANGUAGES[language()]


def _(text: str, /, **values: Any) -> str:
    """`text` in the language of this context, `{names}` in it replaced by `values`. English where it has no entry."""
    found = table(language()).get(text, text)
    return found.format(**values) if values else found


def amount(count: int | None, unit: str) -> str:
    """1 pair, 1,234 pairs, in the language of this context. `unit` is the English plural."""
    form = "{count} " + unit
    found = table(language()).get(form)
    return counted(count, unit) if found is None else found.format(count="–" if count is None else f"{count:,}")


def parts(text: str) -> list[tuple[str, str | None]]:
    """A translated text in pieces: (literal text, name of the value behind it or None)."""
    return [(literal, name) for literal, name, *_rest in string.Formatter().parse(_(text))]


@cache
def table(name: str) -> dict[str, str]:
    """All entries of a language, whatever they are for; none for English, which the texts are written in."""
    if name == "en":
        return {}
    sections = read_json(Path(__file__).with_name(f"{name}.json"))
    return {english: other for entries in sections.values() for english, other in entries.items()}
