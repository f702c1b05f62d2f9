"""Charts are XML whatever they are given, and put things where they belong."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.reporting.charts.charts import HEIGHT, WIDTH, Bar, Series, bars, cropped, lines, round_ticks, thinned

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
    assert round_ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert round_ticks(3, 3) == [3]
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


def test_long_tokens_are_cropped():
    assert cropped("a" * 20, 5) == "aaaa…"
    assert cropped("中文字", 5) == "中文…"
    assert cropped("abc", 5) == "abc"


def test_a_narrow_range_tells_its_ticks_apart():
    shown = texts(one([(0, 2.8791), (10, 2.8807)]))
    ticks = [text for text in shown if text.startswith(("2.88", "2.87"))]
    assert len(ticks) >= 3
    assert len(set(ticks)) == len(ticks)
    assert len({len(text) for text in ticks}) == 1


@pytest.mark.parametrize(("low", "high"), [(3.73906, 3.73974), (92.79, 93.1), (0.2, 9.7), (-3.2, 4.1), (1.06, 1.06)])
def test_an_axis_begins_and_ends_at_a_round_number(low, high):
    """Not at a value of its own: the lowest line of the frame has a number."""
    tree = parsed(one([(0, low), (10, high)]))
    grid = [float(e.get("y1", "")) for e in tree.iter() if e.get("class") == "grid"]
    [floor] = {float(e.get("y1", "")) for e in tree.iter() if e.get("class") == "axis" and e.get("y1") == e.get("y2")}
    assert max(grid) == pytest.approx(floor)
    assert min(grid) == pytest.approx(26)


@pytest.mark.parametrize("points", [[(0, 12.0), (10, 100.0)], [(0, 100.0), (10, 100.0)], [(0, 0.0), (10, 100.0)]])
def test_no_axis_of_shares_goes_beyond_all(points):
    heights = [
        float(e.text) for e in parsed(one(points)).iter() if e.get("text-anchor") == "end" and e.text[0].isdigit()
    ]
    assert max(heights) == 100


def test_numbers_of_the_y_axis_have_room():
    tree = parsed(one([(0, 123_456.1), (10, 123_456.9)]))
    ends = [(float(e.get("x", "")), len(e.text or "")) for e in tree.iter() if e.get("text-anchor") == "end"]
    assert all(x - 6.6 * count >= 0 for x, count in ends)


@pytest.mark.parametrize("value", [0.0, 0.3])
def test_no_axis_is_below_zero_unless_a_value_is(value):
    assert not [text for text in texts(one([(0, value), (10, value)])) if text.startswith("-")]
    assert not [text for text in texts(one([(0, value), (10, 90.0)])) if text.startswith("-")]
    assert "-1.0" in texts(one([(0, -1.5), (10, value)]))


def test_the_axis_of_steps_ends_where_the_run_does():
    shown = texts(one([(50, 1.0)], until=60))
    assert [text for text in shown if text.isdigit()] == ["0", "20", "40", "60"]
    dot = next(e for e in parsed(one([(50, 1.0)], until=60)).iter() if e.tag.endswith("circle"))
    assert float(dot.get("cx", "")) < WIDTH - 40
    last = next(e for e in parsed(one([(50, 1.0)], until=100_000)).iter() if e.text == "100 k")
    assert float(last.get("x", "")) + 3.3 * len("100 k") <= WIDTH
