"""The files that describe a run: report.html, README.md (a model card), evaluation-*.json."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
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
from seqloom.options import flat, hints_of
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
from seqloom.safety import UNFIT, named, understood
from seqloom.tasks.presets import suited
from seqloom.tasks.registry import task as find
from seqloom.tasks.shared.evaluation import SCHEMA
from seqloom.training.settings import Training

REPORT, CARD = "report.html", "README.md"
# Settings that have an option of their own; all others are written as --set.
DATA = (
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
TRAINING = ("epochs", "max_steps", "patience", "batch_rows", "batch_tokens", "accumulate", "optimizer", "learning_rate")
TRAINING += ("schedule", "average_checkpoints", "seed", "precision", "freeze", "vectors")
ENDS = ("epochs", "max_steps", "time", "patience", "batch_tokens")  # where one is set, another is not filled in


def finish(folder: Path, evaluate: Callable[[], Mapping[str, Any] | None], progress: Progress) -> None:
    """At the end of training: `evaluate` the best model on what was held out, write the report and the model card.

    Whatever goes wrong here, the run itself is complete: it is reported in one line, also to those who asked for quiet.
    """
    try:
        (folder / evaluation("test")).unlink(missing_ok=True)  # of the model before it was trained further
        if (scores := evaluate()) is not None:
            write_json(folder / evaluation("valid"), scores)
        found = facts(folder)
        page = _written(folder, found)
        with using("en"):  # a message, not a page
            worse = diverged(found.history, uniform_loss(found))
    except Exception as error:
        reason = str(error).splitlines()[:1] or [type(error).__name__]
        write_stderr(f"seqloom: warning: {folder}: the run is done, but not its report: {reason[0]}")
        progress.note(f"done: {folder}")
    else:
        progress.note(f"done: {folder}; its report: {page}")
        if worse:
            progress.note(worse)


def write_run_report(folder: Path) -> Path:
    """report.html and README.md from the files in the folder alone; a README.md of the user's own stays."""
    return _written(folder, facts(folder))


def _written(folder: Path, found: Facts) -> Path:
    write_atomic(folder / REPORT, _rendered(report, found, folder))
    readme = folder / CARD
    if not readme.exists() or is_ours(readme.read_text(encoding="utf-8", errors="replace")):
        write_atomic(readme, _rendered(card, found, folder))
    return folder / REPORT


def _rendered(draw: Callable[[Facts], str], found: Facts, folder: Path) -> str:
    """A page. If it cannot be drawn, the error names the file without which it can."""
    try:
        return draw(found)
    except UNFIT:
        parts = {evaluation(name): {"records": _without(found.records, name)} for name in found.records}
        parts |= {"data.json": {"data": {}}, "env.json": {"environment": {}}, METRICS_FILE: {"history": []}}
        for file, less in parts.items():
            with suppress(*UNFIT):
                draw(Facts(**{**vars(found), **less}))
                with understood(folder / file):
                    return draw(found)
        with understood(folder):
            return draw(found)


