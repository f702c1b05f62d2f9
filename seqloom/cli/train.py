"""seqloom train"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import typer

from seqloom.cli import completion
from seqloom.cli.arguments import UsageError, current_options, output_name
from seqloom.cli.completion import offer
from seqloom.cli.data import COLUMNS, DELIMITER, ENCODING, HEADER
from seqloom.cli.train_modes import Mode, run, task_and_files
from seqloom.tasks.presets import SIZES
from seqloom.tasks.registry import TASKS
from seqloom.training.optim.optimizer_table import OPTIMIZERS
from seqloom.training.optim.schedule import SCHEDULES
from seqloom.training.settings import PRECISIONS

SHAPES = "; ".join(f"{name}: {one.line}" for name, one in TASKS.items())
TOKENS = "chars, words, terms (words with punctuation apart), bytes, bpe:N, or jieba for Chinese words"

# Headings of the help; the ten options used most come before them, without one.
DATA = partial(typer.Option, rich_help_panel="Which data")
TOKENIZING = partial(typer.Option, rich_help_panel="How text becomes tokens")
TRAINING = partial(typer.Option, rich_help_panel="How to train")
STARTING = partial(typer.Option, rich_help_panel="What to start from")
SEVERAL = partial(typer.Option, rich_help_panel="Several trainings or processes")
PRINTED = partial(typer.Option, rich_help_panel="What is printed")
FORMER_OPTION = partial(typer.Option, hidden=True)  # what an option was called in earlier versions

# Options that are settings of the same name, in the sections `data` and `training` of the config.
DATA_OPTIONS = (
    *("columns", "header", "delimiter", "encoding", "skip_bad", "limit", "sample", "target"),
    *("tokens", "source_tokens", "target_tokens", "half_width", "max_vocab", "min_count", "max_length", "truncate"),
)
TRAINING_OPTIONS = (
    *("epochs", "max_steps", "patience", "batch_rows", "batch_tokens", "accumulate", "optimizer"),
    *("learning_rate", "schedule", "average_checkpoints", "seed", "precision", "shard", "freeze", "vectors"),
)
OUTPUT_KINDS = ("quiet", "verbose", "log_json")  # what is printed meanwhile, if not the usual


def train(
    task: Annotated[str | None, typer.Argument(help=f"{SHAPES}.", autocompletion=offer(*TASKS))] = None,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="TSV, CSV or JSONL of pairs, or two parallel text files, also as .gz; - for standard input; or the "
            "name of a dataset (seqloom data list).",
            autocompletion=completion.datasets,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", callback=output_name, help="Folder for the run (default with a recipe: runs/NAME)."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A preset or a YAML file (default: by task); seqloom settings TASK lists the presets.",
            autocompletion=completion.models,
        ),
    ] = None,
    size: Annotated[
        str | None, typer.Option(help=f"{', '.join(SIZES)} (default: small).", autocompletion=offer(*SIZES))
    ] = None,
    valid: Annotated[
        list[str] | None,
        typer.Option(
            help="Validation file, or a share of the training data: 5% (the default, unless the dataset has its own), "
            "'5% with seed 7' (the same examples for any --seed). Parallel files: --valid dev.en --valid dev.de."
        ),
    ] = None,
    test: Annotated[
        list[str] | None,
        typer.Option(
            help="Score the best model on this file or dataset at the end; lines with the same source are one example.",
            autocompletion=completion.datasets,
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Stop after this many passes over the data (default: 20 if no other limit is set)."),
    ] = None,
    time: Annotated[str | None, typer.Option(help="Stop after this time: 90s, 5m, 1.5h.")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Train by a recipe with a known result (seqloom recipes lists them) or by a recipe file, on its own "
            "data or on your files: --recipe NAME mine.tsv.",
            autocompletion=completion.recipes,
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", autocompletion=completion.devices)] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint in --output.")] = False,
    columns: Annotated[str | None, DATA(help=COLUMNS)] = None,
    header: Annotated[bool | None, DATA("--header/--no-header", help=HEADER)] = None,
    delimiter: Annotated[str | None, DATA(help=DELIMITER)] = None,
    encoding: Annotated[str | None, DATA(help=ENCODING)] = None,
    target: Annotated[
        str | None,
        DATA(
            help="classify: label, labels (several, separated by |) or number; table: the column to predict.",
            autocompletion=offer("label", "labels", "number"),
        ),
    ] = None,
    skip_bad: Annotated[
        bool | None,
        DATA("--skip-bad", help="Skip and count broken lines, instead of stopping."),
    ] = None,
    limit: Annotated[int | None, DATA(help="Use only the first N training examples.")] = None,
    sample: Annotated[
        int | None, DATA(help="Use only N of the training examples, chosen by a hash: always the same ones.")
    ] = None,
    tokens: Annotated[
        str | None,
        TOKENIZING(
            help=f"Tokens of texts without a target side: {TOKENS} (default: by task).",
            autocompletion=offer(*completion.KINDS),
        ),
    ] = None,
    source_tokens: Annotated[
        str | None,
        TOKENIZING(
            help="Tokens of the source, one of the same (default: chars).", autocompletion=offer(*completion.KINDS)
        ),
    ] = None,
    target_tokens: Annotated[
        str | None,
        TOKENIZING(
            help="Tokens of the target (default: chars; words if targets are symbols separated by spaces: HH AH L).",
            autocompletion=offer(*completion.KINDS),
        ),
    ] = None,
    lowercase: Annotated[
        bool | None, TOKENIZING("--lowercase", help="Turn all text into lower case; ß stays ß. Most papers do this.")
    ] = None,
    casefold: Annotated[
        bool | None,
        TOKENIZING("--casefold", help="Unicode case folding instead: lower case, and ß becomes ss, in references too."),
    ] = None,
    half_width: Annotated[
        bool | None,
        TOKENIZING("--half-width", help="Turn full-width letters, digits and signs into plain ones: Ａ１， → A1,"),
    ] = None,
    max_vocab: Annotated[int | None, TOKENIZING(help="Largest vocabulary of each side.")] = None,
    min_count: Annotated[int | None, TOKENIZING(help="Rarer tokens become <unk> (default: 1).")] = None,
    max_length: Annotated[int | None, TOKENIZING(help="Truncate each side to this many tokens.")] = None,
    truncate: Annotated[
        str | None,
        TOKENIZING(
            help="Which end of a long text is cut off: tail or head (default: tail).",
            autocompletion=offer("tail", "head"),
        ),
    ] = None,
    max_steps: Annotated[int | None, TRAINING(help="Stop after this many updates.")] = None,
    patience: Annotated[
        int | None, TRAINING(help="Stop after this many validations without improvement (early stopping).")
    ] = None,
    batch_rows: Annotated[
        int | None, TRAINING(help="Examples per batch (default: by model and size of the data, 16 to 128).")
    ] = None,
    batch_tokens: Annotated[int | None, TRAINING(help="Or: padded tokens per batch.")] = None,
    accumulate: Annotated[int | None, TRAINING(help="Batches per update: gradient accumulation (default: 1).")] = None,
    optimizer: Annotated[
        str | None,
        TRAINING(help=f"{', '.join(OPTIMIZERS)} (default: adamw).", autocompletion=offer(*OPTIMIZERS)),
    ] = None,
    learning_rate: Annotated[float | None, TRAINING(help="Highest learning rate (default: by model).")] = None,
    schedule: Annotated[
        str | None,
        TRAINING(help=f"{', '.join(SCHEDULES)} (default: by model).", autocompletion=offer(*SCHEDULES)),
    ] = None,
    average_checkpoints: Annotated[int | None, TRAINING(help="Average this many last checkpoints at the end.")] = None,
    seed: Annotated[int | None, TRAINING(help="Random seed (default: 7).")] = None,
    precision: Annotated[
        str | None,
        TRAINING(help=f"{' or '.join(PRECISIONS)} (default: fp32).", autocompletion=offer(*PRECISIONS)),
    ] = None,
    set_: Annotated[
        list[str] | None,
        TRAINING(
            "--set",
            help="Any setting by name: decoder.score=additive, training.clip=0.5; seqloom settings TASK lists them.",
            autocompletion=completion.settings,
        ),
    ] = None,
    from_: Annotated[
        str | None,
        STARTING(
            "--from",
            help="Start from the weights and vocabularies of this run (fine-tuning), or from the embedding and encoder "
            "of a run of another task.",
        ),
    ] = None,
    freeze: Annotated[
        str | None,
        STARTING(help="Parts whose weights are not trained, separated by commas: source,encoder."),
    ] = None,
    vectors: Annotated[
        str | None,
        STARTING(help="Pretrained word vectors for the source embedding: a text file, glove, or a run."),
    ] = None,
    folds: Annotated[
        int | None,
        SEVERAL(help="Cross-validation: train N times, each time with another part of the data held out."),
    ] = None,
    jobs: Annotated[
        int,
        SEVERAL(help="How many folds, or members of a recipe, are trained at the same time, each in its own process."),
    ] = 1,
    shard: Annotated[
        bool | None,
        SEVERAL(
            "--shard", help="Under torchrun: split a model that is too large for one GPU across all of them (FSDP)."
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        PRINTED(
            "--dry-run", help="Read the data, train for two steps, report what the whole training would cost, and stop."
        ),
    ] = False,
    quiet: Annotated[bool, PRINTED("--quiet", help="Print only errors.")] = False,
    verbose: Annotated[
        bool,
        PRINTED(
            "--verbose",
            help="Print every line of the log, with learning rate and gradient norm, and where files are written.",
        ),
    ] = False,
    log_json: Annotated[
        bool,
        PRINTED("--log-json", help="Print every line of the log as JSON on stderr, for log collectors."),
    ] = False,
    earlier_fold: Annotated[bool | None, FORMER_OPTION("--fold")] = None,
    earlier_cut: Annotated[str | None, FORMER_OPTION("--cut")] = None,
    earlier_optimiser: Annotated[str | None, FORMER_OPTION("--optimiser")] = None,
    earlier_rate: Annotated[float | None, FORMER_OPTION("--rate")] = None,
    earlier_average: Annotated[int | None, FORMER_OPTION("--average")] = None,
) -> None:
    """Train a model on your own data: one command from files to a run folder.

    Example: seqloom train translate words.tsv --source-tokens chars --target-tokens words --output runs/words
    """
    given = current_options(locals())
    _check(given)
    task, files = task_and_files(task, files, recipe)
    from seqloom.errors import setting_errors
    from seqloom.runs.settings.set_option import parse_set
    from seqloom.runs.train.job import Job
    from seqloom.runs.train.validation_split import parse_valid
    from seqloom.training.settings import parse_seconds

    held_out = valid[0] if valid is not None and len(valid) == 1 else valid
    if isinstance(held_out, str):
        with setting_errors("--valid"):
            parse_valid(held_out)
    case = "lower" if given["lowercase"] else "casefold" if given["casefold"] else None
    job = Job(
        task=task,
        files=files,
        output=output or "",
        valid=held_out,
        test=test,
        model=model,
        size=size,
        data={name: given[name] for name in DATA_OPTIONS} | {"lowercase": case},
        training={name: given[name] for name in TRAINING_OPTIONS}
        | {"time": None if time is None else parse_seconds(time)},
        settings=dict(map(parse_set, set_ or [])),
        start=from_,
        device=device,
        resume=resume,
    )
    show = next((name for name in OUTPUT_KINDS if given[name]), "default")
    run(job, Mode(recipe, folds, jobs, dry_run, show))


def _check(given: Mapping[str, Any]) -> None:
    """Refuse a command without data or output, and options that contradict each other."""
    if given["recipe"] is None and not (given["task"] and given["files"]):
        raise UsageError("name a task and files, as in: seqloom train translate words.tsv -o runs/words; or a --recipe")
    if given["recipe"] is None and not given["output"] and not given["dry_run"]:
        raise UsageError("missing option '--output' / '-o': a folder for the run")
    if given["recipe"] is not None and given["folds"] is not None:
        raise UsageError("--recipe and --folds exclude one another: a recipe has its own split")
    if sum(given[name] for name in OUTPUT_KINDS) > 1:
        raise UsageError("--quiet, --verbose and --log-json exclude one another: choose one")
    if given["lowercase"] and given["casefold"]:
        raise UsageError("--lowercase and --casefold exclude one another: the first keeps ß, the second makes it ss")
