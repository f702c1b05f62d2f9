"""The curves of one or several runs: loss, validation score, speed, learning rate, gradient norm."""

from __future__ import annotations

from collections.abc import Sequence

from seqloom.reporting.charts.charts import Series, colour_of, lines
from seqloom.reporting.html.elements import Markup, element, join, user
from seqloom.reporting.number_format import finite
from seqloom.reporting.run_facts import Facts, metric, points, scores
from seqloom.reporting.task_words import wording


def one_run(facts: Facts) -> Markup:
    """At most five charts, side by side where there is room."""
    loss = [
        Series("training", points(facts.steps, "loss")),
        Series("validation", scores(facts.validations, "loss"), 1, mark=_ring(facts, "loss"), dots=True),
    ]
    return join(_short(facts), _charts({"Loss": loss}, [facts], facts.headline))


def several(runs: Sequence[Facts], score: str | None) -> Markup:
    """The same with a line a run, and of validation scores the one that can be compared; the losses of training and
    validation apart."""
    trained = [Series(run.name, points(run.steps, "loss"), n) for n, run in enumerate(runs)]
    held = [
        Series(run.name, scores(run.validations, "loss"), n, mark=_ring(run, "loss"), dots=True)
        for n, run in enumerate(runs)
    ]
    short = [_short(run, " of ", user(run.name)) for run in runs]
    return join(*short, _charts({"Training loss": trained, "Validation loss": held}, runs, score or "loss"))


def _short(run: Facts, *named: Markup | str) -> Markup:
    """Why there is no training loss to draw: a journal is the same however a training is interrupted and extended, so
    that it has no line for a last few updates."""
    every = finite((run.config.get("training") or {}).get("log_every"))
    if run.steps or not run.last_step or every is None or run.last_step >= every:
        return Markup("")
    why = f": it is logged every {every:,.0f} updates (training.log_every), and there were {run.last_step:,}."
    return element("p", "No training loss", *named, why, class_="quiet")


def _charts(losses: dict[str, list[Series]], runs: Sequence[Facts], name: str) -> Markup:
    words = wording(runs[0].config)
    until = max((run.last_step or 0 for run in runs), default=0)
    unit_of_loss = words.loss(any(map(_numbers, runs)))
    score = [
        Series(run.name, scores(run.validations, name), n, mark=_ring(run, name), dots=True)
        for n, run in enumerate(runs)
    ]
    scored = name != "loss" and any(map(_seen, score))  # the loss is drawn in any case
    figures = [
        figure(title, lines(loss, x="step", y=unit_of_loss, log=True, until=until), _told(loss, runs, not scored))
        for title, loss in losses.items()
        if any(map(_seen, loss))
    ]
    if scored:
        figures.append(
            figure("Validation score", lines(score, x="step", y=unit(name), until=until), _kept(score, runs))
        )
    for title, field, per, log in (
        ("Speed", "tokens_per_second", f"{words.label}s a second", False),
        ("Learning rate", "rate", "rate", False),
        ("Gradient norm", "norm", "norm before clipping", True),
    ):
        drawn = [Series(run.name, points(run.steps, field), n) for n, run in enumerate(runs)]
        if any(_seen(one) > 1 for one in drawn):  # a dot would say nothing
            figures.append(figure(title, lines(drawn, x="step", y=per, zero=not log, log=log, until=until)))
    return element("div", *figures, class_="charts")


def _seen(one: Series) -> int:
    """How many points of it can be drawn."""
    return sum(finite(x) is not None and finite(y) is not None for x, y in one.points)


def _numbers(run: Facts) -> bool:
    """Whether it guesses numbers."""
    return any("mse" in line["valid"] for line in run.validations[:1])


def _told(loss: Sequence[Series], runs: Sequence[Facts], alone: bool) -> Markup:
    """What is what in a chart of losses: of one run by colour, and which model was kept if no other chart says so."""
    colours = [key(one.name, one.colour) for one in loss if _seen(one)] if len(runs) == 1 else []
    kept = _kept(loss, runs) if alone else ""
    return join(element("span", *colours, class_="legend") if colours else "", kept)


def _kept(drawn: Sequence[Series], runs: Sequence[Facts]) -> str:
    """What the ring means, if there is one."""
    if not any(one.mark for one in drawn):
        return ""
    averaging = runs[0].averaging if len(runs) == 1 else None
    return "ring: the model kept" + (f"; weights averaged from step {averaging:,}" if averaging is not None else "")


def _ring(run: Facts, name: str) -> tuple[int, float] | None:
    """The validation whose model was kept; none where the mean of several was."""
    if run.best is None or run.averaged or finite(run.best["valid"].get(name)) is None:
        return None
    return run.best["step"], run.best["valid"][name]


def unit(name: str) -> str:
    """What a metric's axis says."""
    about = metric(name)
    return f"{about.title}{', %' if about.unit else ''} ({'lower' if about.lower else 'higher'} is better)"


def figure(title: str, picture: Markup, note: Markup | str = "") -> Markup:
    caption = element("figcaption", element("strong", title), " ", element("span", note) if note else "")
    return element("figure", caption, picture)


def legend(names: Sequence[str]) -> Markup:
    """What colour stands for what."""
    return element("span", *(key(name, number) for number, name in enumerate(names)), class_="legend")


def key(name: str, number: int) -> Markup:
    return element("span", element("i", class_=f"swatch {colour_of(number)}"), user(name), class_="key")
