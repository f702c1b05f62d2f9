"""Engines: a run's model in the form of another library, in a folder that needs nothing else.

`seqloom export` writes one to --output; `predict --engine` keeps one in the run's folder `engines` and exports again
when the run's weights have changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata, util
from pathlib import Path
from typing import Any

import torch

from seqloom.build import complete
from seqloom.documents import read_json
from seqloom.errors import SeqloomError, known, shown
from seqloom.files import damage, new_folder, sha256, write_atomic, write_json
from seqloom.models.seq2seq import MODELS
from seqloom.runs import config as configs
from seqloom.runs.folder.folder_checks import check_sections
from seqloom.runs.interop import ctranslate2_export, export_example, onnx_export
from seqloom.runs.interop.ctranslate2_run import load_ct2
from seqloom.runs.interop.onnx_run import OnnxModel
from seqloom.runs.load import ENGINE, MODEL, load_one, read_vocabularies
from seqloom.safety import content_errors
from seqloom.tasks.shared.predictor import LoadedRun
from seqloom.tasks.translate.model import Translator
from seqloom.tasks.translate.task import TASK
from seqloom.version import __version__

CACHE, README = "engines", "README.md"
ENGINE_FILES = (".onnx", ".data", ".bin", ".json", ".yaml")  # endings of what engines read
ENGINES = {
    "onnx": ("onnxruntime", ("onnx", "onnxscript")),
    "ct2": ("ctranslate2", ()),
}  # what runs it, and what else writing it needs


@dataclass(frozen=True)
class ExportedEngine:
    """An engine that was written: where, and by how much it differs from torch."""

    folder: Path
    engine: str
    difference: float


def export_engine(run: str | Path, output: str | Path, engine: str, int8: bool = False) -> ExportedEngine:
    """Write a run for another library into a new folder, which appears if it says what torch says."""
    folder = Path(output)
    if folder.exists():
        raise SeqloomError(f"{folder}: is there already; name another --output")
    return ExportedEngine(folder, engine, _write(Path(run), folder, engine, int8))


def load_engine(run: str | Path, engine: str | None = None) -> Translator:
    """A run by an engine, as its Translator; or an exported folder, which knows its engine."""
    folder = Path(run)
    configs.check_folder(folder)
    if (folder / ENGINE).is_file():
        return _opened(_checked(folder, engine))
    name = known(engine or "torch", ("torch", *ENGINES), "engine")
    kept = folder / CACHE / name
    if not _fresh(folder, kept):
        _write(folder, kept, name, False)
    return _opened(kept)


def engine_facts(folder: Path) -> dict[str, Any]:
    """What an exported folder says of itself."""
    file = folder / ENGINE
    facts = read_json(file)
    known(str(facts.get("engine", "")), ENGINES, f"engine in {file}")
    for name, kind in {"seqloom": str, "libraries": dict, "places": list, "difference": float, "weights": str}.items():
        if not isinstance(facts.get(name), kind):
            raise SeqloomError(f"{file}: {name} cannot be {shown(facts.get(name))}; export it again")
    return facts


def _checked(folder: Path, engine: str | None) -> Path:
    made_for = engine_facts(folder)["engine"]
    if engine not in (None, made_for):
        raise SeqloomError(f"{folder}: was exported for the engine {made_for}, not for {engine}; leave --engine out")
    added = [
        file.name for file in folder.iterdir() if file.suffix not in ENGINE_FILES
    ]  # a Dockerfile, a script of the user's
    if wrong := damage(folder, (ENGINE, configs.FILE), beside=added):
        raise SeqloomError(f"{folder}: damaged: {wrong}; export it again")
    return folder


def _fresh(run: Path, kept: Path) -> bool:
    """Whether the engine kept in a run's folder is whole, and made of these weights by this version."""
    if not kept.is_dir() or damage(kept, (ENGINE, configs.FILE), beside=(README,)):
        return False
    facts = engine_facts(kept)
    return facts["seqloom"] == __version__ and (run / MODEL).is_file() and facts["weights"] == sha256(run / MODEL)


