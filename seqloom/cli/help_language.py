"""`--lang`: the language of help and pages, and help translated where it is shown.

Help texts are written in English where the options are. Here the tree of commands is walked once, and every text that
the table of the language has is replaced. Nothing of this is loaded or done for English.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any

import typer

from seqloom import language
from seqloom.cli import completion
from seqloom.language import _

HELP = "Language of help and pages: en or zh (default: by SEQLOOM_LANG, or the locale). Errors and logs are English."
PAGES = ("train", "report", "demo", "import")  # commands that write pages
# Words of typer's own, by the names of its constants; one that another version lacks is left out.
TYPERS = {
    "ARGUMENTS_PANEL_TITLE": "Arguments",
    "OPTIONS_PANEL_TITLE": "Options",
    "COMMANDS_PANEL_TITLE": "Commands",
    "DEFAULT_STRING": "[default: {}]",
    "REQUIRED_LONG_STRING": "[required]",
}
USAGE = ("Usage:", "[OPTIONS]", "COMMAND [ARGS]...")
NAMES = re.compile(r"(^|(?<=: ))[a-z0-9_-]+(, [a-z0-9_-]+){3,}(?=\.?$| \()")  # of a table, listed in a help text
HELP_OPTION = "Show this message and exit."


def _check(value: str | None) -> str | None:
    return None if value is None else language.checked(value, "--lang")


LANG = partial(typer.Option, "--lang", callback=_check, help=HELP, autocompletion=completion.offer(*language.LANGUAGES))


@contextmanager
def chosen(words: Sequence[str]) -> Iterator[None]:
    """The language of a command line, for itself and for processes that it starts. The words are looked through before
    they are parsed, since `--help` may stand before `--lang`."""
    asked = None
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == "--":
            break
        if word.startswith("--lang="):
            asked = word.removeprefix("--lang=")
        elif word == "--lang" and following:
            asked = following
    before = os.environ.get(language.VARIABLE)
    name = language.preferred(os.environ) if asked is None else language.checked(asked, "--lang")
    os.environ[language.VARIABLE] = name
    try:
        with language.using(name), _typers_words():
            yield
    finally:
        if before is None:
            del os.environ[language.VARIABLE]
        else:
            os.environ[language.VARIABLE] = before


def command(app: typer.Typer) -> Any:
    """The tree of commands of an app, its help in the language of this context. Every command takes `--lang`, as the
    root does; those that write pages show it."""
    tree: Any = typer.main.get_command(app)
    option = next(one for one in tree.params if "--lang" in one.opts)
    for one in walk(tree):
        if one is not tree:
            own = copy(option)
            own.expose_value, own.hidden = False, one.name not in PAGES
            panels = [
                getattr(param, "rich_help_panel", None) for param in one.params if not getattr(param, "hidden", False)
            ]
            own.rich_help_panel = panels[-1] if panels else None
            one.params.append(own)
    if language.language() != "en":
        for owner, attribute, text in texts(tree):
            setattr(owner, attribute, "\n\n".join(map(_translated, paragraphs(text))))
        for one in walk(tree):
            _translate_usage(one)
    return tree


def walk(tree: Any) -> Iterator[Any]:
    """A command and all commands below it."""
    yield tree
    for below in getattr(tree, "commands", {}).values():
        yield from walk(below)


def texts(tree: Any) -> Iterator[tuple[Any, str, str]]:
    """Every help text of a tree of commands: the object that has it, the attribute, the English text."""
    for one in walk(tree):
        for owner in (one, *one.params):
            for attribute in ("help", "short_help", "epilog", "rich_help_panel"):
                text = getattr(owner, attribute, None)
                if isinstance(text, str) and text and not getattr(owner, "hidden", False):
                    yield owner, attribute, text


def paragraphs(text: str) -> list[str]:
    """A help text by paragraphs, each on one line: the keys of the table."""
    return [" ".join(part.split()) for part in text.split("\n\n")]


def key(paragraph: str) -> str:
    """The entry of the table for a paragraph. The names of a table are left out of it, so that a new one is no new
    text."""
    return NAMES.sub("{names}", paragraph)


def _translated(paragraph: str) -> str:
    found = NAMES.search(paragraph)
    between = _("{names}, {name}", names="", name="")
    return _(key(paragraph), names=found[0].replace(", ", between)) if found else _(paragraph)


def _translate_usage(one: Any) -> None:
    """The usage line and the text of --help, which a command makes when it is asked for help."""
    usage, help_option = one.get_usage, one.get_help_option

    def translated_usage(ctx: Any) -> str:
        text = usage(ctx)
        for word in USAGE:
            text = text.replace(word, _(word))
        return text

    def translated_help_option(ctx: Any) -> Any:
        if (option := help_option(ctx)) is not None:
            option.help = _(HELP_OPTION)
        return option

    one.get_usage, one.get_help_option = translated_usage, translated_help_option


@contextmanager
def _typers_words() -> Iterator[None]:
    """Titles of typer's panels and what stands behind an option, which are constants of a module of its."""
    if language.language() == "en":
        yield
        return
    from typer import rich_utils

    make: Callable[..., Any] | None = getattr(rich_utils, "_make_rich_text", None)

    def with_chinese_lines(**given: Any) -> Any:
        from rich.text import Text

        from seqloom.cli.chinese_lines import chinese

        text = make(**given) if make else None
        return chinese(text) if isinstance(text, Text) else text

    changed: dict[str, Any] = {name: _(text) for name, text in TYPERS.items() if hasattr(rich_utils, name)}
    changed |= {"_make_rich_text": with_chinese_lines} if make else {}
    before = {name: getattr(rich_utils, name) for name in changed}
    try:
        for name, value in changed.items():
            setattr(rich_utils, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(rich_utils, name, value)
