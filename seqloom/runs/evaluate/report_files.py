"""The files that describe a run: report.html, README.md (a model card), evaluation-*.json."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import safetensors
import yaml

from seqloom.data.files.columns import SPLIT_VERSIONS, ReadOptions
from seqloom.documents import read_json
from seqloom.errors import SeqloomError, shown
from seqloom.files import write_atomic, write_json, write_output
from seqloom.language import using
from seqloom.options import flattened, hints_of
from seqloom.reporting.html.page import GENERATOR
from seqloom.reporting.model_card import card, is_ours
from seqloom.reporting.pages.comparison import GroupResult, compare
from seqloom.reporting.pages.run_page import report
from seqloom.reporting.run_facts import HELD_OUT, Facts, Learned, diverged, imported, uniform_loss
from seqloom.runs import config as configs
from seqloom.runs.folder.ensembles import members_of
from seqloom.runs.folder.metrics_log import MetricsLog
from seqloom.runs.load import MODEL
from seqloom.runs.progress import Progress, write_stderr
from seqloom.runs.train.session import METRICS_FILE
from seqloom.safety import CONTENT_ERRORS, content_errors, system_errors
from seqloom.tasks.presets import suited
from seqloom.tasks.registry import task as get_task
from seqloom.tasks.shared.evaluation import SCHEMA
from seqloom.training.settings import Training

REPORT, CARD = "report.html", "README.md"
# Settings with an option of their own; all others are written as --set.
DATA_OPTIONS = (
    "columns",
    "limit",
    "sample",
    "source_tokens",
    "target_tokens",
    "tokens",
    "max_vocab",
    "min_count",
    "max_length",
    "truncate",
)
TRAINING_OPTIONS = (
    "epochs",
    "max_steps",
    "patience",
    "batch_rows",
    "batch_tokens",
    "accumulate",
    "optimizer",
    "learning_rate",
)
TRAINING_OPTIONS += ("schedule", "average_checkpoints", "seed", "precision", "freeze", "vectors")
STOPPING = (
    "epochs",
    "max_steps",
    "time",
    "patience",
    "batch_tokens",
)  # one that is set replaces the defaults of the others


def finish_run(folder: Path, evaluate: Callable[[], Mapping[str, Any] | None], progress: Progress) -> None:
    """At the end of training: `evaluate` the best model on the validation data, write the report and the model card.

    The run is complete by now: errors here are only a warning, which is printed with --quiet too.
    """
    try:
        (folder / evaluation_file("test")).unlink(missing_ok=True)  # outdated: of the model before this training
        if (scores := evaluate()) is not None:
            write_json(folder / evaluation_file("valid"), scores)
        facts = run_facts(folder)
        page = _write_pages(folder, facts)
        with using("en"):  # messages are English
            warning = diverged(facts.history, uniform_loss(facts))
    except Exception as error:
        reason = str(error).splitlines()[:1] or [type(error).__name__]
        write_stderr(f"seqloom: warning: {folder}: the run is done, but not its report: {reason[0]}")
        progress.note(f"done: {folder}")
    else:
        progress.note(f"done: {folder}; its report: {page}")
        if warning:
            progress.note(warning)


def write_run_report(folder: Path) -> Path:
    """Write report.html and README.md from the files in the folder; a README.md of the user's own stays."""
    return _write_pages(folder, run_facts(folder))


def _write_pages(folder: Path, facts: Facts) -> Path:
    write_atomic(folder / REPORT, _render(report, facts, folder))
    readme = folder / CARD
    if not readme.exists() or is_ours(readme.read_text(encoding="utf-8", errors="replace")):
        write_atomic(readme, _render(card, facts, folder))
    return folder / REPORT


def _render(draw: Callable[[Facts], str], facts: Facts, folder: Path) -> str:
    """A page. If drawing it fails, the error names the file whose content is wrong: without it, the page is drawn."""
    try:
        return draw(facts)
    except CONTENT_ERRORS:
        without: dict[str, dict[str, Any]] = {
            evaluation_file(name): {"records": {key: record for key, record in facts.records.items() if key != name}}
            for name in facts.records
        }
        without |= {"data.json": {"data": {}}, "env.json": {"environment": {}}, METRICS_FILE: {"history": []}}
        for file, changes in without.items():
            with suppress(*CONTENT_ERRORS):
                draw(replace(facts, **changes))
                with content_errors(folder / file):
                    return draw(facts)
        with content_errors(folder):
            return draw(facts)


