"""Heat maps are XML whatever they are given, dark where the weight is, and cut neither labels nor columns."""

from __future__ import annotations

import pytest

from seqloom.reporting.charts.heatmap import HALF, LARGEST, SMALLEST, heatmap, length
from tests.reporting.charts.test_charts import HOSTILE, NAN, parsed, texts


def test_a_heat_map_is_dark_where_the_weight_is():
    tree = parsed(heatmap(["a", "b"], ["x", "y", "z"], [[0.9, 0.1, 0.0], [0.0, None, NAN]], what="attention"))
    cells = [e for e in tree.iter("{http://www.w3.org/2000/svg}rect") if e.get("fill-opacity")]
    assert [float(cell.get("fill-opacity", "")) for cell in cells] == [1.0, pytest.approx(0.164, abs=0.01)]
    assert float(cells[0].get("x", "")) < float(cells[1].get("x", ""))
    assert "Nothing" in heatmap(["a"], ["b"], [[0]], what="attention")
    assert "Nothing" in heatmap([], [], [], what="attention")


def test_hostile_tokens_are_text_in_a_picture():
    svg = heatmap(HOSTILE, HOSTILE, [[1.0] * len(HOSTILE)] * len(HOSTILE), what="</svg>")
    shown = texts(svg)
    assert any("</svg>" in text for text in shown)
    assert any("<script>ale" in text for text in shown)
    assert not any(e.tag.endswith("script") for e in parsed(svg).iter())


def drawn(columns: list[str], rows: list[str] | None = None) -> tuple[float, float, float]:
    """The width of the picture, the size of its cells, and the room above them."""
    rows = rows or ["a"]
    tree = parsed(heatmap(rows, columns, [[1.0] * len(columns)] * len(rows), what="attention"))
    frame = next(e for e in tree.iter() if e.get("class") == "frame")
    return float(tree.get("width", "")), float(frame.get("width", "")) / len(columns), float(frame.get("y", ""))


# Their lengths in Liberation Sans at 12 units, as Chromium measures them.
@pytest.mark.parametrize(("label", "real"), [("NOUN", 35.3), ("PROPN", 42.7), ("Japanese", 52.0), ("<eos>", 33.4)])
def test_turned_labels_have_room(label, real):
    assert length(label) >= real
    assert drawn([label, "X"])[2] >= real + 6
    assert float(parsed(heatmap([label], ["x"], [[1.0]], what="")).get("width", "")) >= real + 6 + LARGEST


def test_only_labels_that_do_not_fit_are_turned():
    tree = parsed(heatmap(["a"], ["上", "海", "t", "<eos>"], [[1.0] * 4], what="attention"))
    assert [e.text for e in tree.iter() if e.get("transform")] == ["<eos>"]


def test_a_long_source_has_smaller_cells_before_it_scrolls():
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    assert drawn([*letters[:10]])[1] == LARGEST
    width, size, _ = drawn([*letters[:25]])
    assert width <= HALF
    assert SMALLEST < size < LARGEST
    assert drawn([*letters, *letters])[1] == SMALLEST
    svg = heatmap(["a"], [*letters], [[1.0] * len(letters)], what="attention")
    assert "min-width: " in svg  # a narrow window shrinks it only so far