def _write(run: Path, folder: Path, engine: str, int8: bool) -> float:
    runs, writes = ENGINES[known(engine, ENGINES, "engine")]
    for package in (runs, *writes):
        if util.find_spec(package) is None:
            raise SeqloomError(f"the engine {engine} needs {package}: pip install 'seqloom[export]'")
    config = configs.load(run)
    if config["task"] != "translate":
        raise SeqloomError(f"{run}: is of the task {config['task']}; the engines are for translate")
    made = load_one(run, "cpu")
    model = complete(MODELS, config["model"])  # an older run's config has fewer keywords
    if engine == "ct2":
        ctranslate2_export.check_supported(model, str(run))
    with new_folder(folder) as fresh:
        places, difference = _written(made, model, fresh, engine, int8)
        facts = {
            "engine": engine,
            "int8": int8,
            "seqloom": __version__,
            "libraries": {name: metadata.version(name) for name in (runs, *writes)},
            "weights": sha256(run / MODEL),
            "places": places,
            "difference": difference,
        }
        write_json(fresh / ENGINE, facts)
        for name, value in read_vocabularies(run, config).items():
            write_json(fresh / f"{name}.json", value)
        configs.save(fresh, config)
    write_atomic(folder / README, _card(config, facts))  # later: it is not among the sums, and may be edited
    return difference


def _written(
    made: Translator, model: dict[str, Any], fresh: Path, engine: str, int8: bool
) -> tuple[list[int | None], float]:
    """Writes the model; gives its places and the difference from torch."""
    if engine == "onnx":
        places = onnx_export.max_positions_of(model)
        difference = onnx_export.write_onnx(made, fresh, places, int8)
        export_example.write_example(made.texts, fresh)
        return places, difference
    places = ctranslate2_export.max_positions_of(model)
    return places, ctranslate2_export.write_ct2(made, model, fresh, places, int8)


def _opened(folder: Path) -> Translator:
    config, facts = configs.load(folder), engine_facts(folder)
    check_sections(config, folder / configs.FILE)
    name = facts["engine"]
    stored, device = read_vocabularies(folder, config), torch.device("cpu")
    with content_errors(folder):
        if name == "onnx":
            return TASK.runner(LoadedRun(folder, config, OnnxModel(folder, facts["places"]), stored, device))
        run = LoadedRun(folder, config, None, stored, device)  # there is no model but theirs
        texts = load_ct2(folder, facts["places"], TASK.runner(run).texts)
        return Translator(replace(run, model=texts.model), texts)


def _card(config: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    runs, _ = ENGINES[facts["engine"]]
    preset = " ".join(filter(None, (config["preset"]["model"], config["preset"]["size"])))
    weights = "weights of 8 bits" if facts["int8"] else "weights in float32"
    return f"""# {preset} for {runs}

A model of the task `{config["task"]}`, exported by Seqloom {facts["seqloom"]} for {runs} {facts["libraries"][runs]}
with {weights}; what it says differs from torch by at most {facts["difference"]:.1e}.

```console
pip install 'seqloom[export]'
seqloom predict FOLDER FILE
```
{_alone(facts["engine"])}"""


def _alone(engine: str) -> str:
    """How to use it without Seqloom."""
    if engine != "onnx":
        return ""
    return """
Without Seqloom, with onnxruntime and numpy: `python example.py "a text"` answers greedily in a few lines.

- `encoder.onnx`: `tokens` [sentences, tokens] and `lengths` [sentences] to the first state (`context_…`, `row_…`).
- `step.onnx`: `tokens` [sentences, hypotheses] and the state to `logits` and the next rows (`next_…`).
- `tokens.json`: the names of all tokens by id, the special ids, what is never written, and how long an answer may get;
  both graphs carry names and special ids in their metadata too.
- `source-tokenizer.json`, `target-tokenizer.json`: for the tokenizers library, where it has such a rule.
"""
