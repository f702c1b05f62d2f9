"""The curves of one or several runs: loss, validation score, speed, learning rate, gradient norm."""

from __future__ import annotations

from collections.abc import Sequence

from seqloom.reporting.charts import Series, colour_of, lines
from seqloom.reporting.facts import Facts, metric, points, scores
from seqloom.reporting.html import Markup, element, user
from seqloom.reporting.wording import wording


def one_run(facts: Facts) -> Markup:
    """Five charts, side by side where there is room."""
    loss = [
        Series("training", points(facts.steps, "loss")),
        Series("validation", scores(facts.validations, "loss"), 1, mark=_ring(facts, "loss"), dots=True),
    ]
    return _charts([loss], [facts], facts.headline)


def several(runs: Sequence[Facts]) -> Markup:
    """The same with a line a run; the losses of training and validation apart."""
    trained = [Series(run.name, points(run.steps, "loss"), n) for n, run in enumerate(runs)]
    held = [Series(run.name, scores(run.validations, "loss"), n, dots=True) for n, run in enumerate(runs)]
    return _charts([trained, held], runs, runs[0].headline)


def _charts(losses: list[list[Series]], runs: Sequence[Facts], name: str) -> Markup:
    label = wording(runs[0].config).label
    titles = ["Loss"] if len(losses) == 1 else ["Training loss", "Validation loss"]
    figures = [
        figure(title, lines(loss, x="step", y=f"nats a {label}", log=True), _legend(loss) if len(losses) == 1 else "")
        for title, loss in zip(titles, losses, strict=True)
        if any(one.points for one in loss)
    ]
    score = [
        Series(run.name, scores(run.validations, name), n, mark=_ring(run, name), dots=True)
        for n, run in enumerate(runs)
    ]
    note = "ring: the model kept"
    if len(runs) == 1 and runs[0].averaging is not None:
        note += f"; weights averaged from step {runs[0].averaging:,}"
    figures.append(figure("Validation score", lines(score, x="step", y=unit(name)), note))
    for title, field, per, log in (
        ("Speed", "tokens_per_second", f"{label}s a second", False),
        ("Learning rate", "rate", "rate", False),
        ("Gradient norm", "norm", "norm before clipping", True),
    ):
        drawn = [Series(run.name, points(run.steps, field), n) for n, run in enumerate(runs)]
        if any(one.points for one in drawn):
            figures.append(figure(title, lines(drawn, x="step", y=per, zero=not log, log=log)))
    return element("div", *figures, class_="charts")


def _ring(run: Facts, name: str) -> tuple[int, float] | None:
    """The validation whose model was kept; none where the mean of several was."""
    return None if run.best is None or run.averaged else (run.best["step"], run.best["valid"].get(name))


def unit(name: str) -> str:
    """What a metric's axis says."""
    about = metric(name)
    return f"{about.title}{', %' if about.unit else ''} ({'lower' if about.lower else 'higher'} is better)"


def figure(title: str, picture: Markup, note: Markup | str = "") -> Markup:
    caption = element("figcaption", element("strong", title), " ", element("span", note) if note else "")
    return element("figure", caption, picture)


def _legend(series: Sequence[Series]) -> Markup:
    return legend([one.name for one in series])


def legend(names: Sequence[str]) -> Markup:
    """What colour stands for what."""
    return element("span", *(key(name, number) for number, name in enumerate(names)), class_="legend")


def key(name: str, number: int) -> Markup:
    return element("span", element("i", class_=f"swatch {colour_of(number)}"), user(name), class_="key")
