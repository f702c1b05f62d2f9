"""Reading a page back: what a browser would make of it, as far as the standard library can tell."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

VOID = {"meta", "br", "wbr"}


class Page(HTMLParser):
    """Tags must be balanced and ids unique; keeps the text and every attribute."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.inside: list[tuple[str, str]] = []  # the innermost element, and its text
        self.broken = False  # by a place where a line may break, which is no space
        self.source = text
        self.feed(text)
        self.close()
        assert not self.open, self.open
        assert len(set(self.ids)) == len(self.ids)

    def handle_starttag(self, tag, attrs):
        self.broken = tag == "wbr"
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            before = self.texts.pop() if self.broken else ""
            self.broken = False
            self.texts.append(before + data)
            self.inside.append((self.open[-1] if self.open else "", data))

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def pictures(self) -> list[ElementTree.Element]:
        """Every SVG, read as XML."""
        return [ElementTree.fromstring(one) for one in re.findall(r"<svg.*?</svg>", self.source, re.S)]


def safe(page: Page) -> None:
    """Nothing that runs, loads or listens."""
    forbidden = {"script", "img", "iframe", "object", "embed", "link", "a", "form", "image", "use", "foreignobject"}
    assert not forbidden & set(page.tags)
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in ("href", "src", "srcset", "xlink:href", "action"), (tag, name)
        assert "url(" not in value
    assert "\x00" not in page.source
    style = page.source[page.source.index("<style>") : page.source.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    outside = page.source.replace("http://www.w3.org/2000/svg", "")
    assert "http:" not in outside
    assert "https:" not in outside
