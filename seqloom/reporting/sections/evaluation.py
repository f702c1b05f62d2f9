"""What every evaluation shows: scores, errors by length, examples with their errors marked, confusion, attention."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from seqloom.language import _, amount
from seqloom.reporting.charts.charts import Bar, bars
from seqloom.reporting.charts.curves import figure
from seqloom.reporting.charts.heatmap import heatmap
from seqloom.reporting.html.elements import Markup, element, fill, join, user, visible
from seqloom.reporting.html.page import folded, table
from seqloom.reporting.number_format import digits, finite, short, whole
from seqloom.reporting.run_facts import HELD_OUT, Record, metric
from seqloom.tasks.about import Wording

MOST_TOKENS = 300  # of one example
LISTS = {  # of examples, in this order; those of `random` and `worst` are open
    "random": "A random selection",
    "worst": "The worst predictions",
    "best": "The best predictions",
}


def score_table(record: Record, words: Wording) -> Markup:
    """Every score with its interval and its signature: what another program needs to compute the same number. Of
    pronunciations the word error rate is the share of words with any error, as in papers, and `wer` is `per` again."""
    rows, values = [], record.get("metrics") or {}
    pronunciations = bool(record.get("pronunciations"))
    for name, value in values.items():
        if name == "wer" and pronunciations and value == values.get("per"):
            continue
        about = metric(name)
        counts = words.right if name == "accuracy" else about.about
        title = join(_(about.title), element("small", _(counts) if counts else ""))
        signature = (record.get("signature") or {}).get(name, "")
        rows.append(
            [title, score_text(name, value), interval_text(record, name), element("code", *_breakable(signature))]
        )
        if name == "exact_match" and pronunciations and finite(value) is not None:
            title = join(_("word error rate"), element("small", _("words with any error: 100 − exact match")))
            rows.append([title, score_text("wer", 100 - value), "", ""])
    return table(["", _("score"), _("95 % interval"), _("signature")], rows, numeric=(1, 2))


def _breakable(signature: str) -> list[Any]:
    """A signature that a narrow page breaks only behind a bar."""
    first, *rest = re.split(r"(?<=\|)", signature)
    return [first, *(part for text in rest for part in (element("wbr"), text))]


def score_text(name: str, value: Any) -> str:
    """A score with the digits of its metric: 12.35 %, 3.425, 30.71; a dash if it is missing."""
    about = metric(name)
    return digits(value, about.places) + (" %" if about.unit == "%" and finite(value) is not None else "")


def metric_phrase(name: str) -> str:
    """What a metric is called within a sentence."""
    return _({"exact_match": "share of exact matches"}.get(name, metric(name).title))


def interval_text(record: Record, name: str) -> str:
    """An interval: 11.05 … 12.12; nothing where there is none."""
    ends = ((record.get("intervals") or {}).get(name) or (None, None))[:2]
    return "" if None in map(finite, ends) else " … ".join(digits(end, metric(name).places) for end in ends)


def method_text(record: Record) -> str:
    """How the scores were measured, in a sentence: 200 distinct sources of 700, greedy; 400 a second on cpu."""
    count, available = record.get("count"), record.get("available")
    text = amount(count, record.get("unit", "distinct sources"))
    if available and count and available > count:
        text = _("{examples} of {available}, chosen by a hash", examples=text, available=whole(available))
    if search := search_text(record):
        text = _("{examples}, {search}", examples=text, search=search)
    if finite(record.get("per_second")) is not None:
        text = _("{examples}; {rate} per second", examples=text, rate=whole(record.get("per_second")))
    if record.get("device"):
        text = _("{examples} on {device}", examples=text, device=record["device"])
    return _("{sentence}.", sentence=text)


def search_text(record: Record) -> str:
    """The search: greedy, beam 4, sampled; nothing where there is none, as for a label."""
    search = record.get("search")
    if search is None:
        return ""
    if search.get("sample"):
        return _("sampled at temperature {temperature}", temperature=search.get("temperature"))
    beam = search.get("beam", 1)
    return _("greedy") if beam == 1 else _("beam {width}", width=beam)


def by_length(record: Record) -> Markup:
    """Token error rate by the length of the source: longer sources are usually harder."""
    found = record.get("lengths") or []
    if not found:
        return Markup("")
    rows = [
        Bar(
            length_range(one),
            one.get("error_rate"),
            tuple(one.get("interval") or ()) or None,
            f"n = {whole(one['count'])}",
        )
        for one in found
    ]
    return figure(_("By length of the source"), bars(rows, unit=_("token error rate, %")), _("tokens of the source"))


def length_range(one: Mapping[str, Any]) -> str:
    low, high = one["shortest"], one["longest"]
    return f"{low}" if low == high else f"{low} – {high}"


def examples(record: Record) -> Markup:
    """Lists of examples that can be folded."""
    chosen = record.get("examples") or {}
    return join(
        *(
            folded(
                _(title), element("ol", *(example(one) for one in chosen[kind]), class_="shown"), opened=kind != "best"
            )
            for kind, title in LISTS.items()
            if chosen.get(kind)
        )
    )


def example(one: Mapping[str, Any]) -> Markup:
    source = "" if one.get("words") else user(one.get("source", ""))  # else each word stands above its tag
    head = element("div", source, element("small", remark(one), class_="quiet"), class_="asked")
    others = [part for text in (one.get("references") or [])[1:] for part in (user(text), "; ")][:-1]
    also = element("small", fill("other references: {texts}", texts=join(*others)), class_="quiet") if others else None
    return element("li", head, prediction(one), also)


def remark(one: Mapping[str, Any]) -> Markup:
    """How far off the prediction is, and how confident the model was."""
    if one.get("off") is not None:  # a number, which has no confidence
        return element("span", _("off by {number}", number=short(one["off"])))
    correct, text = _verdict(one)
    verdict = element("span", text, class_="right" if correct else "wrong")
    return fill("{verdict}, confidence {confidence}", verdict=verdict, confidence=digits(one.get("confidence")))


def _verdict(one: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether the prediction is correct, and in words."""
    errors = int(one["wrong"]) if "wrong" in one else one.get("edits") or 0
    if not errors:
        return True, _("correct")
    if "wrong" in one:  # of a label
        return False, _("wrong")
    if one.get("words"):
        return False, _("{count} of {tags} wrong", count=errors, tags=amount(len(one["words"]), "tags"))
    return False, amount(errors, "edits")