def _without(records: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {one: record for one, record in records.items() if one != name}


@named("the report")
def write_report(folders: Sequence[Path], output: Path | None = None, whole: GroupResult | None = None) -> Path:
    """One page: the report of one run (in its folder unless `output` is named), or several runs side by side, `whole`
    being what they are parts of. A folder that stands for several is the page of those, and of what they reach
    together if that is known."""
    if len(folders) == 1 and (folders[0] / configs.ENSEMBLE).is_file():
        configs.check_folder(folders[0])
        known = _records(folders[0])
        whole, output = GroupResult(record=next(iter(known.values()), None)), output or folders[0] / REPORT
        folders = members_of(folders[0])
    if len(folders) == 1 and output is None:
        return write_run_report(folders[0])
    found = [facts(folder) for folder in folders]
    if output is None:
        output = Path(REPORT)
        if output.is_file() and f'content="{GENERATOR} ' not in output.read_text(encoding="utf-8", errors="replace"):
            raise SeqloomError(f"{output}: is there already and is no report of Seqloom; name another --output")
    if len(found) == 1:
        page = _rendered(report, found[0], folders[0])
    else:
        for one, folder in zip(found, folders, strict=True):
            _rendered(report, one, folder)  # an error names the run
        with understood("the report"):
            page = compare(_with_distinct_names(found, folders), whole)
    write_output(output, page)
    return output


def _with_distinct_names(found: list[Facts], folders: Sequence[Path]) -> list[Facts]:
    """Runs in folders of one name are called by their paths."""
    names = [one.name for one in found]
    return [
        one if names.count(one.name) == 1 else Facts(**{**vars(one), "name": str(folder)})
        for one, folder in zip(found, folders, strict=True)
    ]


def facts(folder: Path) -> Facts:
    """The content of a run folder's files. Only config.yaml must be there."""
    config = configs.load(folder)
    stored = {side: _vocabulary(folder / f"{side}.json") for side in ("source", "target")}
    with understood(folder / configs.FILE):
        again = command(folder, config)
    return Facts(
        name=folder.resolve().name,
        config=config,
        history=_history(folder / METRICS_FILE),
        environment=_json(folder / "env.json") or {},
        data=_json(folder / "data.json") or {},
        records=_records(folder),
        parameters=_parameters(folder / MODEL),
        vocabulary={side: len(found["tokens"]) for side, found in stored.items() if found.get("tokens")},
        learned={side: _learned(found) for side, found in stored.items() if found.get("tokens")},
        command=again,
    )


def _vocabulary(path: Path) -> dict[str, Any]:
    stored = _json(path) or {}
    tokens = stored.get("tokens", [])
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise SeqloomError(f"{path}: its tokens must be a list of texts")
    return stored


def _records(folder: Path) -> dict[str, Any]:
    """Its evaluations on `test` and `valid` data, as far as there are any."""
    evaluated = {name: _json(folder / evaluation(name)) for name in HELD_OUT}
    for name, found in evaluated.items():
        schema = (found or {}).get("schema", SCHEMA)
        if not isinstance(schema, int):
            raise SeqloomError(f"{folder / evaluation(name)}: schema must be a whole number, here {shown(schema)}")
        if schema > SCHEMA:
            raise SeqloomError(f"{folder / evaluation(name)}: written by a newer Seqloom; upgrade seqloom")
    return {name: found for name, found in evaluated.items() if found}


def evaluation(name: str) -> str:
    """The file of an evaluation on `test` or `valid` data."""
    return f"evaluation-{name}.json"


def command(folder: Path, config: Mapping[str, Any]) -> tuple[str, ...]:
    """The command that trains or imports the same model again, as far as it follows from the config.

    A preset and what differs from it, if that gives back the config; else the config itself as the model.
    """
    if not config.keys() >= {"task", "preset", *configs.SECTIONS}:
        return ()
    task, preset, inputs = config["task"], config["preset"], config.get("inputs") or {}
    end = ["--output", f"{folder}-again"]
    if path := imported(config):
        ids = [] if config["data"].get("source_tokens") == "tokenizer" else ["--ids"]
        return ("seqloom", "import", "hf", path, *ids, *end)
    words = ["seqloom", "train", task, *map(str, inputs.get("train") or ["FILE"])]
    valid = inputs.get("valid")
    for one in valid if isinstance(valid, list) else [] if valid is None else [valid]:
        words += ["--valid", f"{100 * one:g}%" if isinstance(one, int | float) else str(one)]
    if "from" in inputs:
        return (
            *words,
            "--from",
            inputs["from"],
            *_options(_with_data_choices(config, _tuned(config), tuned=True)),
            *end,
        )
    try:
        ends = {name: config["training"][name] for name in ENDS if config["training"][name] is not None}
        base = configs.compose(task, preset["model"], preset["size"], {}, ends, {})
        changed = {f"training.{name}": value for name, value in ends.items()} | _changed(base, config)
        same = configs.compose(task, preset["model"], preset["size"], {}, {}, changed)
    except SeqloomError:  # a YAML file that is no longer there, a setting that needs another first
        same = None
    if same is not None and all(same[name] == config[name] for name in configs.SECTIONS):
        words_of = _with_data_choices(config, changed)
        return (*words, "--model", preset["model"], "--size", preset["size"], *_options(words_of), *end)
    from_config = configs.compose(task, None, None, {}, {}, {})["data"]
    other = {f"data.{name}": v for name, v in config["data"].items() if from_config.get(name) != v}
    return (*words, "--model", str(folder / configs.FILE), *_options(_with_data_choices(config, other)), *end)


def _with_data_choices(config: Mapping[str, Any], changed: dict[str, Any], tuned: bool = False) -> dict[str, Any]:
    """`changed` and what a new run would choose by its data or by newer rules; a `tuned` one takes these from the
    run it starts from."""
    rows, rules = config["training"].get("batch_rows"), config["data"].get("split_version", 1)
    chosen = {} if rows is None else {"training.batch_rows": rows}
    if not tuned:
        chosen |= {} if rules == SPLIT_VERSIONS[-1] else {"data.split_version": rules}
        looked = {"classify": "tokens", "translate": "target_tokens"}.get(config["task"])  # how a new run cuts texts
        chosen |= {f"data.{looked}": config["data"][looked]} if looked in config["data"] else {}
    return {name: value for name, value in changed.items() if name != "data.split_version"} | chosen


def _tuned(config: Mapping[str, Any]) -> dict[str, Any]:
    """What was set for a run that started from another, which gave its model and vocabularies."""
    training = config["training"]
    ends = {name: training[name] for name in ENDS if training[name] is not None}
    task = find(config["task"])
    usual = asdict(Training.of({**task.training, **suited(task.name, config["model"]), **ends}))
    changed = {f"training.{name}": value for name, value in training.items() if name in ends or value != usual[name]}
    plain = asdict(task.options())
    names = [name for name in (*hints_of(ReadOptions), "max_length", "truncate") if name in plain]
    read = {name: config["data"].get(name) for name in names}
    return changed | {f"data.{name}": value for name, value in read.items() if value != plain[name]}


def _changed(base: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name in configs.SECTIONS:
        before, after = flat(base[name]), flat(config[name])
        found |= {f"{name}.{key}": value for key, value in after.items() if before.get(key) != value}
    return found


def _options(changed: Mapping[str, Any]) -> list[str]:
    words = []
    for key, value in changed.items():
        section, _, name = key.partition(".")
        if name in {"data": DATA, "training": TRAINING}.get(section, ()) and value is not None:
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


def _learned(stored: Mapping[str, Any]) -> Learned:
    """Hashes of the tokenizer's merges and of the tokens. Of bpe, which falls back to bytes, no token is unknown."""
    cutting = [stored.get(name) for name in ("merges", "tokenizer")]
    tokens = sorted(stored["tokens"]) if not any(cutting) else []
    return Learned(*(sha256(json.dumps(one).encode()).hexdigest() for one in (cutting, tokens)))


def _parameters(path: Path) -> int | None:
    """Counted in the header of the weights, where every trained tensor stands once."""
    if not path.exists():
        return None
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise SeqloomError(f"{path}: weights missing or damaged ({error})") from error
