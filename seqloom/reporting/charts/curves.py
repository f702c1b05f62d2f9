"""The curves of one or several runs: loss, validation score, speed, learning rate, gradient norm."""

from __future__ import annotations

from collections.abc import Sequence

from seqloom.language import _
from seqloom.reporting.charts.charts import Series, colour_of, lines
from seqloom.reporting.html.elements import Markup, element, fill, join, user
from seqloom.reporting.number_format import finite
from seqloom.reporting.run_facts import Facts, metric, points, scores
from seqloom.reporting.task_words import wording


def one_run(facts: Facts) -> Markup:
    """At most five charts, side by side where there is room."""
    loss = [
        Series(_("training"), points(facts.steps, "loss")),
        Series(_("validation"), scores(facts.validations, "loss"), 1, mark=_ring(facts, "loss"), dots=True),
    ]
    return join(no_training_loss(facts), _charts({_("Loss"): loss}, [facts], facts.headline))


def several(runs: Sequence[Facts], score: str | None) -> Markup:
    """The same with a line a run: training and validation loss in charts of their own, and `score`, the validation
    score that can be compared."""
    trained = [Series(run.name, points(run.steps, "loss"), n) for n, run in enumerate(runs)]
    held = [
        Series(run.name, scores(run.validations, "loss"), n, mark=_ring(run, "loss"), dots=True)
        for n, run in enumerate(runs)
    ]
    losses = {_("Training loss"): trained, _("Validation loss"): held}
    return join(*(no_training_loss(run, of=run.name) for run in runs), _charts(losses, runs, score or "loss"))


def no_training_loss(run: Facts, of: str = "") -> Markup:
    """Why there is no training loss to draw: the log has a line every so many updates and none for the last few, so
    that it is the same however often a training is interrupted."""
    every = finite((run.config.get("training") or {}).get("log_every"))
    if run.steps or not run.last_step or every is None or run.last_step >= every:
        return Markup("")
    numbers = {"every": f"{every:,.0f}", "count": f"{run.last_step:,}"}
    why = fill(
        "No training loss: it is logged every {every} updates (training.log_every), and there were {count}.", **numbers
    )
    if of:
        why = fill(
            "No training loss of {run}: it is logged every {every} updates (training.log_every), and there were "
            "{count}.",
            run=user(of),
            **numbers,
        )
    return element("p", why, class_="quiet")


def _charts(losses: dict[str, list[Series]], runs: Sequence[Facts], name: str) -> Markup:
    words = wording(runs[0].config)
    until = max((run.last_step or 0 for run in runs), default=0)
    unit_of_loss = _(words.loss(any(map(_predicts_numbers, runs))))
    score = [
        Series(run.name, scores(run.validations, name), n, mark=_ring(run, name), dots=True)
        for n, run in enumerate(runs)
    ]
    scored = name != "loss" and any(map(_drawable, score))  # the loss is drawn in any case
    step = _("step")
    figures = [
        figure(title, lines(loss, x=step, y=unit_of_loss, log=True, until=until), _legend(loss, runs, not scored))
        for title, loss in losses.items()
        if any(map(_drawable, loss))
    ]
    if scored:
        figures.append(
            figure(_("Validation score"), lines(score, x=step, y=unit(name), until=until), _ring_note(score, runs))
        )
    for title, field, per, log in (
        (_("Speed"), "tokens_per_second", _("{unit} per second", unit=_(words.labels)), False),
        (_("Learning rate"), "learning_rate", _("learning rate"), False),
        (_("Gradient norm"), "norm", _("norm before clipping"), True),
    ):
        drawn = [Series(run.name, points(run.steps, field), n) for n, run in enumerate(runs)]
        if any(_drawable(one) > 1 for one in drawn):  # one point is no curve
            figures.append(figure(title, lines(drawn, x=step, y=per, zero=not log, log=log, until=until)))
    return element("div", *figures, class_="charts")


def _drawable(one: Series) -> int:
    """How many points of it can be drawn."""
    return sum(finite(x) is not None and finite(y) is not None for x, y in one.points)


def _predicts_numbers(run: Facts) -> bool:
    """Whether its targets are numbers."""
    return any("mse" in line["valid"] for line in run.validations[:1])


def _legend(loss: Sequence[Series], runs: Sequence[Facts], alone: bool) -> Markup:
    """Below a chart of losses: the colours of one run, and which model was kept if no other chart shows it."""
    colours = [key(one.name, one.colour) for one in loss if _drawable(one)] if len(runs) == 1 else []
    kept = _ring_note(loss, runs) if alone else ""
    return join(element("span", *colours, class_="legend") if colours else "", kept)


def _ring_note(drawn: Sequence[Series], runs: Sequence[Facts]) -> str:
    """What the ring means, if there is one."""
    if not any(one.mark for one in drawn):
        return ""
    averaging = runs[0].averaging if len(runs) == 1 else None
    if averaging is None:
        return _("ring: the model kept")
    return _("ring: the model kept; weights averaged from step {step}", step=f"{averaging:,}")


def _ring(run: Facts, name: str) -> tuple[int, float] | None:
    """The validation whose model was kept; none where the mean of several was."""
    if run.best is None or run.averaged or finite(run.best["valid"].get(name)) is None:
        return None
    return run.best["step"], run.best["valid"][name]


def unit(name: str) -> str:
    """The label of a metric's axis."""
    about = metric(name)
    title = _("{metric}, %", metric=_(about.title)) if about.unit else _(about.title)
    return (
        _("{metric} (lower is better)", metric=title) if about.lower else _("{metric} (higher is better)", metric=title)
    )


def figure(title: str, picture: Markup, note: Markup | str = "") -> Markup:
    caption = element("figcaption", element("strong", title), " ", element("span", note) if note else "")
    return element("figure", caption, picture)


def legend(names: Sequence[str]) -> Markup:
    """Which colour stands for which run."""
    return element("span", *(key(name, number) for number, name in enumerate(names)), class_="legend")


def key(name: str, number: int) -> Markup:
    return element("span", element("i", class_=f"swatch {colour_of(number)}"), user(name), class_="key")
