"""Confusion matrices: which token or label was predicted for which."""

from __future__ import annotations

from seqloom.language import _, amount
from seqloom.reporting.charts.curves import figure
from seqloom.reporting.charts.heatmap import heatmap
from seqloom.reporting.html.elements import Markup, element, join, user
from seqloom.reporting.html.page import table
from seqloom.reporting.number_format import whole
from seqloom.reporting.run_facts import Record

CONFUSED = {"substituted": "{count} substituted", "inserted": "{count} inserted", "deleted": "{count} deleted"}


def token_confusion(record: Record) -> Markup:
    """Which token was predicted for which: the most frequent pairs, and a heat map of the tokens most involved."""
    found = record.get("confusion") or {}
    if not found.get("pairs"):
        return Markup("")
    counts = _(", ").join(_(text, count=whole(found[name])) for name, text in CONFUSED.items() if name in found)
    correct = whole(found.get("right"))
    summary = element(
        "p", _("Of the reference tokens, {correct} are correct; {counts}.", correct=correct, counts=counts)
    )
    rows = [[_token(reference), _token(predicted), whole(count)] for reference, predicted, count in found["pairs"]]
    half = (len(rows) + 1) // 2 if len(rows) > 10 else len(rows)
    head = [_("reference"), _("prediction"), _("count")]
    parts = [table(head, part, numeric=(2,)) for part in (rows[:half], rows[half:]) if part]
    tokens = [*found.get("tokens", []), "∅"]
    what = _("reference tokens (rows) and predicted tokens (columns)")
    drawn = heatmap(tokens, tokens, found.get("table") or [], what=what)
    most = max(count for row in found.get("table") or [[0]] for count in row)
    note = _("rows: reference; columns: prediction; ∅: no token; darkest: {times}", times=amount(most, "times"))
    picture = figure(_("Confusion matrix"), element("div", drawn, class_="scroll"), note)
    return join(summary, element("div", element("div", *parts, class_="pairs"), picture, class_="two"))


def _token(token: str | None) -> Markup:
    return element("span", "∅", class_="quiet") if token is None else user(token)


def label_confusion(record: Record) -> Markup:
    """Which label was predicted for which: a heat map, and the most frequent errors."""
    found = record.get("label_confusion") or {}
    labels, counts = found.get("labels") or [], found.get("table") or []
    if not labels:
        return Markup("")
    text = _("{correct} correct, {wrong} wrong.", correct=whole(found.get("right")), wrong=whole(found.get("wrong")))
    if found.get("unknown"):
        unknown = whole(found["unknown"])
        text += _(" ") + _("{count} have a label that is not in the training data.", count=unknown)
    # By the share of a row: else a frequent label would leave the others pale.
    shares = [[count / max(sum(row), 1) for count in row] for row in counts]
    drawn = heatmap(labels, labels, shares, what=_("reference labels (rows) and predicted labels (columns)"))
    note = _("rows: reference; columns: prediction; the darker, the larger the share of the row")
    picture = figure(_("Confusion matrix"), element("div", drawn, class_="scroll"), note)
    rows = [
        [user(reference), user(predicted), whole(count)] for reference, predicted, count in found.get("pairs") or []
    ]
    pairs = table([_("reference"), _("prediction"), _("count")], rows[:10], numeric=(2,)) if rows else ""
    return join(element("p", text), element("div", element("div", pairs, class_="pairs"), picture, class_="two"))
