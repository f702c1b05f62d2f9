"""A whole page, and the blocks that pages are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqloom.language import _, tag
from seqloom.reporting.html.elements import Markup, element, join, user
from seqloom.reporting.html.style import style_sheet
from seqloom.reporting.number_format import NONE
from seqloom.version import __version__

# No script, no request of any kind: pages show texts from files of others.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
GENERATOR = "seqloom"  # marks a file as a report of Seqloom


def page(title: str, *parts: Markup) -> str:
    """The text of one self-contained file."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content=f"{GENERATOR} {__version__}"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", style_sheet()),
    )
    made = _("Made by Seqloom {version}. This page needs no network and runs no script.", version=__version__)
    body = element("body", element("main", *parts, element("footer", made)))
    return f"<!doctype html>\n{element('html', head, body, lang=tag())}\n"


def section(title: str, *parts: Any) -> Markup:
    """A heading and what stands under it; nothing where there is nothing. The anchor is the English title, so that
    links hold in every language."""
    body = join(*parts)
    if not body:
        return Markup("")
    return element("section", element("h2", _(title)), body, id=title.lower().replace(" ", "-"))


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], numeric: Sequence[int] = ()) -> Markup:
    """A table that scrolls sideways within itself rather than widening the page. The first column names the row.

    A cell is text or markup; `numeric` says which columns are aligned to the right. A column of which nothing is
    known is left out.
    """
    used = [n for n in range(len(rows[0])) if n == 0 or any(row[n] not in (NONE, "") for row in rows)] if rows else []

    def cell(name: str, place: int, content: Any, **attributes: Any) -> Markup:
        return element(name, content, class_="n" if place in numeric else None, **attributes)

    top = [cell("th", place, head[place], scope="col") for place in used] if head else []
    body = [element("tr", *(cell("td" if place else "th", place, row[place]) for place in used)) for row in rows]
    inner = [element("thead", element("tr", *top))] if head else []
    # Focusable, so that the keys scroll it too.
    return element("div", element("table", *inner, element("tbody", *body)), class_="scroll", tabindex="0")


def figures(entries: Sequence[tuple[str, Any, Any]]) -> Markup:
    """The few numbers that a reader looks for first: (number, name, remark)."""
    parts = [
        element("div", element("b", number), element("span", name), element("span", remark), class_="big")
        for number, name, remark in entries
    ]
    return element("div", *parts, class_="figures")


def folded(title: str, *parts: Any, opened: bool = False) -> Markup:
    return element("details", element("summary", title), *parts, open="" if opened else None)


def code(text: str) -> Markup:
    return element("pre", user(text))


def warning(*parts: Any) -> Markup:
    return element("div", *parts, class_="warning", role="note")
