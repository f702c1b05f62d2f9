"""Completion of words in a shell. Runs at every press of the Tab key, so nothing here imports torch."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import typer

from seqloom.metrics.metric_table import METRICS, task_metrics

DRIVER = Path("/dev")  # where NVIDIA shows its GPUs
KINDS = ("chars", "words", "terms", "jieba", "bytes", "bpe:")


def offer(*values: str) -> Callable[[str], list[str]]:
    """A completion function for an option with fixed values."""
    return lambda incomplete: _starting_with(values, incomplete)


def models(ctx: typer.Context, incomplete: str) -> list[str]:
    """Presets of the task that was typed before, else of all tasks."""
    from seqloom.tasks.presets import about
    from seqloom.tasks.registry import TASKS

    task = _task(ctx)
    return _starting_with(dict.fromkeys(name for one in ([task] if task else TASKS) for name in about(one)), incomplete)


def recipes(incomplete: str) -> list[str]:
    shelf = Path(__file__).parents[1] / "recipes"
    return _starting_with(sorted(file.stem for file in shelf.glob("*.yaml")), incomplete)


def devices(incomplete: str) -> list[str]:
    """A GPU by its number too, where the driver shows one."""
    gpus = sorted(int(file.name.removeprefix("nvidia")) for file in DRIVER.glob("nvidia[0-9]*"))
    return _starting_with(("auto", "cpu", "cuda", *(f"cuda:{number}" for number in gpus)), incomplete)


def datasets(ctx: typer.Context, incomplete: str) -> list[str]:
    """Datasets of the task that was typed before, and files; nothing if no dataset fits: the shell offers its files."""
    from seqloom.data.datasets.catalog import DATASETS
    from seqloom.tasks.registry import TASKS

    task = _task(ctx)
    tasks = (task, *TASKS[task].reads) if task else ()
    names = [name for name, one in DATASETS.items() if not tasks or one.task in tasks]
    found = _starting_with(names, incomplete)
    return found + _files(incomplete) if found else []


def metrics(ctx: typer.Context, incomplete: str) -> list[str]:
    """The metric after the last comma, of the task of the run that was typed before."""
    task = _task(ctx)
    every = task_metrics(task) if task else METRICS
    before, comma, last = incomplete.rpartition(",")
    chosen = before.split(",")
    found = [f"{before}{comma}{name}" for name in every if name.startswith(last) and name not in chosen]
    return _starting_with(found, incomplete)


def settings(ctx: typer.Context, incomplete: str) -> list[str]:
    """Keys of `--set`; if one is left, or an `=` was typed, with values."""
    from seqloom.runs.settings.setting_table import Setting
    from seqloom.runs.settings.setting_table import settings as every

    task = _task(ctx)
    if task is None:
        return []
    try:
        found = every(task, _model(ctx, task), str(ctx.params.get("size") or "small"))
    except Exception:  # a model in a file, or no model at all: the command itself reports what is wrong
        found = every(task)
    key, equals, _ = incomplete.partition("=")
    near = [one for one in found if (one.key == key if equals else one.key.startswith(key))]

    def values(one: Setting) -> list[str]:
        from seqloom.cli.settings import as_set_value

        offered = one.choices or (("true", "false") if isinstance(one.default, bool) else (as_set_value(one.default),))
        return [f"{one.key}={value}" for value in offered]

    return _starting_with(values(near[0]) if len(near) == 1 else [one.key for one in near], incomplete)


def _model(ctx: typer.Context, task: str) -> str | None:
    """The model that is trained: the one named, that of the recipe, or None for the task's default."""
    named = ctx.params.get("model")
    recipe = _recipe(ctx)
    return named or (str(recipe["model"]) if recipe and recipe.get("task") == task else None)


def _task(ctx: typer.Context) -> str | None:
    """The task that was typed, or that of the recipe or the run that was named."""
    from seqloom.tasks.registry import TASKS

    named = _first(ctx, "task")
    if named in TASKS:
        return named
    run = _first(ctx, "run")
    task = (_recipe(ctx) or (_yaml(Path(run) / "config.yaml") if run else None) or {}).get("task")
    return task if task in TASKS else None


def _first(ctx: typer.Context, name: str) -> str | None:
    """The command's first argument, if it has this name. While an option's value is completed, the arguments are still
    among the words that were not parsed."""
    if name not in ctx.params and name not in (one.name for one in ctx.command.params[:1]):
        return None
    words = [ctx.params.get(name), *ctx.args]
    return next((str(word) for word in words if word), None)


def _recipe(ctx: typer.Context) -> Mapping[str, Any] | None:
    name = ctx.params.get("recipe")
    if not name:
        return None
    own = str(name).endswith((".yaml", ".yml"))
    return _yaml(Path(str(name)) if own else Path(__file__).parents[1] / "recipes" / f"{name}.yaml")


def _yaml(path: Path) -> Mapping[str, Any] | None:
    from seqloom.documents import read_yaml
    from seqloom.errors import SeqloomError

    try:
        return read_yaml(path)
    except (SeqloomError, OSError):
        return None


def _files(incomplete: str) -> list[str]:
    folder, _, start = incomplete.rpartition("/")
    try:
        beside = sorted(Path(f"{folder}/" if folder or incomplete.startswith("/") else ".").iterdir())
    except OSError:
        return []
    lead = f"{folder}/" if "/" in incomplete else ""
    names = [f"{lead}{one.name}{'/' if one.is_dir() else ''}" for one in beside if one.name.startswith(start)]
    return [name for name in names if not name.rpartition("/")[2].startswith(".") or start.startswith(".")]


def _starting_with(values: Iterable[str], incomplete: str) -> list[str]:
    return [value for value in values if value.startswith(incomplete)]


@contextmanager
def whole_words() -> Iterator[None]:
    """bash splits words at `=` and `:`: `--set a.b=c` comes as three. They are joined again, and of each suggestion
    only the part that bash completes is printed."""
    words = os.environ.get("COMP_WORDS", "")
    place = os.environ.get("COMP_CWORD", "")
    if os.environ.get("_SEQLOOM_COMPLETE") != "complete_bash" or not place.isdecimal():
        yield
        return
    joined, before = _joined_words(words.split("\n" if "\n" in words else " ")[: int(place) + 1])
    os.environ |= {"COMP_WORDS": "\n".join(joined), "COMP_CWORD": str(len(joined) - 1)}
    offered = io.StringIO()
    try:
        with redirect_stdout(offered):
            yield
    finally:
        print("\n".join(line.removeprefix(before) for line in offered.getvalue().splitlines()))


def _joined_words(words: list[str]) -> tuple[list[str], str]:
    """The words as they were typed, and the start of the last one that bash does not replace."""
    joined: list[str] = []
    before, after_break = "", False
    for word in words:
        is_break = bool(word) and set(word) <= set("=:")
        if len(joined) > 1 and (is_break or (after_break and not word.startswith("-"))):
            before = joined[-1] + (word if is_break else "")
            joined[-1] += word
        else:
            before = ""
            joined.append(word)
        after_break = is_break
    return joined, before
