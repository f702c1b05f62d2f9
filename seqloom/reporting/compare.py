"""Several runs on one page, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from seqloom.reporting import curves, evaluated
from seqloom.reporting.charts import Bar, bars
from seqloom.reporting.curves import figure
from seqloom.reporting.facts import Facts, Record, flat, metric
from seqloom.reporting.html import Markup, element, join, user
from seqloom.reporting.numbers import digits, duration, finite, setting, short, whole
from seqloom.reporting.page import page, section, table, warning

ROWS: tuple[tuple[str, Callable[[Facts], Any]], ...] = (
    ("model", lambda run: run.model),
    ("parameters", lambda run: whole(run.parameters)),
    ("training data", lambda run: user(run.files("train"))),
    ("pairs", lambda run: whole(run.pairs)),
    ("updates", lambda run: whole(run.last_step)),
    ("training time", lambda run: duration(run.seconds)),
    ("target tokens a second", lambda run: short(run.speed)),
    ("sources a second, decoding", lambda run: whole(run.record[1].get("per_second")) if run.record else "–"),
    ("device", lambda run: run.device or "–"),
    ("seed", lambda run: setting((run.config.get("training") or {}).get("seed"))),
)
SCORES = ("per", "exact_match", "cer", "wer", "bleu", "chrf", "perplexity")


def compare(runs: Sequence[Facts]) -> str:
    """What each is and cost, how good it is, how it learned, in what they differ, and what they write."""
    names = ", ".join(run.name for run in runs)
    parts = [
        element("p", "Comparison", class_="over"),
        element("h1", f"{len(runs)} runs"),
        element("p", curves.legend([run.name for run in runs]), class_="lead"),
        apart(runs),
        section("Scores", scores(runs), best_bars(runs)),
        section("What they are", overview(runs)),
        section("Learning", curves.several(runs)),
        section("Settings that differ", settings(runs)),
        section("The same examples", examples(runs)),
    ]
    return page(f"{names} · Seqloom comparison", *parts)


def same_held_out(runs: Sequence[Facts]) -> bool:
    """Whether all were asked the same sources."""
    records = [run.record for run in runs]
    return all(records) and len({(found[0], found[1].get("fingerprint")) for found in records if found}) == 1


def apart(runs: Sequence[Facts]) -> Markup:
    """Scores on different data are not comparable: that is said before any score."""
    told = []
    if any(run.record is None for run in runs):
        lacking = [user(run.name) for run in runs if run.record is None]
        told.append(join("No evaluation: ", *_commas(lacking), "."))
    elif not same_held_out(runs):
        told.append("These runs were scored on different held-out data: their scores cannot be compared directly.")
    if len({run.files("train") for run in runs}) > 1 or len({run.pairs for run in runs}) > 1:
        told.append("They were trained on different data.")
    return warning(*(element("p", text) for text in told)) if told else Markup("")


def _commas(parts: Sequence[Markup]) -> list[Any]:
    return [part for one in parts for part in (one, ", ")][:-1]


def overview(runs: Sequence[Facts]) -> Markup:
    rows = [[name, *(show(run) for run in runs)] for name, show in ROWS]
    shown = [row for row in rows if any(cell not in ("–", "") for cell in row[1:])]
    return table(["", *_names(runs)], shown, numeric=range(1, len(runs) + 1))


def _names(runs: Sequence[Facts]) -> list[Any]:
    return [user(run.name) for run in runs]


def scores(runs: Sequence[Facts]) -> Markup:
    """A row a metric, its interval below; the best is bold where the runs were asked the same."""
    records = [run.record[1] if run.record else {} for run in runs]
    rows = []
    for name in SCORES:
        values = [finite((record.get("metrics") or {}).get(name)) for record in records]
        real = [value for value in values if value is not None]
        if not real:
            continue
        best = (min(real) if metric(name).lower else max(real)) if same_held_out(runs) else None
        cells = [_score(record, name, value, best) for record, value in zip(records, values, strict=True)]
        rows.append([join(metric(name).title, element("small", _direction(name))), *cells])
    asked = [[f"{run.record[0]}: {evaluated.told(run.record[1])}" if run.record else "–" for run in runs]]
    if not rows:
        return element("p", "None of these runs has been evaluated.")
    how = element("p", asked[0][0], class_="quiet") if len(set(asked[0])) == 1 else ""
    counts = ["sources asked", *(_count(run) for run in runs)]
    return join(how, table(["", *_names(runs)], [*rows, counts], numeric=range(1, len(runs) + 1)))


def _count(run: Facts) -> str:
    return (
        f"{whole(run.record[1].get('count'))} ({run.record[0]}, {evaluated.how(run.record[1])})" if run.record else "–"
    )


def _direction(name: str) -> str:
    return "lower is better" if metric(name).lower else "higher is better"


def _score(record: Record, name: str, value: float | None, best: float | None) -> Markup:
    shown = f"{digits(value)}{evaluated.percent(name)}"
    number = element("strong", shown) if value is not None and value == best else shown
    return join(number, element("small", element("br"), evaluated.spread(record, name), class_="quiet"))


def best_bars(runs: Sequence[Facts]) -> Markup:
    """The score they are judged by, with intervals: where these overlap widely, the runs may well be equal."""
    name = runs[0].headline
    rows = []
    for number, run in enumerate(runs):
        record = run.record[1] if run.record else {}
        interval = tuple((record.get("intervals") or {}).get(name) or ()) or None
        rows.append(Bar(run.name, (record.get("metrics") or {}).get(name), interval, colour=number))
    unit = f"{metric(name).title}, %" if metric(name).unit else metric(name).title
    return figure(metric(name).title, bars(rows, unit=unit), f"{_direction(name)}; whiskers are 95 % intervals")


def settings(runs: Sequence[Facts]) -> Markup:
    every = [flat({key: run.config.get(key) or {} for key in ("data", "model", "training", "inputs")}) for run in runs]
    names = dict.fromkeys(name for one in every for name in one)
    unlike = [name for name in names if len({repr(one.get(name)) for one in every}) > 1]
    if not unlike:
        return element("p", "None: these runs have the same settings.")
    rows = [[element("code", name), *(user(_shown(one, name)) for one in every)] for name in unlike]
    return table(["", *_names(runs)], rows)


def _shown(values: dict[str, Any], name: str) -> str:
    return setting(values[name]) if name in values else "–"


def examples(runs: Sequence[Facts]) -> Markup:
    """What each wrote for the sources that all of them were asked and that were kept."""
    kept = [_kept(run) for run in runs]
    shared = [source for source in kept[0] if all(source in one for one in kept)]
    if not shared:
        return element("p", "No example was kept of all these runs: they were not asked the same sources.")
    return element("ol", *(_side_by_side(source, runs, kept) for source in shared), class_="shown")


def _kept(run: Facts) -> dict[str, Any]:
    chosen = (run.record[1].get("examples") or {}) if run.record else {}
    return {one["source"]: one for kind in ("random", "worst", "best") for one in chosen.get(kind) or []}


def _side_by_side(source: str, runs: Sequence[Facts], kept: Sequence[dict[str, Any]]) -> Markup:
    parts = []
    for number, (run, one) in enumerate(zip(runs, kept, strict=True)):
        name = element("small", curves.key(run.name, number), evaluated.remark(one[source]), class_="quiet")
        parts.append(element("div", name, evaluated.aligned(one[source].get("pairs") or [])))
    return element("li", element("div", user(source), class_="asked"), *parts)