@system_errors("the report")
def write_report(folders: Sequence[Path], output: Path | None = None, group: GroupResult | None = None) -> Path:
    """The report of one run (in its folder unless `output` is given), or a comparison of several, with the result of
    the `group` that they form. The folder of an ensemble stands for its members."""
    if len(folders) == 1 and (folders[0] / configs.ENSEMBLE).is_file():
        configs.check_folder(folders[0])
        evaluations = _evaluations(folders[0])
        group, output = GroupResult(record=next(iter(evaluations.values()), None)), output or folders[0] / REPORT
        folders = members_of(folders[0])
    if len(folders) == 1 and output is None:
        return write_run_report(folders[0])
    runs = [run_facts(folder) for folder in folders]
    if output is None:
        output = Path(REPORT)
        if output.is_file() and f'content="{GENERATOR} ' not in output.read_text(encoding="utf-8", errors="replace"):
            raise SeqloomError(f"{output}: is there already and is no report of Seqloom; name another --output")
    if len(runs) == 1:
        page = _render(report, runs[0], folders[0])
    else:
        for run, folder in zip(runs, folders, strict=True):
            _render(report, run, folder)  # an error names the run
        names = [run.name for run in runs]
        runs = [  # those of the same name are called by their paths
            run if names.count(run.name) == 1 else replace(run, name=str(folder))
            for run, folder in zip(runs, folders, strict=True)
        ]
        with content_errors("the report"):
            page = compare(runs, group)
    write_output(output, page)
    return output


def run_facts(folder: Path) -> Facts:
    """What the files of a run folder say. Only config.yaml must exist."""
    config = configs.load(folder)
    stored = {side: _vocabulary(folder / f"{side}.json") for side in ("source", "target")}
    with content_errors(folder / configs.FILE):
        repeat = command(folder, config)
    return Facts(
        name=folder.resolve().name,
        config=config,
        history=_history(folder / METRICS_FILE),
        environment=_json(folder / "env.json") or {},
        data=_json(folder / "data.json") or {},
        records=_evaluations(folder),
        parameters=_parameters(folder / MODEL),
        vocabulary={side: len(values["tokens"]) for side, values in stored.items() if values.get("tokens")},
        learned={side: _digests(values) for side, values in stored.items() if values.get("tokens")},
        command=repeat,
    )


def _vocabulary(path: Path) -> dict[str, Any]:
    stored = _json(path) or {}
    tokens = stored.get("tokens", [])
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise SeqloomError(f"{path}: its tokens must be a list of texts")
    return stored


def _evaluations(folder: Path) -> dict[str, Any]:
    """The evaluations on `test` and `valid` data that exist."""
    evaluations = {name: _json(folder / evaluation_file(name)) for name in HELD_OUT}
    for name, record in evaluations.items():
        schema = (record or {}).get("schema", SCHEMA)
        if not isinstance(schema, int):
            raise SeqloomError(f"{folder / evaluation_file(name)}: schema must be a whole number, here {shown(schema)}")
        if schema > SCHEMA:
            raise SeqloomError(f"{folder / evaluation_file(name)}: written by a newer Seqloom; upgrade seqloom")
    return {name: record for name, record in evaluations.items() if record}


def evaluation_file(name: str) -> str:
    """The file of an evaluation on `test` or `valid` data."""
    return f"evaluation-{name}.json"


