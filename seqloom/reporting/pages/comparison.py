"""Several runs on one page, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seqloom.language import _, amount
from seqloom.options import flattened
from seqloom.reporting.charts import curves
from seqloom.reporting.charts.charts import Bar, bars
from seqloom.reporting.charts.curves import figure
from seqloom.reporting.html.elements import Markup, element, fill, join, user
from seqloom.reporting.html.page import page, section, table, warning
from seqloom.reporting.number_format import NONE, digits, duration, finite, setting_text, short, whole
from seqloom.reporting.pages import comparable
from seqloom.reporting.run_facts import HELD_OUT, Facts, measured, metric
from seqloom.reporting.sections import evaluation
from seqloom.reporting.task_words import wording

ROWS: tuple[tuple[str, Callable[[Facts], Any]], ...] = (
    ("model", lambda run: run.model),
    ("parameters", lambda run: whole(run.parameters)),
    ("training data", lambda run: user(run.files("train")) if run.files("train") else NONE),
    ("examples", lambda run: whole(run.amount())),
    ("updates", lambda run: whole(run.last_step)),
    ("training time", lambda run: duration(run.seconds)),
    ("training speed", lambda run: _speed(run)),
    ("decoding speed, sources per second", lambda run: whole(run.record[1].get("per_second")) if run.record else NONE),
    ("device", lambda run: run.device or NONE),
    ("seed", lambda run: setting_text((run.config.get("training") or {}).get("seed"))),
)


def _speed(run: Facts) -> str:
    return f"{short(run.speed)} {_('{unit} per second', unit=_(wording(run.config).labels))}" if run.speed else NONE


@dataclass(frozen=True)
class GroupResult:
    """The result of the runs of a page together: of an ensemble the `record` of its evaluation, of cross-validation
    the mean and the standard deviation of each score over the `folds`."""

    record: Mapping[str, Any] | None = None
    folds: Mapping[str, tuple[float, float]] | None = None

    def section(self) -> Markup:
        if self.folds is not None:
            rows = [
                [_(metric(name).title), digits(mean), f"± {digits(off)}"] for name, (mean, off) in self.folds.items()
            ]
            return section("Over all folds", table(["", _("mean"), _("standard deviation")], rows, numeric=(1, 2)))
        record = self.record or {}
        found = {name: value for name, value in (record.get("metrics") or {}).items() if finite(value) is not None}
        rows = [
            [_(metric(name).title), evaluation.score_text(name, value), evaluation.interval_text(record, name)]
            for name, value in found.items()
        ]
        if not rows:
            text = _("The runs were not scored together: seqloom evaluate does that.")
            return section("All together", element("p", text))
        method = element("p", evaluation.method_text(record), class_="quiet")
        scores = table(["", _("score"), _("95 % interval")], rows, numeric=(1, 2))
        return section("All together", scores, method)


def compare(runs: Sequence[Facts], group: GroupResult | None = None) -> str:
    """The page: result of the group if there is one, ranking, scores, what the runs are, how they learned, settings
    that differ, and their predictions for the same examples."""
    folds = group is not None and group.folds is not None
    what = "runs" if group is None else "folds" if folds else "members"
    if folds:  # each learns its vocabulary without its own part, and none is ranked
        runs = [replace(run, learned={}) for run in runs]
    if what == "members":
        runs = [replace(run, name=_("member {name}", name=run.name)) for run in runs]
    names = ", ".join(run.name for run in runs)
    shared = [name for name in HELD_OUT if all(name in run.records for run in runs)]
    if shared:  # a test of one alone would compare nothing
        runs = [replace(run, records={name: run.records[name] for name in shared}) for run in runs]
    parts = [
        element("p", _("Comparison"), class_="over"),
        element("h1", amount(len(runs), what)),
        element("p", curves.legend([run.name for run in runs]), class_="lead"),
        group.section() if group else "",
        # Folds are meant to be scored on different data.
        *([] if folds else [ranking(runs), caveats(runs)]),
        section("Scores", element("div", scores(runs), best_bars(runs), class_="beside")),
        section("What they are", overview(runs)),
        section("Learning", curves.several(runs, comparable.ranking_metric(runs))),
        section("Settings that differ", settings(runs)),
        *([] if folds else [section("The same examples", examples(runs))]),
    ]
    return page(_("{names} · Seqloom comparison", names=names), *parts)


def same_held_out(runs: Sequence[Facts]) -> bool:
    """Whether all were scored on the same sources."""
    asked = {(run.record[0], run.record[1].get("fingerprint")) if run.record else None for run in runs}
    return len(asked) == 1 and None not in asked


def caveats(runs: Sequence[Facts]) -> Markup:
    """Why scores cannot be compared, above any score: different data, or different tokens."""
    texts: list[str] = []
    if any(run.record is None for run in runs):
        lacking = [user(run.name) for run in runs if run.record is None]
        texts.append(fill("No evaluation: {runs}.", runs=join(*_commas(lacking))))
    elif not same_held_out(runs):
        texts.append(_("These runs were scored on different held-out data: their scores cannot be compared directly."))
    if len({run.files("train") for run in runs} - {""}) > 1 or len({run.amount() for run in runs} - {None}) > 1:
        texts.append(_("They were trained on different data."))
    texts += comparable.reasons(runs)
    return warning(*(element("p", text) for text in texts)) if texts else Markup("")


def ranking(runs: Sequence[Facts]) -> Markup:
    """Which run is best, and whether by more than chance; nothing where the scores cannot be compared."""
    name = comparable.ranking_metric(runs)
    scored = [run for run in runs if name and run.score(name) is not None]
    if name is None or len(scored) < 2 or not same_held_out(runs):
        return Markup("")
    first, second, *_rest = sorted(scored, key=lambda run: run.score(name) or 0.0, reverse=not metric(name).lower)
    names = {"first": user(first.name), "second": user(second.name)}
    values = {"metric": evaluation.metric_phrase(name), "value": _shown(first, name), "other": _shown(second, name)}
    if first.score(name) == second.score(name):
        return element("p", fill("{first} and {second} have the same {metric}, {value}.", **names, **values))
    if metric(name).lower:
        best = fill("{first} has the lowest {metric}, {value}; next is {second} with {other}.", **names, **values)
    else:
        best = fill("{first} has the highest {metric}, {value}; next is {second} with {other}.", **names, **values)
    sure = _overlap(first, second, name)
    return element("p", best, _(" ") if sure else "", sure)


def _shown(run: Facts, name: str) -> str:
    return evaluation.score_text(name, run.score(name))


def _overlap(first: Facts, second: Facts, name: str) -> str:
    one, other = first.interval(name), second.interval(name)
    if one is None or other is None:
        return ""
    if max(one[0], other[0]) <= min(one[1], other[1]):
        return _("Their 95 % intervals overlap: on other data the order may differ.")
    return _("Their 95 % intervals do not overlap.")


def _commas(parts: Sequence[Markup]) -> list[Any]:
    return [part for one in parts for part in (one, _(", "))][:-1]


def overview(runs: Sequence[Facts]) -> Markup:
    rows = [[_(name), *(show(run) for run in runs)] for name, show in ROWS]
    shown = [row for row in rows if any(cell not in (NONE, "") for cell in row[1:])]
    return table(["", *_names(runs)], shown, numeric=range(1, len(runs) + 1))


def _names(runs: Sequence[Facts]) -> list[Any]:
    return [user(run.name) for run in runs]


def scores(runs: Sequence[Facts]) -> Markup:
    """A row a metric, its interval below; the best is bold where the runs are comparable."""
    rows, same = [], same_held_out(runs)
    for name in measured(runs):
        real = [value for run in runs if (value := run.score(name)) is not None]
        best = min(real) if metric(name).lower else max(real)
        best = best if same and comparable.comparable(runs, name) else None
        direction = _("lower is better") if metric(name).lower else _("higher is better")
        title = join(_(metric(name).title), element("small", direction))
        rows.append([title, *(_cell(run, name, best) for run in runs)])
    if not rows:
        return element("p", _("None of these runs has been evaluated."))
    counts = [_("sources scored"), *map(_count, runs)]
    return table(["", *_names(runs)], [*rows, counts], numeric=range(1, len(runs) + 1))


SHORT_HELD_OUT = {"test": "test", "valid": "validation"}


def _count(run: Facts) -> Any:
    if run.record is None:
        return NONE
    name, record = run.record
    data = ", ".join(filter(None, (_(SHORT_HELD_OUT[name]), evaluation.search_text(record))))
    return join(whole(record.get("count")), element("small", element("br"), data))


def _cell(run: Facts, name: str, best: float | None) -> Markup:
    number = element("strong", _shown(run, name)) if run.score(name) == best is not None else _shown(run, name)
    spread = evaluation.interval_text(run.record[1], name) if run.record else ""
    return join(number, element("small", element("br"), spread, class_="quiet"))


def best_bars(runs: Sequence[Facts]) -> Markup:
    """The score that the runs are ranked by, with intervals: where these overlap widely, the runs may be equal."""
    name = comparable.ranking_metric(runs)
    if name is None:
        return Markup("")
    rows = [Bar(run.name, run.score(name), run.interval(name), colour=n) for n, run in enumerate(runs)]
    return figure(_(metric(name).title), bars(rows, unit=curves.unit(name)), _("whiskers: 95 % intervals"))


def settings(runs: Sequence[Facts]) -> Markup:
    every = [
        flattened({key: run.config.get(key) or {} for key in ("data", "model", "training", "inputs")}) for run in runs
    ]
    names = dict.fromkeys(name for one in every for name in one)
    differing = [name for name in names if len({repr(one.get(name)) for one in every}) > 1]
    if not differing:
        return element("p", _("None: these runs have the same settings."))
    rows = [
        [element("code", name), *(user(setting_text(one[name]) if name in one else NONE) for one in every)]
        for name in differing
    ]
    return table(["", *_names(runs)], rows)


def examples(runs: Sequence[Facts]) -> Markup:
    """The predictions for those sources that the records of all runs hold."""
    recorded = [_recorded(run) for run in runs]
    shared = [source for source in recorded[0] if all(source in one for one in recorded)]
    if not shared:
        text = _("The evaluations of these runs have no example in common: they were not scored on the same sources.")
        return element("p", text)
    return element("ol", *(_side_by_side(source, runs, recorded) for source in shared), class_="shown")


def _recorded(run: Facts) -> dict[str, Any]:
    chosen = (run.record[1].get("examples") or {}) if run.record else {}
    return {one["source"]: one for kind in ("random", "worst", "best") for one in chosen.get(kind) or []}


def _side_by_side(source: str, runs: Sequence[Facts], recorded: Sequence[dict[str, Any]]) -> Markup:
    parts = []
    for number, (run, one) in enumerate(zip(runs, recorded, strict=True)):
        name = element("small", curves.key(run.name, number), evaluation.remark(one[source]), class_="quiet")
        parts.append(element("div", name, evaluation.prediction(one[source])))
    return element("li", element("div", user(source), class_="asked"), *parts)
