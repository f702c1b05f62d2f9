"""What a language model's evaluation found beyond what every report shows: where it guesses well, what it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqloom.reporting.charts.charts import Series, lines
from seqloom.reporting.charts.curves import figure
from seqloom.reporting.html.elements import Markup, element, join, user
from seqloom.reporting.html.page import folded, section, table
from seqloom.reporting.number_format import digits
from seqloom.reporting.run_facts import Record

ALONG = {
    "line": ("Along a line", "token of the line", "the first token has only the beginning, or the label, to go by"),
    "block": ("Along a block", "token of the block", "the first tokens of a block have little before them to go by"),
    "text": ("Along the text", "token of the text", "where the text was easy and where it was hard"),
}


def sections(record: Record) -> list[Markup]:
    """Those that there is something to say in."""
    return [section("Where it guesses well", places(record)), section("What it writes", written(record))]


def places(record: Record) -> Markup:
    """Nats a token, by place."""
    found = record.get("places") or {}
    if len(found.get("parts") or []) < 2:
        return Markup("")
    title, x, note = ALONG.get(found.get("along", ""), ALONG["text"])
    points = [((one["from"] + one["to"]) / 2, one["nats"]) for one in found["parts"]]
    return figure(title, lines([Series("nats a token", points, dots=True)], x=x, y="nats a token", zero=True), note)


def written(record: Record) -> Markup:
    """Samples, the prompt set off from what was written."""
    found = record.get("samples") or []
    if not found:
        return Markup("")
    novelty = (record.get("novelty") or {}).get("text")
    told = element("p", f"{novelty[0].upper()}{novelty[1:]}.") if novelty else ""
    return join(told, element("ol", *map(sample, found), class_="shown"))


def along(history: Sequence[Mapping[str, Any]], most: int = 8) -> Markup:
    """What the model wrote at some of the validations, from the first to the last."""
    found = [line for line in history if "sample" in line]
    if not found:
        return Markup("")
    chosen = found if len(found) <= most else [found[i * (len(found) - 1) // (most - 1)] for i in range(most)]
    rows = [[f"{one['step']:,}", user(one["sample"], class_="mono")] for one in chosen]
    return folded("What it wrote on the way, the same draw each time", table(["step", "sample"], rows, numeric=(0,)))


def sample(one: Mapping[str, Any]) -> Markup:
    cold = "the likeliest" if not one.get("temperature") else f"temperature {digits(one['temperature'], 1)}"
    label = join(user(one["label"]), ", ") if one.get("label") else ""
    prompt = user(one["prompt"], class_="quiet") if one.get("prompt") else ""
    head = element("div", element("small", label, cold, class_="quiet"), class_="asked")
    return element("li", head, element("pre", prompt, user(one.get("text", ""))))
