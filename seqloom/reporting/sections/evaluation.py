"""What an evaluation found: scores, errors by length, examples with unlike tokens marked, confusion, attention."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from seqloom.plural import counted
from seqloom.reporting.charts.charts import Bar, bars
from seqloom.reporting.charts.curves import figure
from seqloom.reporting.charts.heatmap import heat
from seqloom.reporting.html.elements import Markup, element, join, user, visible
from seqloom.reporting.html.page import folded, table
from seqloom.reporting.number_format import digits, finite, short, whole
from seqloom.reporting.run_facts import HELD_OUT, Record, metric
from seqloom.reporting.task_words import Wording

MOST_TOKENS = 300  # of one example
KINDS = {
    "random": "Some at random",
    "worst": "The worst",
    "best": "The best",
}


def score_table(record: Record, words: Wording) -> Markup:
    """Every score with its interval and what another needs in order to compute the same number."""
    rows = []
    for name, value in (record.get("metrics") or {}).items():
        about = metric(name)
        title = join(about.title, element("small", words.right if name == "accuracy" else about.about))
        signature = (record.get("signature") or {}).get(name, "")
        rows.append([title, shown(name, value), spread(record, name), element("code", *_broken(signature))])
    return table(["", "score", "95 % interval", "signature"], rows, numeric=(1, 2))


def _broken(signature: str) -> list[Any]:
    """A narrow page may break it behind a bar, and nowhere else."""
    first, *rest = re.split(r"(?<=\|)", signature)
    return [first, *(part for text in rest for part in (element("wbr"), text))]


def shown(name: str, value: Any) -> str:
    """A score with as many digits as its metric has everywhere: 12.35 %, 3.425 nats, 30.71; a dash if it is missing."""
    about = metric(name)
    return digits(value, about.places) + (" %" if about.unit == "%" and finite(value) is not None else "")


def spoken(name: str) -> str:
    """What a metric is called within a sentence."""
    return {"exact_match": "share of predictions all right"}.get(name, metric(name).title)


def spread(record: Record, name: str) -> str:
    """11.05 … 12.12; nothing where there is no interval."""
    ends = ((record.get("intervals") or {}).get(name) or (None, None))[:2]
    return "" if None in map(finite, ends) else " … ".join(digits(end, metric(name).places) for end in ends)


def told(record: Record) -> str:
    """How it was measured, in a sentence."""
    count, available = record.get("count"), record.get("available")
    some = f" of {whole(available)}, chosen by a hash" if available and count and available > count else ""
    rate = record.get("per_second")
    speed = f"; {whole(rate)} a second" if finite(rate) is not None else ""
    device = f" on {record['device']}" if record.get("device") else ""
    searched = f", {how(record)}" if how(record) else ""
    return f"{counted(count, record.get('unit', 'distinct sources'))}{some}{searched}{speed}{device}."


def how(record: Record) -> str:
    """By what search; nothing where there is nothing to search, as for a label."""
    search = record.get("search")
    if search is None:
        return ""
    if search.get("sample"):
        return f"sampled at temperature {search.get('temperature')}"
    beam = search.get("beam", 1)
    return "greedy" if beam == 1 else f"beam {beam}"


def by_length(record: Record) -> Markup:
    """Longer sources are usually harder; how much, is the model's character."""
    found = record.get("lengths") or []
    if not found:
        return Markup("")
    rows = [
        Bar(_range(one), one.get("error_rate"), tuple(one.get("interval") or ()) or None, f"n = {whole(one['count'])}")
        for one in found
    ]
    return figure("By length of the source", bars(rows, unit="token error rate, %"), "tokens of the source")


def _range(one: Mapping[str, Any]) -> str:
    low, high = one["shortest"], one["longest"]
    return f"{low}" if low == high else f"{low} – {high}"


def examples(record: Record) -> Markup:
    """Three lists that can be folded; what a reader learns most from is open: some at random, and the worst."""
    chosen = record.get("examples") or {}
    return join(
        *(
            folded(title, element("ol", *(example(one) for one in chosen[kind]), class_="shown"), opened=kind != "best")
            for kind, title in KINDS.items()
            if chosen.get(kind)
        )
    )


def example(one: Mapping[str, Any]) -> Markup:
    asked = "" if one.get("words") else user(one.get("source", ""))  # else each word stands above its tag
    head = element("div", asked, element("small", remark(one), class_="quiet"), class_="asked")
    others = (one.get("references") or [])[1:]
    also = element("small", "other references: ", *_listed(others), class_="quiet") if others else None
    return element("li", head, answer(one), also)


def remark(one: Mapping[str, Any]) -> Markup:
    """How far off, and how sure."""
    if one.get("off") is not None:  # a number, of which nobody can say how sure
        return element("span", f"off by {short(one['off'])}")
    right, how_far = _judged(one)
    told = element("span", how_far, class_="right" if right else "wrong")
    return join(told, f", confidence {digits(one.get('confidence'))}")