def prediction(one: Mapping[str, Any]) -> Markup:
    """Prediction beside reference: tags under their words, labels and numbers as a whole, other texts by token."""
    pairs = one.get("pairs")
    if pairs is not None:
        return tagged(one["words"], pairs) if one.get("words") else aligned(pairs)
    reference = user((one.get("references") or [""])[0])
    if not one.get("wrong") and not one.get("off"):
        return element("div", fill("predicted {label}", label=reference))
    made = user(one.get("prediction", ""), class_="wrong" if one.get("wrong") else None)
    return element("div", fill("predicted {label}; reference {reference}", label=made, reference=reference))


def tagged(words: Sequence[str], pairs: Sequence[Sequence[str]]) -> Markup:
    """Under each word its tag if it is correct; else the reference and, marked, the prediction."""
    wrong = [reference != predicted for reference, predicted in pairs]
    columns = [
        element("span", *map(user, (word, *dict.fromkeys(pair))), class_="pair tag unlike" if unlike else "pair tag")
        for word, pair, unlike in zip(words, pairs, wrong, strict=True)
    ]
    return _beside([_("word"), _("reference"), _("prediction")] if any(wrong) else [_("word"), _("tag")], columns)


def aligned(pairs: Sequence[Sequence[str | None]]) -> Markup:
    """Reference above prediction, a column a token; one line where they are equal throughout."""
    same = all(reference == predicted for reference, predicted in pairs)
    names = [_("prediction")] if same else [_("reference"), _("prediction")]
    return _beside(names, [_pair(reference, predicted, same) for reference, predicted in pairs])


def _beside(names: Sequence[str], columns: Sequence[Markup]) -> Markup:
    """The columns of an example, at most MOST_TOKENS of them, behind the names of their lines."""
    more = len(columns) - MOST_TOKENS
    rest = element("span", _("… {count} more", count=f"{more:,}"), class_="quiet") if more > 0 else ""
    labels = element("div", *(element("span", name) for name in names), class_="names")
    return element("div", labels, element("div", *columns[:MOST_TOKENS], rest, class_="tokens"), class_="sides")


def _pair(reference: str | None, predicted: str | None, same: bool) -> Markup:
    if same:
        return element("span", user(predicted), class_="pair")
    sides = [
        element("bdi", "·", class_="gap") if token is None else element("bdi", visible(token))
        for token in (reference, predicted)
    ]
    return element("span", *sides, class_="pair" if reference == predicted else "pair unlike")


def attention(record: Record) -> Markup:
    """Where the model looked while it wrote one of the held-out examples."""
    found = record.get("attention")
    if not found:
        return Markup("")
    layer, heads = found.get("layer", ""), found.get("heads", 1)
    drawn = heatmap(found["target"], found["source"], found["weights"], what=_("attention of {layer}", layer=layer))
    most = digits(max((finite(weight) or 0.0 for row in found["weights"] for weight in row), default=0.0))
    note = _("rows: output; columns: source; darkest: {weight}; layer {layer}", weight=most, layer=layer)
    note = _("{note}; mean over {heads} heads", note=note, heads=heads) if heads > 1 else note
    return figure(_("Attention map"), element("div", drawn, class_="scroll"), note)


def held_out(name: str) -> str:
    return _(HELD_OUT[name]) if name in HELD_OUT else name
