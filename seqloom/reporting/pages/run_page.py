"""The report of one run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import yaml

from seqloom.language import _, amount
from seqloom.reporting.charts import curves
from seqloom.reporting.html.elements import Markup, element, fill, join, user
from seqloom.reporting.html.page import code, figures, folded, page, section, table, warning
from seqloom.reporting.number_format import article, digits, display_name, duration, finite, short, whole
from seqloom.reporting.run_facts import Facts, diverged, metric, uniform_loss
from seqloom.reporting.sections import evaluation, labels, language, masked_tokens, tags
from seqloom.reporting.sections import table as tables
from seqloom.reporting.sections.confusion_matrix import token_confusion
from seqloom.reporting.task_words import wording

SCORES_ON = {"test": "Scores on test data", "valid": "Scores on validation data"}
FEW_BATCHES = 20  # skipped ones whose steps are listed


def report(facts: Facts) -> str:
    """The page: what the model is, how good, how it learned, its errors, its data, and how to repeat it."""
    parts = [
        element("p", _("Imported model") if facts.imported else _("Training report"), class_="over"),
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
    return page(_("{name} · Seqloom report", name=facts.name), *parts)


def summary(facts: Facts) -> Markup:
    """One paragraph: task, model, parameters, data, best score, time, device."""
    name, task = display_name(facts.model), facts.config.get("task", "translate")
    model = _("{a} {model} model", a=article(facts.model), model=name)
    if facts.parameters:
        size = whole(facts.parameters)
        model = _("{a} {model} model with {parameters} parameters", a=article(facts.model), model=name, parameters=size)
    begin = fill("{model} for the task {task}, {origin}.", model=model, task=task, origin=_origin(facts))
    start = fill("It started from the run {run}.", run=user(facts.start)) if facts.start else ""
    sentences = [one for one in (begin, start, verdict(facts)) if one]
    return element("p", *[part for one in sentences for part in (one, _(" "))][:-1], class_="lead")


def _origin(facts: Facts) -> Markup:
    if facts.imported:
        return fill("imported from {name}", name=user(facts.imported))
    data: Any = user(facts.files("train"))
    if facts.amount():
        data = fill("{amount} of {files}", amount=amount(facts.amount(), facts.unit), files=data)
    trained = fill("trained on {data}", data=data)
    if facts.last_step:
        trained = fill("{trained} for {updates}", trained=trained, updates=amount(facts.last_step, "updates"))
    if facts.seconds:
        trained = fill("{trained} ({time} of training)", trained=trained, time=duration(facts.seconds))
    return trained


def verdict(facts: Facts) -> str:
    """The score that the run is compared by, in a sentence."""
    name = facts.headline
    if facts.record is None:
        if facts.imported:
            return _("It was not evaluated here.")
        if facts.best is None:
            return _("Nothing was held out, so its quality is not known.")
        value = evaluation.score_text(name, facts.best["valid"].get(name))
        return _("On the validation data its {metric} is {value}.", metric=evaluation.metric_phrase(name), value=value)
    which, record = facts.record
    unit = record.get("unit") or {"pairs": "sources"}.get(facts.unit, facts.unit)
    value = evaluation.score_text(name, (record.get("metrics") or {}).get(name))
    if spread := evaluation.interval_text(record, name):
        value = _("{value} (95 % interval {spread})", value=value, spread=spread)
    values = {"amount": amount(record.get("count"), unit), "metric": evaluation.metric_phrase(name), "value": value}
    if which == "test":
        return _("On {amount} of the test data its {metric} is {value}.", **values)
    return _("On {amount} of the validation data its {metric} is {value}.", **values)


def headline(facts: Facts) -> Markup:
    entries: list[tuple[str, Any, Any]] = []
    if facts.record is not None:
        values = facts.record[1].get("metrics") or {}
        for name in dict.fromkeys((facts.headline, "exact_match")):
            if finite(values.get(name)) is not None:
                number = evaluation.score_text(name, values[name])
                entries.append((number, _(metric(name).title), evaluation.interval_text(facts.record[1], name)))
    if facts.parameters:
        entries.append((short(facts.parameters), _("parameters"), ""))
    if facts.seconds:
        entries.append((duration(facts.seconds), _("training time"), facts.device))
    if facts.speed:
        entries.append((short(facts.speed), _("{unit} per second", unit=_(wording(facts.config).labels)), ""))
    return figures(entries)


def skipped_lines(facts: Facts) -> Markup:
    """Lines of the data that were not trained on. They are named at the top: a reader would not miss them."""
    found = facts.data.get("skipped") or {}
    if not found.get("count"):
        return Markup("")
    reasons = found.get("reasons") or {}
    why = element("ul", *(element("li", f"{whole(count)} × ", user(kind)) for kind, count in reasons.items()))
    first = element("ul", *(element("li", user(line, class_="mono")) for line in found.get("first") or []))
    text = _("{lines} of the data left out.", lines=amount(found["count"], "broken lines"))
    return warning(element("p", element("strong", text)), why if reasons else "", folded(_("The first of them"), first))


def _diverged(facts: Facts) -> Markup:
    text = diverged(facts.history, uniform_loss(facts))
    return (
        warning(element("p", element("strong", _("{sentence}.", sentence=f"{text[0].upper()}{text[1:]}"))))
        if text
        else Markup("")
    )


def _skipped_batches(facts: Facts) -> Markup:
    count = len(facts.skipped_batches)
    if not count:
        return Markup("")
    steps = ", ".join(whole(line["skipped"]) for line in facts.skipped_batches[:FEW_BATCHES])
    text = _(
        "{updates} skipped because the loss or gradient was not finite: step {steps}.",
        updates=amount(count, "updates"),
        steps=steps,
    )
    return warning(element("p", text))


def _scores(facts: Facts) -> list[Markup]:
    if not facts.records:
        text = _("Nothing was held out, so there is no score. Train with --valid to get one.")
        if facts.imported:
            text = _("It was not evaluated here: seqloom evaluate scores it on data of yours.")
        elif facts.validations:
            text = _("This run has no evaluation record; the curves show what was measured in training.")
        return [section("Scores", element("p", text))]
    return [
        section(
            "Scores" if len(facts.records) == 1 else SCORES_ON.get(name, name),
            element("p", f"{evaluation.held_out(name)}{_(': ')}{evaluation.method_text(record)}", class_="quiet"),
            evaluation.score_table(record, wording(facts.config)),
        )
        for name, record in facts.records.items()
    ]


def _learning(facts: Facts) -> list[Markup]:
    if not facts.history:
        return []
    mean = _mean(facts)
    parts = [element("p", mean)] if mean else []
    return [*parts, curves.one_run(facts), language.samples_in_training(facts.history)]


def _mean(facts: Facts) -> str:
    """Of which weights the model is the mean, or might have been."""
    if facts.averaged:
        count = amount(facts.averaged, "checkpoints")
        return _("The model kept is the mean of the last {checkpoints}.", checkpoints=count)
    tried = next((line for line in reversed(facts.history) if "average" in line), None)
    if tried is not None and not tried.get("best"):
        return _(
            "The mean of the last {checkpoints} was not kept: on validation data the best single checkpoint is better.",
            checkpoints=amount(tried["average"], "checkpoints"),
        )
    decay = finite((facts.config.get("training") or {}).get("ema"))
    if decay:
        return _(
            "The model scored and kept has an exponential moving average of the weights, with a decay of {decay} "
            "(training.ema).",
            decay=f"{decay:g}",
        )
    return ""


def _errors(facts: Facts) -> list[Markup]:
    """The errors on the data that the run is scored on."""
    if facts.record is None:
        return []
    record = facts.record[1]
    drawn = [evaluation.by_length(record), evaluation.attention(record)]
    return [
        section("A closer look", element("div", *drawn, class_="two") if any(drawn) else ""),
        section("Examples", evaluation.examples(record)),
        section("Confusion", token_confusion(record)),
        *(part for kind in (tags, labels, tables, language, masked_tokens) for part in kind.sections(record)),
    ]


def data(facts: Facts) -> Markup:
    rows: list[list[Any]] = []
    for which, title in (("train", _("training")), ("valid", _("validation"))):
        if facts.files(which):
            distinct = (facts.data.get(which) or {}).get("distinct_sources")
            rows.append([title, user(facts.files(which)), whole(facts.amount(which)), whole(distinct)])
    known = {**(facts.data.get("vocabulary") or {}), **facts.vocabulary}
    sides = {name: side(name, facts) for name in ("source", "target") if name in known}
    notes = [element("li", user(note)) for note in facts.data.get("notes") or []]
    head = [_("tokens of the training data"), _("kind"), _("tokens"), _("mean"), _("median"), "95 % ≤", _("longest")]
    return join(
        table(["", _("files or share"), _(facts.unit), _("distinct sources")], rows, numeric=(2, 3)) if rows else "",
        tables.columns(facts.data),
        table(
            [*head, _("vocabulary")],
            [[_(name), facts.tokenizer(name), *cells] for name, (cells, _commonest) in sides.items()],
            numeric=range(2, 8),
        )
        if sides
        else "",
        *(commonest for _cells, commonest in sides.values()),
        element("ul", *notes, class_="small", lang="en") if notes else "",
    )


COMMONEST = {"source": "Commonest source tokens", "target": "Commonest target tokens"}


def side(name: str, facts: Facts) -> tuple[list[str], Markup]:
    """Cells of the table of tokens, and the most frequent tokens, folded."""
    found = (facts.data.get("train") or {}).get(name) or {}
    vocabulary = (facts.data.get("vocabulary") or {}).get(name) or {}
    lengths = found.get("lengths") or {}
    cells = [whole(found.get("tokens")), digits(lengths.get("mean"), 1)]
    cells += [whole(lengths.get(key)) for key in ("median", "p95", "longest")]
    cells.append(whole(facts.size(name)))
    commonest = vocabulary.get("commonest") or []
    listed = [element("span", user(token), f" {whole(count)}", class_="key") for token, count in commonest]
    return cells, folded(_(COMMONEST[name]), element("p", *listed)) if listed else Markup("")


def settings(facts: Facts) -> Markup:
    text = yaml.safe_dump(dict(facts.config), sort_keys=False, allow_unicode=True)
    return folded(_("Everything that was set (config.yaml)"), code(text))


def repeat(facts: Facts) -> Markup:
    rows = [[name, user(value)] for name, value in versions(facts.environment)]
    command = code(shlex.join(facts.command)) if facts.command else ""
    same = _("The same data, seed, versions and kind of machine give the same result; on a GPU, nearly the same.")
    note = element("p", same) if command and not facts.imported else ""
    return join(command, note, folded(_("Versions and hardware"), table([], rows)) if rows else "")


def versions(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values of env.json, packages among them, without empty ones."""
    every = {**environment, **(environment.get("packages") or {})}
    every.pop("packages", None)
    listed = ((name, ", ".join(map(str, value)) if isinstance(value, list) else value) for name, value in every.items())
    return [(name, str(value)) for name, value in listed if value not in (None, "")]
