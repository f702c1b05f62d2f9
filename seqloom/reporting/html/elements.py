"""HTML and SVG out of elements. Text is escaped because it is text, not because the caller remembered to escape it."""

from __future__ import annotations

import re
from typing import Any

from seqloom import language

# What neither HTML nor XML may hold: control characters other than TAB and newline, lone surrogates, non-characters.
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_BLANKS = {"\n": "⏎", "\t": "⇥", "\r": "␍"}  # of the others, ␣
_VOID = frozenset({"meta", "br", "wbr"})


class Markup(str):
    """Text that is markup already. Only this file makes it, and the style sheet, which holds no value."""

    __slots__ = ()


def element(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """`<name attributes>children</name>`; HTML and XML both read it.

    A child that is Markup stays as it is; None is left out; anything else is text. Of attributes, `class_` is written
    `class` and `text_anchor` `text-anchor`; one that is None is left out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: Any) -> Markup:
    """Children one after the other, without an element around them."""
    return Markup("".join(child if isinstance(child, Markup) else escaped(child) for child in children if child != ""))


def fill(text: str, **values: Any) -> Markup:
    """A translated sentence with text or markup in place of its `{names}`."""
    pieces = ((literal, values[name] if name else "") for literal, name in language.parts(text))
    return join(*(part for piece in pieces for part in piece))


def user(text: Any, **attributes: Any) -> Markup:
    """Text that came with the data, isolated: one that runs from right to left does not turn its neighbours."""
    return element("bdi", visible(text), **attributes)


def visible(text: Any) -> str:
    """A text as shown: blanks alone, which nothing would show, become signs."""
    text = str(text)
    return text if text.strip() else "".join(_BLANKS.get(blank, "␣") for blank in text) or "∅"


def escaped(value: Any) -> str:
    """A value as text within an element or a quoted attribute."""
    return "" if value is None else clean(str(value)).translate(_ENTITIES)


def clean(text: str) -> str:
    """Without the characters that may not stand in a page: control characters become their pictures, others �."""
    return _FORBIDDEN.sub(lambda found: chr(0x2400 + ord(found[0])) if found[0] < " " else "\ufffd", text)
