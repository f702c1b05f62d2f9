"""The report of one run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import yaml

from seqloom.plural import counted
from seqloom.reporting.charts import curves
from seqloom.reporting.html.elements import Markup, element, join, user
from seqloom.reporting.html.page import code, figures, folded, page, section, table, warning
from seqloom.reporting.number_format import article, digits, duration, finite, short, whole, written
from seqloom.reporting.run_facts import Facts, blind, diverged, metric
from seqloom.reporting.sections import evaluation as evaluated
from seqloom.reporting.sections import labels, language, masked_tokens, tags
from seqloom.reporting.sections import table as tables
from seqloom.reporting.task_words import wording


def report(facts: Facts) -> str:
    """The page: what it is, how good, how it learned, where it errs, on what data, and how to repeat it."""
    parts = [
        element("p", "Imported model" if facts.imported else "Training report", class_="over"),
        element("h1", user(facts.name)),
        summary(facts),
        headline(facts),
        _diverged(facts),
        skipped_lines(facts),
        _skipped_batches(facts),
        *_scores(facts),
        section("Learning", *_learning(facts)),
        *_errors(facts),
        section("Data", data(facts)),
        section("Settings", settings(facts)),
        section("How to repeat it", repeat(facts)),
    ]
    return page(f"{facts.name} · Seqloom report", *parts)


def summary(facts: Facts) -> Markup:
    """One paragraph: task, model, parameters, data, best score, time, device."""
    size = f" with {whole(facts.parameters)} parameters" if facts.parameters else ""
    task = facts.config.get("task", "translate")
    begin = f"{article(facts.model)} {written(facts.model)} model{size} for the task {task}, "
    start = ["It started from the run ", user(facts.start), ". "] if facts.start else []
    return element("p", begin, *_origin(facts), ". ", *start, verdict(facts), class_="lead")


def _origin(facts: Facts) -> list[Any]:
    if facts.imported:
        return ["imported from ", user(facts.imported)]
    pairs = f" {counted(facts.amount(), facts.unit)} of" if facts.amount() else ""
    steps = f" for {counted(facts.last_step, 'updates')}" if facts.last_step else ""
    time = f" ({duration(facts.seconds)} of training)" if facts.seconds else ""
    return [f"trained on{pairs} ", user(facts.files("train")), f"{steps}{time}"]


def verdict(facts: Facts) -> str:
    """The score to be judged by, in a sentence."""
    if facts.record is None:
        held = facts.best
        if facts.imported:
            return "It was not evaluated here."
        if held is None:
            return "Nothing was held out, so there is no score: nobody knows how good it is."
        return f"On validation its {_named(facts.headline, held['valid'].get(facts.headline))}."
    name, record = facts.record
    value = (record.get("metrics") or {}).get(facts.headline)
    spread = evaluated.spread(record, facts.headline)
    interval = f" (95 % interval {spread})" if spread else ""
    which = "test" if name == "test" else "held-out validation"
    unit = record.get("unit") or {"pairs": "sources"}.get(facts.unit, facts.unit)
    return f"On {counted(record.get('count'), f'{which} {unit}')} its {_named(facts.headline, value)}{interval}."


def _named(name: str, value: Any) -> str:
    return f"{evaluated.spoken(name)} is {evaluated.shown(name, value)}"


def headline(facts: Facts) -> Markup:
    entries: list[tuple[str, Any, Any]] = []
    if facts.record is not None:
        values = facts.record[1].get("metrics") or {}
        for name in dict.fromkeys((facts.headline, "exact_match")):
            if finite(values.get(name)) is not None:
                number = evaluated.shown(name, values[name])
                entries.append((number, metric(name).title, evaluated.spread(facts.record[1], name)))
    for value, shown, name in (
        (facts.parameters, short(facts.parameters), "parameters"),
        (facts.seconds, duration(facts.seconds), "of training"),
        (facts.speed, short(facts.speed), f"{wording(facts.config).label}s a second"),
    ):
        if value:
            entries.append((shown, name, facts.device if name == "of training" else ""))
    return figures(entries)


def skipped_lines(facts: Facts) -> Markup:
    """Lines of the data that were not trained on: said at the top, for nobody looks for what is missing."""
    found = facts.data.get("skipped") or {}
    if not found.get("count"):
        return Markup("")
    reasons = found.get("reasons") or {}
    why = element("ul", *(element("li", f"{whole(count)} × ", user(kind)) for kind, count in reasons.items()))
    first = element("ul", *(element("li", user(line, class_="mono")) for line in found.get("first") or []))
    lines = f"{counted(found['count'], 'lines')} of the data {'was' if found['count'] == 1 else 'were'}"
    text = f"{lines} broken and left out."
    return warning(element("p", element("strong", text)), why if reasons else "", folded("The first of them", first))


def _diverged(facts: Facts) -> Markup:
    told = diverged(facts.history, blind(facts))
    return warning(element("p", element("strong", f"{told[0].upper()}{told[1:]}."))) if told else Markup("")


def _skipped_batches(facts: Facts) -> Markup:
    count = len(facts.skipped_batches)
    if not count:
        return Markup("")
    steps = ", ".join(whole(line["skipped"]) for line in facts.skipped_batches[:20])
    updates = f"{counted(count, 'updates')} {'was' if count == 1 else 'were'}"
    text = f"{updates} skipped, for the loss or gradient was not finite: step {steps}."
    return warning(element("p", text))


def _scores(facts: Facts) -> list[Markup]:
    if not facts.records:
        text = "Nothing was held out, so there is no score. Train with --valid to get one."
        if facts.imported:
            text = "It was not evaluated here: seqloom evaluate scores it on data of yours."
        elif facts.validations:
            text = "This run has no evaluation record; the curves show what was measured in training."
        return [section("Scores", element("p", text))]
    return [
        section(
            "Scores" if len(facts.records) == 1 else f"Scores on {name} data",
            element("p", f"{evaluated.held_out(name)}: {evaluated.told(record)}", class_="quiet"),
            evaluated.score_table(record, wording(facts.config)),
        )
        for name, record in facts.records.items()
    ]


def _learning(facts: Facts) -> list[Markup]:
    if not facts.history:
        return []
    mean = _mean(facts)
    return [element("p", mean) if mean else Markup(""), curves.one_run(facts), language.along(facts.history)]


def _mean(facts: Facts) -> str:
    """Of which weights the model is the mean, or might have been."""
    if facts.averaged:
        return f"The model kept is the mean of the last {counted(facts.averaged, 'checkpoints')}."
    tried = next((line for line in reversed(facts.history) if "average" in line), None)
    if tried is not None and not tried.get("best"):
        mean = f"The mean of the last {counted(tried['average'], 'checkpoints')}"
        return f"{mean} was not kept: on validation the best single checkpoint is better."
    decay = finite((facts.config.get("training") or {}).get("ema"))
    if decay:
        return f"What was scored and kept is a running mean of the weights, with a decay of {decay:g} (training.ema)."
    return ""


def _errors(facts: Facts) -> list[Markup]:
    """Where it errs, on the data it is judged by."""
    if facts.record is None:
        return []
    record = facts.record[1]
    looked = [evaluated.by_length(record), evaluated.attention(record)]
    return [
        section("A closer look", element("div", *looked, class_="two") if any(looked) else ""),
        section("Examples", evaluated.examples(record)),
        section("Confusion", evaluated.confusion(record)),
        *(part for drawn in (tags, labels, tables, language, masked_tokens) for part in drawn.sections(record)),
    ]


def data(facts: Facts) -> Markup:
    rows: list[list[Any]] = []
    for which, title in (("train", "training"), ("valid", "validation")):
        if facts.files(which):
            distinct = (facts.data.get(which) or {}).get("distinct_sources")
            rows.append([title, user(facts.files(which)), whole(facts.amount(which)), whole(distinct)])
    known = {**(facts.data.get("vocabulary") or {}), **facts.vocabulary}
    sides = [side(name, facts) for name in ("source", "target") if name in known]
    notes = [element("li", user(note)) for note in facts.data.get("notes") or []]
    return join(
        table(["", "files or share", facts.unit, "distinct"], rows, numeric=(2, 3)) if rows else "",
        tables.columns(facts.data),
        table(
            ["tokens of training", "kind", "tokens", "mean", "median", "95 % ≤", "longest", "vocabulary"],
            [[name, facts.cut(name), *cells] for name, cells, _ in sides],
            numeric=range(2, 8),
        )
        if sides
        else "",
        *(common for *_, common in sides),
        element("ul", *notes, class_="small") if notes else "",
    )


def side(name: str, facts: Facts) -> tuple[str, list[str], Markup]:
    """A row of the table of tokens, and the commonest tokens, folded."""
    found = (facts.data.get("train") or {}).get(name) or {}
    vocabulary = (facts.data.get("vocabulary") or {}).get(name) or {}
    lengths = found.get("lengths") or {}
    cells = [whole(found.get("tokens")), digits(lengths.get("mean"), 1)]
    cells += [whole(lengths.get(key)) for key in ("median", "p95", "longest")]
    cells.append(whole(facts.size(name)))
    commonest = vocabulary.get("commonest") or []
    listed = [element("span", user(token), f" {whole(count)}", class_="key") for token, count in commonest]
    return name, cells, folded(f"Commonest {name} tokens", element("p", *listed)) if listed else Markup("")


def settings(facts: Facts) -> Markup:
    text = yaml.safe_dump(dict(facts.config), sort_keys=False, allow_unicode=True)
    return folded("Everything that was set (config.yaml)", code(text))


def repeat(facts: Facts) -> Markup:
    rows = [[name, user(value)] for name, value in versions(facts.environment)]
    command = code(shlex.join(facts.command)) if facts.command else ""
    same = "With the same data, seed, versions and kind of machine it comes out the same; on a GPU, nearly."
    told = element("p", same) if command and not facts.imported else ""
    return join(command, told, folded("Versions and hardware", table([], rows)) if rows else "")


def versions(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values of env.json, packages among them, what is empty left out."""
    every = {**environment, **(environment.get("packages") or {})}
    every.pop("packages", None)
    listed = ((name, ", ".join(map(str, value)) if isinstance(value, list) else value) for name, value in every.items())
    return [(name, str(value)) for name, value in listed if value not in (None, "")]
