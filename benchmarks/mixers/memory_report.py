"""What was remembered, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory_tasks import TASKS
from mixer_models import KINDS

from seqloom.errors import SeqloomError
from seqloom.reporting.html.elements import Markup, element, join

Result = dict[str, Any]
Shares = dict[tuple[str, str, int], float]  # by mixer, task and length
SOLVED, FORGOTTEN, KEPT = 0.999, 0.1, 0.9  # a score that ends a length; shares: has forgotten, still remembers
LEFT, TOP, CELL, HIGH = 230, 46, 46, 21
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #333; } .task { font-weight: 600; } .cell { fill: #1f6f8b; }
.edge { fill: none; stroke: #8886; } .pale { fill: #888; } .on { fill: #fff; }
@media (prefers-color-scheme: dark) { text { fill: #ddd; } .cell { fill: #4aa3c0; } .on { fill: #111; } }
"""


def share(task: str, score: float) -> float:
    """How much of what can be known is remembered: 0 is a guess, 1 is all."""
    chance = TASKS[task].chance
    return min(1.0, max(0.0, (score - chance) / (1 - chance)))


def shares(found: Sequence[Result]) -> Shares:
    return {
        (one["mixer"], one["task"], one["length"]): share(one["task"], one["score"]) for one in found if "score" in one
    }


def reach(found: Sequence[Result], mixer: str, task: str) -> int:
    """The longest wait over which nine tenths are remembered, as at all shorter ones; 0: none."""
    best = 0
    for one in sorted(
        (one for one in found if (one["mixer"], one["task"]) == (mixer, task)), key=lambda o: o["length"]
    ):
        if "score" not in one or share(task, one["score"]) < KEPT:
            break
        best = one["length"]
    return best


def table(found: Sequence[Result]) -> str:
    """Markdown: accuracy in % of copy and recall; mean squared error of adding, where 0.167 is a guess."""
    mixers, tasks, lengths = _axes(found)
    by_place = {(one["mixer"], one["task"], one["length"]): one for one in found if "score" in one}
    head = ["mixer", "parameters", *(f"{task} {length:,}" for task in tasks for length in lengths)]
    head += [f"{task} up to" for task in tasks]
    rows = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for mixer in mixers:
        sizes = [one["parameters"] for one in found if one["mixer"] == mixer and "parameters" in one]
        cells = [KINDS[mixer].about, f"{max(sizes):,}" if sizes else ""]
        cells += [_cell(by_place, mixer, task, length) for task in tasks for length in lengths]
        cells += [f"{reach(found, mixer, task):,}" for task in tasks]
        rows.append("| " + " | ".join(cells) + " |")
    notes = (
        "",
        "Copy and recall: accuracy in %, where a guess has 12.5. Adding: mean squared error, where a guess has "
        "0.167. “up to”: the longest wait over which nine tenths are remembered. ✗: had forgotten at two shorter "
        "lengths. –: not run, for want of time. ~: cut off by the clock before its tokens were spent.",
    )
    return "\n".join([*rows, *notes])


def _cell(by_place: dict[Any, Result], mixer: str, task: str, length: int) -> str:
    one = by_place.get((mixer, task, length))
    if one is None:
        return _sign(shares(list(by_place.values())), mixer, task, length)
    text = f"{(1 - one['score']) / 6:.3f}" if task == "adding" else f"{100 * one['score']:.1f}"
    return text + (" ~" if one.get("cut") else "")


def _sign(known: Shares, mixer: str, task: str, length: int) -> str:
    """In the place of a score: whether it was not asked for since it had forgotten at two shorter lengths."""
    before = [value for (*pair, at), value in sorted(known.items()) if pair == [mixer, task] and at < length]
    return "✗" if len(before) > 1 and max(before[-2:]) < FORGOTTEN else "–"


def drawn(found: Sequence[Result]) -> Markup:
    """A panel a task: mixers from above to below, lengths from left to right; the darker, the more is remembered."""
    if not any("score" in one for one in found):
        raise SeqloomError("nothing was measured: there is nothing to draw")
    mixers, tasks, lengths = _axes(found)
    known, panel = shares(found), len(lengths) * CELL + 24
    cut = {(one["mixer"], one["task"], one["length"]) for one in found if one.get("cut")}
    parts = [
        element("text", KINDS[name].about, x=LEFT - 8, y=TOP + HIGH * n + 15, text_anchor="end")
        for n, name in enumerate(mixers)
    ]
    for number, task in enumerate(tasks):
        x = LEFT + number * panel
        parts.append(element("text", task, x=x, y=16, class_="task"))
        parts += [
            element("text", f"{length:,}", x=x + CELL * n + CELL / 2, y=38, text_anchor="middle")
            for n, length in enumerate(lengths)
        ]
        for down, name in enumerate(mixers):
            for across, length in enumerate(lengths):
                at = (name, task, length)
                text = _sign(known, *at) if at not in known else f"{100 * known[at]:.0f}{'~' if at in cut else ''}"
                parts.append(_square(known.get(at), text, x + CELL * across, TOP + HIGH * down))
    width, height = LEFT + len(tasks) * panel, TOP + HIGH * len(mixers) + 12
    label = "How much is remembered, in percent of what can be, by mixer, task and length"
    box = {"viewBox": f"0 0 {width} {height}", "xmlns": "http://www.w3.org/2000/svg", "role": "img"}
    return element("svg", element("style", Markup(STYLE)), element("title", label), *parts, **box)


def _square(value: float | None, text: str, x: float, y: float) -> Markup:
    box, place = {"x": x, "y": y, "width": CELL - 2, "height": HIGH - 2}, {"x": x + CELL / 2, "y": y + 14}
    parts = [element("rect", **box, class_="edge")]
    if value is not None:
        parts.append(element("rect", **box, class_="cell", fill_opacity=round(value, 3)))
    of = "pale" if value is None else "on" if value > 0.6 else ""
    return join(*parts, element("text", text, **place, text_anchor="middle", class_=of))


def _axes(found: Sequence[Result]) -> tuple[list[str], list[str], list[int]]:
    names, tasks = {one["mixer"] for one in found}, {one["task"] for one in found}
    lengths = sorted({one["length"] for one in found})
    return [name for name in KINDS if name in names], [task for task in TASKS if task in tasks], lengths
