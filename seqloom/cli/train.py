"""seqloom train"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqloom.cli.data import COLUMNS, DELIMITER, ENCODING, HEADER
from seqloom.cli.usage import UsageError
from seqloom.errors import SeqloomError
from seqloom.models.presets import DEFAULT, SIZES, about
from seqloom.tasks.known import TASKS
from seqloom.training.settings import OPTIMISERS, PRECISIONS, SCHEDULES

if TYPE_CHECKING:
    from seqloom.runs.job import Job

NAMES = {task: list(about(task)) for task in TASKS}
MODELS = "; ".join(f"{task}: {', '.join(names)} (default: {DEFAULT[task]})" for task, names in NAMES.items())
SHAPES = "; ".join(f"{name}: {what}" for name, what in TASKS.items())

TOKENS = "chars, words, terms (words with punctuation apart), bytes, bpe:N, or jieba for Chinese words"


def _offer(*values: str) -> Callable[[str], list[str]]:
    """What a shell may complete an option's value to; files of models stay the user's to write."""
    return lambda incomplete: [value for value in values if value.startswith(incomplete)]


KINDS = _offer("chars", "words", "bytes", "bpe:", "jieba")


def train(
    task: Annotated[str | None, typer.Argument(help=f"{SHAPES}.", autocompletion=_offer(*TASKS))] = None,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="TSV, CSV or JSONL of pairs, or two parallel texts; .gz of each; - for standard input; or a dataset "
            "by name (seqloom data list)."
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Folder for the run (a recipe's default: runs/NAME).")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="Instead of task and files: a training with a known result (seqloom recipes), or a file."),
    ] = None,
    valid: Annotated[
        list[str] | None,
        typer.Option(
            help="Validation file, or a share of the training data such as 5% (default; a dataset brings its own), "
            "the same for other seeds: '5% with seed 7'. Parallel files: --valid dev.en --valid dev.de."
        ),
    ] = None,
    folds: Annotated[
        int | None, typer.Option(help="Cross-validation: train so many times, each time with another part held out.")
    ] = None,
    jobs: Annotated[
        int, typer.Option(help="Members of a recipe, or folds, trained at once, each in a process of its own.")
    ] = 1,
    columns: Annotated[str | None, typer.Option(help=COLUMNS)] = None,
    header: Annotated[bool | None, typer.Option("--header/--no-header", help=HEADER)] = None,
    delimiter: Annotated[str | None, typer.Option(help=DELIMITER)] = None,
    encoding: Annotated[str | None, typer.Option(help=ENCODING)] = None,
    skip_bad: Annotated[
        bool | None, typer.Option("--skip-bad", help="Leave out broken lines and count them, instead of stopping.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first so many examples of the training files.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help=f"A preset or a YAML file. {MODELS}.",
            autocompletion=_offer(*dict.fromkeys(name for names in NAMES.values() for name in names)),
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Start from the weights and vocabularies of this run: fine-tuning; of another task's run, from its "
            "embedding and encoder.",
        ),
    ] = None,
    freeze: Annotated[
        str | None, typer.Option(help="Parts whose weights stay as they are, commas between: source,encoder.")
    ] = None,
    vectors: Annotated[
        str | None,
        typer.Option(help="Word vectors that the source's embedding begins with: a text file, glove, or a run."),
    ] = None,
    size: Annotated[
        str | None, typer.Option(help=f"{', '.join(SIZES)} (default: small).", autocompletion=_offer(*SIZES))
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(help=f"Of texts without a target side: {TOKENS} (default: by task).", autocompletion=KINDS),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="classify: label, labels (several, | between) or number; table: the column to be guessed."),
    ] = None,
    source_tokens: Annotated[str | None, typer.Option(help=f"{TOKENS} (default: chars).", autocompletion=KINDS)] = None,
    target_tokens: Annotated[str | None, typer.Option(help=f"{TOKENS} (default: chars).", autocompletion=KINDS)] = None,
    fold: Annotated[bool | None, typer.Option("--fold", help="Lose the difference of upper and lower case.")] = None,
    half_width: Annotated[
        bool | None,
        typer.Option("--half-width", help="Full-width letters, digits and signs become plain: Ａ１， → A1,"),
    ] = None,
    max_vocab: Annotated[int | None, typer.Option(help="At most so many tokens a side.")] = None,
    min_count: Annotated[int | None, typer.Option(help="Rarer tokens become <unk> (default: 1).")] = None,
    max_length: Annotated[int | None, typer.Option(help="Longer sides are cut to so many tokens.")] = None,
    cut: Annotated[str | None, typer.Option(help="Which end is cut off: tail or head (default: tail).")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Stop after so many passes (default: 20 if no other end is set).")
    ] = None,
    max_steps: Annotated[int | None, typer.Option(help="Stop after so many updates.")] = None,
    time: Annotated[str | None, typer.Option(help="Stop after this time: 90s, 5m, 1.5h.")] = None,
    patience: Annotated[int | None, typer.Option(help="Stop after so many validations without a better one.")] = None,
    batch_rows: Annotated[int | None, typer.Option(help="Examples a batch (default: 128).")] = None,
    batch_tokens: Annotated[int | None, typer.Option(help="Or: padded tokens a batch.")] = None,
    accumulate: Annotated[int | None, typer.Option(help="Batches an update (default: 1).")] = None,
    optimiser: Annotated[
        str | None, typer.Option(help=f"{', '.join(OPTIMISERS)} (default: adamw).", autocompletion=_offer(*OPTIMISERS))
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Highest learning rate (default: by model).")] = None,
    schedule: Annotated[
        str | None, typer.Option(help=f"{', '.join(SCHEDULES)} (default: by model).", autocompletion=_offer(*SCHEDULES))
    ] = None,
    average: Annotated[int | None, typer.Option(help="Average so many last checkpoints at the end.")] = None,
    seed: Annotated[int | None, typer.Option(help="Everything random comes from it (default: 7).")] = None,
    precision: Annotated[
        str | None, typer.Option(help=f"{' or '.join(PRECISIONS)} (default: fp32).", autocompletion=_offer(*PRECISIONS))
    ] = None,
    shard: Annotated[
        bool | None,
        typer.Option("--shard", help="Under torchrun: share a model that is too large for one GPU out among all."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in --output.")] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any keyword by name: decoder.score=additive, training.clip=0.5.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Read the data, take two steps, say what the training would cost, and leave."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="Print every line of the log, with rate and gradient norm; name the files."),
    ] = False,
    log_json: Annotated[
        bool, typer.Option("--log-json", help="Print every line of the log as JSON on stderr, for log collectors.")
    ] = False,
) -> None:
    """Train a model on your own data: one command from files to a run folder.

    Example: seqloom train translate words.tsv --source-tokens chars --target-tokens words --output runs/words
    """
    if recipe is not None and task is not None and task not in TASKS:
        task, files = None, [task, *(files or [])]  # a recipe knows its task: what stands there are files
    given = locals()
    if recipe is None and not (task and files):
        raise UsageError("name a task and files, as in: seqloom train translate words.tsv -o runs/words; or a --recipe")
    if recipe is None and not output and not dry_run:
        raise UsageError("missing option '--output' / '-o': a folder for the run")
    if recipe is not None and folds is not None:
        raise UsageError("--recipe and --folds exclude one another: a recipe has its own split")
    from seqloom.runs.config import parse_value
    from seqloom.runs.job import Job
    from seqloom.training.settings import seconds

    chosen = [name for name in ("quiet", "verbose", "log_json") if given[name]]
    if len(chosen) > 1:
        raise SeqloomError("--quiet, --verbose and --log-json exclude one another: choose one")
    data = {name: given[name] for name in ("source_tokens", "target_tokens", "fold", "half_width", "max_vocab")}
    data |= {"min_count": min_count, "max_length": max_length, "cut": cut}
    data |= {"columns": columns, "skip_bad": skip_bad, "limit": limit, "tokens": tokens, "target": target}
    data |= {"header": header, "delimiter": delimiter, "encoding": encoding}
    names = ("epochs", "max_steps", "patience", "batch_rows", "batch_tokens", "accumulate", "optimiser", "rate")
    training = {
        name: given[name] for name in (*names, "schedule", "average", "seed", "precision", "shard", "freeze", "vectors")
    }
    training["time"] = None if time is None else seconds(time)
    job = Job(
        task=task or "",
        files=files or [],
        output=output or "",
        valid=None if valid is None else valid[0] if len(valid) == 1 else valid,
        model=model,
        size=size,
        data=data,
        training=training,
        settings=dict(_pair(text, parse_value) for text in set_ or []),
        start=from_,
        device=device,
        resume=resume,
    )
    ways = {"recipe": recipe, "folds": folds, "jobs": jobs, "dry_run": dry_run}
    _carry_out(job, ways, chosen[0] if chosen else "usual")


def _carry_out(job: Job, ways: dict[str, Any], kind: str) -> None:
    """Plainly, by a recipe, by folds, or only two steps of it."""
    from dataclasses import replace

    from seqloom.runs import abreast, folds, follow, members, recipes, train
    from seqloom.runs.progress import progress
    from seqloom.training.distributed import Launch

    recipe = None if ways["recipe"] is None else recipes.load(ways["recipe"])
    abreast.check(ways["jobs"])
    if ways["jobs"] > 1 and ways["folds"] is None and not (recipe and recipe.members):
        raise UsageError("--jobs is for --folds and for recipes with members: here one model is trained")
    if recipe is not None:
        follow.check(recipe, str(ways["recipe"]))
        if job.task and job.task != recipe.task:
            raise UsageError(f"recipe {ways['recipe']} trains the task {recipe.task}, not {job.task}: leave that out")
        job = replace(job, output=job.output or f"runs/{recipe.name}")
        job = job if recipe.members else follow.job_of(recipe, job)
    first = Launch.of().rank == 0
    if ways["dry_run"]:
        jobs = members.jobs_of(recipe, job) if recipe is not None and recipe.members else [job]
        for one, times in members.alike(jobs):
            cost = train.rehearse(replace(one, output=one.output or "(dry run)"), progress(kind))
            several = [f"{times} members, each:"] if times > 1 else []
            typer.echo("\n".join([*several, *cost.lines()] if first else ()), nl=first)
        return
    told: list[str] = []
    if ways["folds"] is not None:
        found = folds.cross_validate(job, ways["folds"], kind, ways["jobs"])
        told = found.lines()
        number = found.signal
    elif recipe is not None and recipe.members:
        followed = members.follow_all(recipe, job, kind, ways["jobs"])
        told, number = followed.lines(recipe), followed.signal
    elif recipe is not None:
        followed = follow.follow(recipe, job, progress(kind))
        told, number = followed.lines(recipe), followed.signal
    else:
        number = train.carry_out(job, progress(kind)).signal
    for line in told if first else ():
        typer.echo(line)
    if number is not None:
        if first:
            again = f"--recipe {ways['recipe']}" if recipe else f"{job.task} …"
            again += f" --folds {ways['folds']}" if ways["folds"] else ""
            again += f" --jobs {ways['jobs']}" if ways["jobs"] > 1 else ""
            progress(kind).note(f"saved; go on with: seqloom train {again} --output {job.output} --resume")
        raise typer.Exit(128 + signal.Signals(number).value)


def _pair(text: str, parse: Any) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SeqloomError(f"--set takes key=value, here {text!r}")
    return key.strip(), parse(value)
