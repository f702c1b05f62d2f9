"""Escaping: whatever a value holds, it is text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seqloom.reporting.html.elements import Markup, clean, element, join, user
from tests.reporting.html_pages import Page


def test_text_is_escaped_and_markup_is_not():
    made = element("p", "<b>&'\"", element("b", "x"), None, 3, class_="a\"b'<", data_n=4, title=None)
    assert made == '<p class="a&quot;b&#39;&lt;" data-n="4">&lt;b&gt;&amp;&#39;&quot;<b>x</b>3</p>'
    assert isinstance(made, Markup)
    assert element("br") == "<br>"
    assert join("<", Markup("<i></i>")) == "&lt;<i></i>"


@given(st.text())
def test_any_text_comes_back_as_text(text):
    page = Page(element("p", text, title=text))
    assert page.tags == ["p"]
    assert "".join(page.texts) == clean(text)
    assert page.attributes == [("p", "title", clean(text))]


def test_what_no_page_may_hold_is_shown_by_a_picture():
    assert clean("a\x00b\x1b\x7f\ud800\ufffe\tc\n") == "a␀b␛\ufffd\ufffd\ufffd\tc\n"
    clean("\ud83d").encode()


def test_user_text_is_isolated_and_can_be_seen():
    assert user("‮abc") == "<bdi>‮abc</bdi>"
    assert user("  ") == "<bdi>␣␣</bdi>"
    assert user("\n \t\r\u3000") == "<bdi>⏎␣⇥␍␣</bdi>"
    assert user("") == "<bdi>∅</bdi>"
