"""seqloom train"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from seqloom.cli import complete
from seqloom.cli.complete import offer
from seqloom.cli.data import COLUMNS, DELIMITER, ENCODING, HEADER
from seqloom.cli.train_modes import carry_out, pair, words
from seqloom.cli.usage import UsageError, named
from seqloom.tasks.presets import SIZES
from seqloom.tasks.registry import TASKS
from seqloom.training.settings import OPTIMISERS, PRECISIONS, SCHEDULES

SHAPES = "; ".join(f"{name}: {what}" for name, what in TASKS.items())
TOKENS = "chars, words, terms (words with punctuation apart), bytes, bpe:N, or jieba for Chinese words"

# Options under the headings of the help, which come below the ten that are wanted most.
DATA = partial(typer.Option, rich_help_panel="Which data")
CUTTING = partial(typer.Option, rich_help_panel="How text becomes tokens")
COURSE = partial(typer.Option, rich_help_panel="How to train")
BEGINNING = partial(typer.Option, rich_help_panel="What to begin with")
SEVERAL = partial(typer.Option, rich_help_panel="Several trainings, several processes")
TOLD = partial(typer.Option, rich_help_panel="What is printed")


def train(
    task: Annotated[str | None, typer.Argument(help=f"{SHAPES}.", autocompletion=offer(*TASKS))] = None,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="TSV, CSV or JSONL of pairs, or two parallel texts; .gz of each; - for standard input; or a dataset "
            "by name (seqloom data list).",
            autocompletion=complete.datasets,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", callback=named, help="Folder for the run (a recipe's default: runs/NAME)."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A preset or a YAML file (default: by task); seqloom settings TASK names the presets.",
            autocompletion=complete.models,
        ),
    ] = None,
    size: Annotated[
        str | None, typer.Option(help=f"{', '.join(SIZES)} (default: small).", autocompletion=offer(*SIZES))
    ] = None,
    valid: Annotated[
        list[str] | None,
        typer.Option(
            help="Validation file, or a share of the training data such as 5% (default; a dataset brings its own), "
            "the same for other seeds: '5% with seed 7'. Parallel files: --valid dev.en --valid dev.de."
        ),
    ] = None,
    test: Annotated[
        list[str] | None,
        typer.Option(
            help="Score the best model on this file, or dataset, at the end; lines with one source are one example.",
            autocompletion=complete.datasets,
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Stop after so many passes (default: 20 if no other end is set).")
    ] = None,
    time: Annotated[str | None, typer.Option(help="Stop after this time: 90s, 5m, 1.5h.")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="A training with a known result (seqloom recipes), or a file of one; on its own data, or on your "
            "files, as in: --recipe NAME mine.tsv.",
            autocompletion=complete.recipes,
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", autocompletion=complete.devices)] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in --output.")] = False,
    columns: Annotated[str | None, DATA(help=COLUMNS)] = None,
    header: Annotated[bool | None, DATA("--header/--no-header", help=HEADER)] = None,
    delimiter: Annotated[str | None, DATA(help=DELIMITER)] = None,
    encoding: Annotated[str | None, DATA(help=ENCODING)] = None,
    target: Annotated[
        str | None,
        DATA(
            help="classify: label, labels (several, | between) or number; table: the column to be guessed.",
            autocompletion=offer("label", "labels", "number"),
        ),
    ] = None,
    skip_bad: Annotated[
        bool | None,
        DATA("--skip-bad", help="Leave out broken lines and count them, instead of stopping."),
    ] = None,
    limit: Annotated[int | None, DATA(help="Only the first so many examples of the training files.")] = None,
    sample: Annotated[
        int | None, DATA(help="Only so many examples, drawn by a hash from all of the training files.")
    ] = None,
    tokens: Annotated[
        str | None,
        CUTTING(
            help=f"Of texts without a target side: {TOKENS} (default: by task).", autocompletion=offer(*complete.KINDS)
        ),
    ] = None,
    source_tokens: Annotated[
        str | None,
        CUTTING(help="The same, of sources (default: chars).", autocompletion=offer(*complete.KINDS)),
    ] = None,
    target_tokens: Annotated[
        str | None,
        CUTTING(
            help="The same, of targets (default: chars; words if they are short symbols with blanks between: HH AH L).",
            autocompletion=offer(*complete.KINDS),
        ),
    ] = None,
    lowercase: Annotated[
        bool | None, CUTTING("--lowercase", help="Read and write lower case; ß stays ß. Papers mostly do this.")
    ] = None,
    fold: Annotated[
        bool | None,
        CUTTING("--fold", help="Unicode's case folding instead: lower case, and ß becomes ss, in references too."),
    ] = None,
    half_width: Annotated[
        bool | None,
        CUTTING("--half-width", help="Full-width letters, digits and signs become plain: Ａ１， → A1,"),
    ] = None,
    max_vocab: Annotated[int | None, CUTTING(help="At most so many tokens a side.")] = None,
    min_count: Annotated[int | None, CUTTING(help="Rarer tokens become <unk> (default: 1).")] = None,
    max_length: Annotated[int | None, CUTTING(help="Longer sides are cut to so many tokens.")] = None,
    cut: Annotated[
        str | None,
        CUTTING(help="Which end is cut off: tail or head (default: tail).", autocompletion=offer("tail", "head")),
    ] = None,
    max_steps: Annotated[int | None, COURSE(help="Stop after so many updates.")] = None,
    patience: Annotated[int | None, COURSE(help="Stop after so many validations without a better one.")] = None,
    batch_rows: Annotated[
        int | None, COURSE(help="Examples a batch (default: by model and size of the data, 16 to 128).")
    ] = None,
    batch_tokens: Annotated[int | None, COURSE(help="Or: padded tokens a batch.")] = None,
    accumulate: Annotated[int | None, COURSE(help="Batches an update (default: 1).")] = None,
    optimiser: Annotated[
        str | None,
        COURSE(
            "--optimiser",
            "--optimizer",
            help=f"{', '.join(OPTIMISERS)} (default: adamw).",
            autocompletion=offer(*OPTIMISERS),
        ),
    ] = None,
    rate: Annotated[float | None, COURSE(help="Highest learning rate (default: by model).")] = None,
    schedule: Annotated[
        str | None,
        COURSE(help=f"{', '.join(SCHEDULES)} (default: by model).", autocompletion=offer(*SCHEDULES)),
    ] = None,
    average: Annotated[int | None, COURSE(help="Average so many last checkpoints at the end.")] = None,
    seed: Annotated[int | None, COURSE(help="Everything random comes from it (default: 7).")] = None,
    precision: Annotated[
        str | None,
        COURSE(help=f"{' or '.join(PRECISIONS)} (default: fp32).", autocompletion=offer(*PRECISIONS)),
    ] = None,
    set_: Annotated[
        list[str] | None,
        COURSE(
            "--set",
            help="Any setting by name: decoder.score=additive, training.clip=0.5; seqloom settings TASK lists them.",
            autocompletion=complete.settings,
        ),
    ] = None,
    from_: Annotated[
        str | None,
        BEGINNING(
            "--from",
            help="Start from the weights and vocabularies of this run: fine-tuning; of another task's run, from its "
            "embedding and encoder.",
        ),
    ] = None,
    freeze: Annotated[
        str | None,
        BEGINNING(help="Parts whose weights stay as they are, commas between: source,encoder."),
    ] = None,
    vectors: Annotated[
        str | None,
        BEGINNING(help="Word vectors that the source's embedding begins with: a text file, glove, or a run."),
    ] = None,
    folds: Annotated[
        int | None,
        SEVERAL(help="Cross-validation: train so many times, each time with another part held out."),
    ] = None,
    jobs: Annotated[
        int,
        SEVERAL(help="Members of a recipe, or folds, trained at once, each in a process of its own."),
    ] = 1,
    shard: Annotated[
        bool | None,
        SEVERAL("--shard", help="Under torchrun: share a model that is too large for one GPU out among all."),
    ] = None,
    dry_run: Annotated[
        bool,
        TOLD("--dry-run", help="Read the data, take two steps, say what the training would cost, and leave."),
    ] = False,
    quiet: Annotated[bool, TOLD("--quiet", help="Print nothing but errors.")] = False,
    verbose: Annotated[
        bool,
        TOLD("--verbose", help="Print every line of the log, with rate and gradient norm; name the files."),
    ] = False,
    log_json: Annotated[
        bool,
        TOLD("--log-json", help="Print every line of the log as JSON on stderr, for log collectors."),
    ] = False,
) -> None:
    """Train a model on your own data: one command from files to a run folder.

    Example: seqloom train translate words.tsv --source-tokens chars --target-tokens words --output runs/words
    """
    given = locals()
    if recipe is None and not (task and files):
        raise UsageError("name a task and files, as in: seqloom train translate words.tsv -o runs/words; or a --recipe")
    if recipe is None and not output and not dry_run:
        raise UsageError("missing option '--output' / '-o': a folder for the run")
    if recipe is not None and folds is not None:
        raise UsageError("--recipe and --folds exclude one another: a recipe has its own split")
    task, files = words(task, files, recipe)
    from seqloom.errors import setting
    from seqloom.runs.config import parse_value
    from seqloom.runs.train.job import Job, share_or_files
    from seqloom.training.settings import seconds

    chosen = [name for name in ("quiet", "verbose", "log_json") if given[name]]
    if len(chosen) > 1:
        raise UsageError("--quiet, --verbose and --log-json exclude one another: choose one")
    if lowercase and fold:
        raise UsageError("--lowercase and --fold exclude one another: the first keeps ß, the second makes it ss")
    if valid is not None and len(valid) == 1:
        with setting("--valid"):
            share_or_files(valid[0])
    sections = (
        "columns",
        "header",
        "delimiter",
        "encoding",
        "skip_bad",
        "limit",
        "sample",
        "target",
        "tokens",
        "source_tokens",
        "target_tokens",
    )
    data = {name: given[name] for name in (*sections, "half_width", "max_vocab", "min_count", "max_length", "cut")}
    data["fold"] = "lower" if lowercase else fold
    names = ("epochs", "max_steps", "patience", "batch_rows", "batch_tokens", "accumulate", "optimiser", "rate")
    training = {
        name: given[name] for name in (*names, "schedule", "average", "seed", "precision", "shard", "freeze", "vectors")
    }
    training["time"] = None if time is None else seconds(time)
    job = Job(
        task=task,
        files=files,
        output=output or "",
        valid=None if valid is None else valid[0] if len(valid) == 1 else valid,
        test=test,
        model=model,
        size=size,
        data=data,
        training=training,
        settings=dict(pair(text, parse_value) for text in set_ or []),
        start=from_,
        device=device,
        resume=resume,
    )
    ways = {"recipe": recipe, "folds": folds, "jobs": jobs, "dry_run": dry_run}
    carry_out(job, ways, chosen[0] if chosen else "usual")
