"""What a language model's evaluation adds: the loss by position, and generated text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqloom.language import _
from seqloom.reporting.charts.charts import Series, lines
from seqloom.reporting.charts.curves import figure
from seqloom.reporting.html.elements import Markup, element, join, user
from seqloom.reporting.html.page import folded, section, table
from seqloom.reporting.number_format import digits, whole
from seqloom.reporting.run_facts import Record

POSITIONS = {  # title, x axis, note
    "line": ("Along a line", "token of the line", "for the first token only the start, or the label, is known"),
    "block": ("Along a block", "token of the block", "the first tokens of a block have little context"),
    "text": ("Along the text", "token of the text", "easy and hard places of the text"),
}


def sections(record: Record) -> list[Markup]:
    """Those that the record has data for."""
    return [section("Loss by position", positions(record)), section("Generated text", samples(record))]


def positions(record: Record) -> Markup:
    """Nats per token, by position."""
    found = record.get("places") or {}
    if len(found.get("parts") or []) < 2:
        return Markup("")
    title, x, note = map(_, POSITIONS.get(found.get("along", ""), POSITIONS["text"]))
    y = _("nats per token")
    points = [((one["from"] + one["to"]) / 2, one["nats"]) for one in found["parts"]]
    return figure(title, lines([Series(y, points, dots=True)], x=x, y=y, zero=True), note)


def samples(record: Record) -> Markup:
    """Samples, the prompt in another colour than the generated text."""
    found = record.get("samples") or []
    if not found:
        return Markup("")
    counts = record.get("novelty") or {}
    novelty = ""
    if counts:
        text = _(
            "Of {sampled} sampled lines {new} are not in the training data, and {distinct} are distinct.",
            **{name: whole(counts.get(name)) for name in ("sampled", "new", "distinct")},
        )
        novelty = element("p", text)
    return join(novelty, element("ol", *map(sample, found), class_="shown"))


def samples_in_training(history: Sequence[Mapping[str, Any]], most: int = 8) -> Markup:
    """A sample from each of some validations, from the first to the last."""
    found = [line for line in history if "sample" in line]
    if not found:
        return Markup("")
    chosen = found if len(found) <= most else [found[i * (len(found) - 1) // (most - 1)] for i in range(most)]
    rows = [[f"{one['step']:,}", user(one["sample"], class_="mono")] for one in chosen]
    return folded(
        _("Samples during training, all with the same seed"), table([_("step"), _("sample")], rows, numeric=(0,))
    )


def sample(one: Mapping[str, Any]) -> Markup:
    how = _("greedy")
    if one.get("temperature"):
        how = _("temperature {temperature}", temperature=digits(one["temperature"], 1))
    label = join(user(one["label"]), ", ") if one.get("label") else ""
    prompt = user(one["prompt"], class_="quiet") if one.get("prompt") else ""
    head = element("div", element("small", label, how, class_="quiet"), class_="asked")
    return element("li", head, element("pre", prompt, user(one.get("text", ""))))
