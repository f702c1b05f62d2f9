"""Charts are XML whatever they are given, and put things where they belong."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.reporting.charts import HEIGHT, WIDTH, Bar, Series, bars, cropped, lines, nice, thinned
from seqloom.reporting.heat import heat

NAN, INF = math.nan, math.inf
HOSTILE = ["</svg>", "<script>alert(1)</script>", "\"&'", "]]>", "‮שלום", "a\x00b", "", " ", "\ud800"]


def parsed(svg: str) -> ElementTree.Element:
    tree = ElementTree.fromstring(svg)
    svg.encode()
    assert "nan" not in svg
    assert "inf" not in svg
    return tree


def texts(svg: str) -> list[str]:
    return ["".join(one.itertext()) for one in parsed(svg).iter() if one.tag.endswith("text")]


def one(points, **keywords) -> str:
    return lines([Series("training", points)], x="step", y="loss", **keywords)


@pytest.mark.parametrize("points", [[], [(1, None)], [(1, NAN), (2, INF)], [(None, 3)], [("x", "y")]])
def test_nothing_to_draw_is_a_word(points):
    assert "<svg" not in one(points)
    assert "Nothing to draw" in one(points)


@pytest.mark.parametrize(
    "points",
    [
        [(5, 2.0)],
        [(5, 0.0)],
        [(0, -3.0)],
        [(1, 2.0), (2, 2.0)],
        [(1, 1.0), (2, NAN), (3, 2.0), (4, INF), (5, None), (6, 3.0)],
        [(1, 1e-300), (2, 1e300)],
        [(1, 1e15), (2, 1e15 + 1)],
        [(1, -1.7e308), (2, 1.7e308), (3, 1.0)],
    ],
)
@pytest.mark.parametrize("keywords", [{}, {"zero": True}, {"log": True}])
def test_odd_histories_do_not_break_a_chart(points, keywords):
    parsed(one(points, **keywords))


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats() | st.none()), max_size=12), st.booleans(), st.booleans())
def test_any_history_is_drawn_within_the_picture(points, zero, log):
    svg = one(sorted(points, key=lambda p: p[0]), zero=zero, log=log)
    if "<svg" in svg:
        for circle in parsed(svg).iter("{http://www.w3.org/2000/svg}circle"):
            assert 0 <= float(circle.get("cx", "")) <= WIDTH
            assert 0 <= float(circle.get("cy", "")) <= HEIGHT


def test_a_line_is_lifted_over_a_gap_and_a_lone_point_is_a_dot():
    svg = one([(1, 1.0), (2, 2.0), (3, None), (4, 1.5)])
    path = next(e.get("d", "") for e in parsed(svg).iter() if e.get("class") == "line s0")
    assert path.count("M") == 2
    assert path.count("L") == 1
    assert svg.count("<circle") == 1


def test_up_is_more_and_right_is_later():
    tree = parsed(lines([Series("a", [(0, 1.0), (10, 5.0)], dots=True)], x="step", y="score"))
    (x1, y1), (x2, y2) = ((float(c.get("cx")), float(c.get("cy"))) for c in tree.iter() if c.tag.endswith("circle"))
    assert x2 > x1
    assert y2 < y1


def test_axes_have_numbers_units_and_round_ticks():
    shown = texts(one([(0, 0.0), (1000, 4.0)]))
    assert {"step", "loss", "0", "1", "2", "3", "4", "200", "1 k"} <= set(shown)
    assert nice(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert nice(3, 3) == [3]
    assert "loss (log scale)" in texts(one([(0, 0.001), (1, 10.0)], log=True))


def test_a_long_history_is_thinned_and_keeps_its_mean():
    points = [(n, float(n % 7)) for n in range(70_000)]
    kept = thinned(points)
    assert len(kept) <= 400
    assert abs(sum(y for _, y in kept) / len(kept) - 3.0) < 0.05
    assert len(one(points)) < 20_000


def test_bars():
    rows = [Bar("2 – 4", 10.0, (8.0, 12.0), "n = 5"), Bar("none", None), Bar("not", NAN, (NAN, INF)), Bar("0", 0.0)]
    shown = texts(bars(rows, unit="error, %"))
    assert {"2 – 4", "10.0", "n = 5", "error, %"} <= set(shown)
    assert "Nothing" in bars([], unit="error")
    assert "Nothing" in bars([Bar("a", None)], unit="error")
    parsed(bars([Bar("a", 0.0)], unit="error"))
    parsed(bars([Bar(text, 1.0) for text in HOSTILE], unit="error"))


def test_a_heat_map_is_dark_where_the_weight_is():
    tree = parsed(heat(["a", "b"], ["x", "y", "z"], [[0.9, 0.1, 0.0], [0.0, None, NAN]], what="attention"))
    cells = [e for e in tree.iter("{http://www.w3.org/2000/svg}rect") if e.get("fill-opacity")]
    assert [float(cell.get("fill-opacity", "")) for cell in cells] == [1.0, pytest.approx(0.164, abs=0.01)]
    assert float(cells[0].get("x", "")) < float(cells[1].get("x", ""))
    assert "Nothing" in heat(["a"], ["b"], [[0]], what="attention")
    assert "Nothing" in heat([], [], [], what="attention")


def test_hostile_tokens_are_text_in_a_picture():
    svg = heat(HOSTILE, HOSTILE, [[1.0] * len(HOSTILE)] * len(HOSTILE), what="</svg>")
    shown = texts(svg)
    assert any("</svg>" in text for text in shown)
    assert any("<script>ale" in text for text in shown)
    assert not any(e.tag.endswith("script") for e in parsed(svg).iter())


def test_long_tokens_are_cropped():
    assert cropped("a" * 20, 5) == "aaaa…"
    assert cropped("中文字", 5) == "中文…"
    assert cropped("abc", 5) == "abc"
