"""Several runs on one page, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seqloom.options import flat
from seqloom.reporting.charts import curves
from seqloom.reporting.charts.charts import Bar, bars
from seqloom.reporting.charts.curves import figure
from seqloom.reporting.html.elements import Markup, element, join, user
from seqloom.reporting.html.page import page, section, table, warning
from seqloom.reporting.number_format import NONE, digits, duration, finite, setting, short
from seqloom.reporting.number_format import whole as counted
from seqloom.reporting.pages import comparable
from seqloom.reporting.run_facts import HELD_OUT, METRICS, Facts, metric
from seqloom.reporting.sections import evaluation as evaluated
from seqloom.reporting.task_words import wording

ROWS: tuple[tuple[str, Callable[[Facts], Any]], ...] = (
    ("model", lambda run: run.model),
    ("parameters", lambda run: counted(run.parameters)),
    ("training data", lambda run: user(run.files("train")) if run.files("train") else NONE),
    ("examples", lambda run: counted(run.amount())),
    ("updates", lambda run: counted(run.last_step)),
    ("training time", lambda run: duration(run.seconds)),
    ("trained a second", lambda run: f"{short(run.speed)} {wording(run.config).label}s" if run.speed else NONE),
    ("sources a second, decoding", lambda run: counted(run.record[1].get("per_second")) if run.record else NONE),
    ("device", lambda run: run.device or NONE),
    ("seed", lambda run: setting((run.config.get("training") or {}).get("seed"))),
)


@dataclass(frozen=True)
class Whole:
    """What the runs of a page are parts of: an ensemble with the `record` of its evaluation, or folds with the mean
    and the standard deviation of each score."""

    record: Mapping[str, Any] | None = None
    folds: Mapping[str, tuple[float, float]] | None = None

    def told(self) -> Markup:
        if self.folds is not None:
            rows = [[metric(name).title, digits(mean), f"± {digits(off)}"] for name, (mean, off) in self.folds.items()]
            return section("Over all folds", table(["", "mean", "standard deviation"], rows, numeric=(1, 2)))
        record = self.record or {}
        found = {name: value for name, value in (record.get("metrics") or {}).items() if finite(value) is not None}
        shown = [
            [metric(name).title, evaluated.shown(name, value), evaluated.spread(record, name)]
            for name, value in found.items()
        ]
        if not shown:
            return section("All together", element("p", "They were not scored together: seqloom evaluate does that."))
        asked = element("p", evaluated.told(record), class_="quiet")
        return section("All together", table(["", "score", "95 % interval"], shown, numeric=(1, 2)), asked)


def compare(runs: Sequence[Facts], whole: Whole | None = None) -> str:
    """What each is and cost, how good it is, how it learned, in what they differ, and what they write; first of all
    what they are together, if they are parts of something."""
    what = "runs" if whole is None else "folds" if whole.folds is not None else "members"
    if what == "folds":  # each learns its vocabulary without its own part, and none is ranked
        runs = [replace(run, learned={}) for run in runs]
    if what == "members":
        runs = [replace(run, name=f"member {run.name}") for run in runs]
    names = ", ".join(run.name for run in runs)
    shared = [name for name in HELD_OUT if all(name in run.records for run in runs)]
    if shared:  # a test of one alone would compare nothing
        runs = [replace(run, records={name: run.records[name] for name in shared}) for run in runs]
    parts = [
        element("p", "Comparison", class_="over"),
        element("h1", f"{len(runs)} {what}"),
        element("p", curves.legend([run.name for run in runs]), class_="lead"),
        whole.told() if whole else "",
        # Folds are meant to be scored on different data.
        *([] if whole and whole.folds is not None else [verdict(runs), apart(runs)]),
        section("Scores", element("div", scores(runs), best_bars(runs), class_="beside")),
        section("What they are", overview(runs)),
        section("Learning", curves.several(runs, comparable.judged_by(runs))),
        section("Settings that differ", settings(runs)),
        *([] if whole and whole.folds is not None else [section("The same examples", examples(runs))]),
    ]
    return page(f"{names} · Seqloom comparison", *parts)


def same_held_out(runs: Sequence[Facts]) -> bool:
    """Whether all were asked the same sources."""
    asked = {(run.record[0], run.record[1].get("fingerprint")) if run.record else None for run in runs}
    return len(asked) == 1 and None not in asked


def apart(runs: Sequence[Facts]) -> Markup:
    """Scores on different data, or of different tokens, are not comparable: that is said before any score."""
    told = []
    if any(run.record is None for run in runs):
        lacking = [user(run.name) for run in runs if run.record is None]
        told.append(join("No evaluation: ", *_commas(lacking), "."))
    elif not same_held_out(runs):
        told.append("These runs were scored on different held-out data: their scores cannot be compared directly.")
    if len({run.files("train") for run in runs} - {""}) > 1 or len({run.amount() for run in runs} - {None}) > 1:
        told.append("They were trained on different data.")
    told += comparable.why(runs)
    return warning(*(element("p", text) for text in told)) if told else Markup("")


def verdict(runs: Sequence[Facts]) -> Markup:
    """Who is ahead, and whether by more than chance; nothing where the scores cannot be compared."""
    name = comparable.judged_by(runs)
    scored = [run for run in runs if name and run.score(name) is not None]
    if name is None or len(scored) < 2 or not same_held_out(runs):
        return Markup("")
    first, second, *_ = sorted(scored, key=lambda run: run.score(name) or 0.0, reverse=not metric(name).lower)
    if first.score(name) == second.score(name):
        same = f" have the same {evaluated.spoken(name)}, {_shown(first, name)}."
        return element("p", user(first.name), " and ", user(second.name), same)
    most = "lowest" if metric(name).lower else "highest"
    told = f" has the {most} {evaluated.spoken(name)}, {_shown(first, name)}; next is "
    return element(
        "p", user(first.name), told, user(second.name), f" with {_shown(second, name)}. {_sure(first, second, name)}"
    )


def _shown(run: Facts, name: str) -> str:
    return evaluated.shown(name, run.score(name))


def _sure(first: Facts, second: Facts, name: str) -> str:
    one, other = first.interval(name), second.interval(name)
    if one is None or other is None:
        return ""
    if max(one[0], other[0]) <= min(one[1], other[1]):
        return "Their 95 % intervals overlap: on other data the order may be another."
    return "Their 95 % intervals do not overlap."


def _commas(parts: Sequence[Markup]) -> list[Any]:
    return [part for one in parts for part in (one, ", ")][:-1]


def overview(runs: Sequence[Facts]) -> Markup:
    rows = [[name, *(show(run) for run in runs)] for name, show in ROWS]
    shown = [row for row in rows if any(cell not in (NONE, "") for cell in row[1:])]
    return table(["", *_names(runs)], shown, numeric=range(1, len(runs) + 1))


def _names(runs: Sequence[Facts]) -> list[Any]:
    return [user(run.name) for run in runs]


def scores(runs: Sequence[Facts]) -> Markup:
    """A row a metric, its interval below; the best is bold where the runs were asked the same, and it counts the
    same."""
    rows, same = [], same_held_out(runs)
    for name in METRICS:
        real = [value for run in runs if (value := run.score(name)) is not None]
        if real:
            best = min(real) if metric(name).lower else max(real)
            best = best if same and comparable.comparable(runs, name) else None
            rows.append(
                [join(metric(name).title, element("small", _direction(name))), *(_cell(r, name, best) for r in runs)]
            )
    if not rows:
        return element("p", "None of these runs has been evaluated.")
    counts = ["sources asked", *map(_count, runs)]
    return table(["", *_names(runs)], [*rows, counts], numeric=range(1, len(runs) + 1))


def _count(run: Facts) -> Any:
    if run.record is None:
        return NONE
    name, record = run.record
    asked = ", ".join(filter(None, (name, evaluated.how(record))))
    return join(counted(record.get("count")), element("small", element("br"), asked))


def _direction(name: str) -> str:
    return "lower is better" if metric(name).lower else "higher is better"


def _cell(run: Facts, name: str, best: float | None) -> Markup:
    number = element("strong", _shown(run, name)) if run.score(name) == best is not None else _shown(run, name)
    spread = evaluated.spread(run.record[1], name) if run.record else ""
    return join(number, element("small", element("br"), spread, class_="quiet"))


def best_bars(runs: Sequence[Facts]) -> Markup:
    """The score they are judged by, with intervals: where these overlap widely, the runs may well be equal."""
    name = comparable.judged_by(runs)
    if name is None:
        return Markup("")
    rows = [Bar(run.name, run.score(name), run.interval(name), colour=n) for n, run in enumerate(runs)]
    return figure(metric(name).title, bars(rows, unit=curves.unit(name)), "whiskers: 95 % intervals")


def settings(runs: Sequence[Facts]) -> Markup:
    every = [flat({key: run.config.get(key) or {} for key in ("data", "model", "training", "inputs")}) for run in runs]
    names = dict.fromkeys(name for one in every for name in one)
    unlike = [name for name in names if len({repr(one.get(name)) for one in every}) > 1]
    if not unlike:
        return element("p", "None: these runs have the same settings.")
    rows = [
        [element("code", name), *(user(setting(one[name]) if name in one else NONE) for one in every)]
        for name in unlike
    ]
    return table(["", *_names(runs)], rows)


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
        parts.append(element("div", name, evaluated.answer(one[source])))
    return element("li", element("div", user(source), class_="asked"), *parts)