def command(folder: Path, config: Mapping[str, Any]) -> tuple[str, ...]:
    """The command that trains or imports the same model again: by the preset and the settings that differ from it if
    these give the same config, else with the config file as the model."""
    if not config.keys() >= {"task", "preset", *configs.SECTIONS}:
        return ()
    task, preset, inputs = config["task"], config["preset"], config.get("inputs") or {}
    end = ["--output", f"{folder}-again"]
    if path := imported(config):
        ids = [] if config["data"].get("source_tokens") == "tokenizer" else ["--ids"]
        return ("seqloom", "import", "hf", path, *ids, *end)
    words = ["seqloom", "train", task, *map(str, inputs.get("train") or ["FILE"])]
    valid = inputs.get("valid")
    for held_out in valid if isinstance(valid, list) else [] if valid is None else [valid]:
        words += ["--valid", f"{100 * held_out:g}%" if isinstance(held_out, int | float) else str(held_out)]
    if "from" in inputs:
        options = _options(_with_data_choices(config, _fine_tuning_settings(config), fine_tuned=True))
        return (*words, "--from", inputs["from"], *options, *end)
    try:
        ends = {name: config["training"][name] for name in STOPPING if config["training"][name] is not None}
        base = configs.compose(task, preset["model"], preset["size"], {}, ends, {})
        changed = {f"training.{name}": value for name, value in ends.items()}
        for section in configs.SECTIONS:
            before, after = flattened(base[section]), flattened(config[section])
            changed |= {f"{section}.{key}": value for key, value in after.items() if before.get(key) != value}
        same = configs.compose(task, preset["model"], preset["size"], {}, {}, changed)
    except SeqloomError:  # a YAML file that is no longer there, a setting that needs another first
        same = None
    if same is not None and all(same[name] == config[name] for name in configs.SECTIONS):
        options = _options(_with_data_choices(config, changed))
        return (*words, "--model", preset["model"], "--size", preset["size"], *options, *end)
    default_data = configs.compose(task, None, None, {}, {}, {})["data"]
    changed = {f"data.{name}": v for name, v in config["data"].items() if default_data.get(name) != v}
    return (*words, "--model", str(folder / configs.FILE), *_options(_with_data_choices(config, changed)), *end)


def _with_data_choices(config: Mapping[str, Any], changed: dict[str, Any], fine_tuned: bool = False) -> dict[str, Any]:
    """`changed` and the settings that a new run would choose by its data or by newer rules; a `fine_tuned` run takes
    tokens and split from the run that it starts from."""
    rows, rules = config["training"].get("batch_rows"), config["data"].get("split_version", 1)
    chosen = {} if rows is None else {"training.batch_rows": rows}
    if not fine_tuned:
        chosen |= {} if rules == SPLIT_VERSIONS[-1] else {"data.split_version": rules}
        tokens = {"classify": "tokens", "translate": "target_tokens"}.get(config["task"])  # chosen by the data
        chosen |= {f"data.{tokens}": config["data"][tokens]} if tokens in config["data"] else {}
    return {name: value for name, value in changed.items() if name != "data.split_version"} | chosen


def _fine_tuning_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run that started from another, which gave its model and vocabularies."""
    training = config["training"]
    ends = {name: training[name] for name in STOPPING if training[name] is not None}
    task = get_task(config["task"])
    defaults = asdict(Training.of({**task.training, **suited(task.name, config["model"]), **ends}))
    changed = {f"training.{name}": v for name, v in training.items() if name in ends or v != defaults[name]}
    default_data = asdict(task.options())
    names = [name for name in (*hints_of(ReadOptions), "max_length", "truncate") if name in default_data]
    reading = {name: config["data"].get(name) for name in names}
    return changed | {f"data.{name}": value for name, value in reading.items() if value != default_data[name]}


def _options(changed: Mapping[str, Any]) -> list[str]:
    words = []
    for key, value in changed.items():
        section, _, name = key.partition(".")
        if name in {"data": DATA_OPTIONS, "training": TRAINING_OPTIONS}.get(section, ()) and value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
        elif key == "training.time" and value is not None:
            words += ["--time", f"{value:g}s"]
        else:
            text = yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("\n...\n").strip()
            words += ["--set", f"{key.removeprefix('model.')}={text}"]
    return words


def _json(path: Path) -> dict[str, Any] | None:
    return read_json(path) if path.exists() else None


def _history(path: Path) -> list[dict[str, Any]]:
    try:
        return MetricsLog(path).lines()
    except (OSError, ValueError) as error:
        raise SeqloomError(f"{path}: cannot be read: {error}") from error


def _digests(stored: Mapping[str, Any]) -> Learned:
    """Hashes of the tokenizer's merges and of the tokens. BPE falls back to bytes, so that no token is unknown."""
    merges = [stored.get(name) for name in ("merges", "tokenizer")]
    tokens = sorted(stored["tokens"]) if not any(merges) else []
    return Learned(*(sha256(json.dumps(part).encode()).hexdigest() for part in (merges, tokens)))


def _parameters(path: Path) -> int | None:
    """The number of parameters, from the header of the weights."""
    if not path.exists():
        return None
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise SeqloomError(f"{path}: weights missing or damaged ({error})") from error