def _judged(one: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether it is right, and in words."""
    if "wrong" in one:  # a label, which is right or not
        return not one["wrong"], "wrong" if one["wrong"] else "right"
    count = one.get("edits") or 0
    if one.get("words"):
        return not count, f"{count} of {counted(len(one['words']), 'tags')} wrong" if count else "all right"
    return not count, counted(count, "edits") if count else "all right"


def _listed(texts: Sequence[str]) -> list[Any]:
    return [part for text in texts for part in (user(text), "; ")][:-1]


def answer(one: Mapping[str, Any]) -> Markup:
    """What the model gave beside what is right: tags under their words, a label as a whole, other texts by token."""
    pairs = one.get("pairs")
    if pairs is None:
        return guess(one)
    return tagged(one["words"], pairs) if one.get("words") else aligned(pairs)


def guess(one: Mapping[str, Any]) -> Markup:
    """A label or a number; where it is not right, also what is."""
    right = user((one.get("references") or [""])[0])
    if not one.get("wrong") and not one.get("off"):
        return element("div", "guessed ", right)
    made = user(one.get("prediction", ""), class_="wrong" if one.get("wrong") else None)
    return element("div", "guessed ", made, "; right is ", right)


def tagged(words: Sequence[str], pairs: Sequence[Sequence[str]]) -> Markup:
    """Under each word its tag, in one line if it is right; else the wanted one and, marked, the written one."""
    wrong = [wanted != written for wanted, written in pairs]
    columns = [
        element("span", *map(user, (word, *dict.fromkeys(pair))), class_="pair tag unlike" if unlike else "pair tag")
        for word, pair, unlike in zip(words, pairs, wrong, strict=True)
    ]
    return _beside(["word", "wanted", "written"] if any(wrong) else ["word", "tag"], columns)


def aligned(pairs: Sequence[Sequence[str | None]]) -> Markup:
    """Wanted above written, a column a token; where they are alike throughout, one line says both."""
    same = all(wanted == written for wanted, written in pairs)
    names = ["written"] if same else ["wanted", "written"]
    columns = [_pair(wanted, written, same) for wanted, written in pairs]
    return _beside(names, columns)


def _beside(names: Sequence[str], columns: Sequence[Markup]) -> Markup:
    """Columns of an example, as many as can be read, and what stands in their lines."""
    more = len(columns) - MOST_TOKENS
    rest = element("span", f"… {more:,} more", class_="quiet") if more > 0 else ""
    labels = element("div", *(element("span", name) for name in names), class_="names")
    return element("div", labels, element("div", *columns[:MOST_TOKENS], rest, class_="tokens"), class_="sides")


def _pair(wanted: str | None, written: str | None, same: bool) -> Markup:
    if same:
        return element("span", user(written), class_="pair")
    sides = [
        element("bdi", "·", class_="gap") if token is None else element("bdi", visible(token))
        for token in (wanted, written)
    ]
    return element("span", *sides, class_="pair" if wanted == written else "pair unlike")


def confusion(record: Record) -> Markup:
    """What was written for what: the commonest pairs, and the tokens most involved as a heat map."""
    found = record.get("confusion") or {}
    if not found.get("pairs"):
        return Markup("")
    names = ("substituted", "inserted", "deleted")
    counts = ", ".join(f"{whole(found[name])} {name}" for name in names if name in found)
    told = element("p", f"Of the tokens wanted, {whole(found.get('right'))} were right; {counts}.")
    rows = [[_or_nothing(wanted), _or_nothing(written), whole(count)] for wanted, written, count in found["pairs"]]
    half = (len(rows) + 1) // 2 if len(rows) > 10 else len(rows)
    parts = [table(["wanted", "written", "times"], part, numeric=(2,)) for part in (rows[:half], rows[half:]) if part]
    tokens = [*found.get("tokens", []), "∅"]
    drawn = heat(tokens, tokens, found.get("table") or [], what="tokens wanted (rows) and written (columns)")
    most = max(count for row in found.get("table") or [[0]] for count in row)
    note = f"rows: wanted; columns: written; ∅: no token; strongest: {counted(most, 'times')}"
    picture = figure("Who is taken for whom", element("div", drawn, class_="scroll"), note)
    return join(told, element("div", element("div", *parts, class_="pairs"), picture, class_="two"))


def _or_nothing(token: str | None) -> Markup:
    return element("span", "∅", class_="quiet") if token is None else user(token)


def attention(record: Record) -> Markup:
    """Where the model looked while it wrote one of the held-out examples."""
    found = record.get("attention")
    if not found:
        return Markup("")
    what = f"attention of {found.get('layer', 'the decoder')}"
    drawn = heat(found["target"], found["source"], found["weights"], what=what)
    heads = f"; mean of {found['heads']} heads" if found.get("heads", 1) > 1 else ""
    most = max((finite(weight) or 0.0 for row in found["weights"] for weight in row), default=0.0)
    note = f"rows: written; columns: read; strongest: {digits(most)}; layer {found.get('layer', '')}{heads}"
    return figure("Where it looked", element("div", drawn, class_="scroll"), note)


def held_out(name: str) -> str:
    return HELD_OUT.get(name, name)
