"""Datasets by name: find them, write their splits as ordinary files, and take names where files are expected.

find("pinyin").examples("test")      plain tuples, or arrays
files("pinyin", "train")             the split as a file in the cache
resolve(["pinyin:test"], …)          file names for names
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from seqloom import plugins
from seqloom.data.datasets.dataset import Dataset
from seqloom.data.datasets.other_datasets import OTHERS
from seqloom.data.datasets.pronunciation_datasets import PRONUNCIATIONS
from seqloom.data.datasets.text_datasets import TEXTS
from seqloom.data.files.lines import STDIN
from seqloom.errors import SeqloomError, is_known, known
from seqloom.files import clear_damaged, damage, default_cache, new_folder, sha256, write_atomic, write_output
from seqloom.setting_names import override

DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in (*PRONUNCIATIONS, *TEXTS, *OTHERS)}
TASKS = tuple(dict.fromkeys(dataset.task for dataset in DATASETS.values()))
LAYOUT = 1  # of the files written here; a change makes every cached split new

READABLE = ("speech", "pictures", "graph", "regress")  # tasks whose data can be read, though nothing trains on them yet

# How the examples of a task that works on text are written: what the file is called behind its name, and each example.
_WRITTEN: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("translate", ".tsv", lambda pair: "\t".join((pair[0], *pair[1])) + "\n"),
    ("classify", ".tsv", lambda pair: "\t".join(pair) + "\n"),
    ("tag", ".tsv", lambda sentence: "".join(f"{word}\t{tag}\n" for word, tag in sentence) + "\n"),
    ("generate", ".txt", lambda text: text),
    ("table", ".jsonl", lambda row: json.dumps(row, ensure_ascii=False) + "\n"),
)


def find(name: str) -> Dataset:
    """The dataset of that name; else an error that suggests what was meant."""
    if not is_known(name, DATASETS):
        raise SeqloomError(f"unknown dataset {name!r}{_suggestion(name)}")
    return DATASETS[name]


def _suggestion(name: str) -> str:
    near = difflib.get_close_matches(name, DATASETS, 1)
    return f"; did you mean {near[0]!r}?" if near else "; `seqloom data list` names them all"


def files(name: str, split: str) -> list[Path]:
    """A split as an ordinary file in the cache, written once: what `train`, `evaluate` and `predict` read.

    translate: source TAB target, further references in further columns; classify: text TAB label; tag: word TAB tag,
    an empty line after each sentence; generate: the text; table: a JSON object a row.
    """
    dataset = find(name)
    known(split, dataset.sizes, f"split of {name}")
    ending, _ = _form(dataset)
    folder = default_cache() / "datasets" / name / version(dataset)
    if not folder.is_dir() or damage(folder):
        clear_damaged(folder)
        with new_folder(folder, keep_existing=True) as fresh:
            write(dataset, fresh)
    return [folder / f"{split}{ending}"]


def write(dataset: Dataset, folder: Path) -> list[Path]:
    """Every split as a file in `folder`."""
    ending, line = _form(dataset)
    written = []
    for split in dataset.sizes:
        path = folder / f"{split}{ending}"
        write_atomic(path, "".join(map(line, dataset.examples(split))))
        written.append(path)
    return written


def get(name: str, output: Path | None = None) -> list[Path]:
    """Make a dataset ready and verify it: where its splits are, or its own files if it is no text.

    With `output`, copies in that folder; what is there already is not overwritten.
    """
    from seqloom.data.datasets.download import load_file, local_file

    dataset = find(name)
    if is_text(dataset):
        found = [path for split in dataset.sizes for path in files(name, split)]
        copies = {path.name: path.read_bytes() for path in found} if output else {}
    else:
        raw = {file: load_file(dataset, file) for file in dataset.all_files()}
        found = [place for file in raw if (place := local_file(file))]
        copies = {Path(file.path).name: content for file, content in raw.items()}
    return found if output is None else _copy_to(output, copies)


def _copy_to(folder: Path, copies: Mapping[str, bytes]) -> list[Path]:
    paths = [folder / name for name in copies]
    for path in paths:
        if path.exists():
            raise SeqloomError(f"{path}: is there already; name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SeqloomError(f"{folder}: cannot be made: {error.strerror or error}") from error
    for path, raw in zip(paths, copies.values(), strict=True):
        write_output(path, raw)
    return paths


def is_text(dataset: Dataset) -> bool:
    return any(task == dataset.task for task, _, _ in _WRITTEN)


def _form(dataset: Dataset) -> tuple[str, Callable[[Any], str]]:
    for task, ending, line in _WRITTEN:
        if task == dataset.task:
            return ending, line
    raise SeqloomError(f"{dataset.name} is no text ({dataset.task}): read it with registry.find(…).examples(split)")


def version(dataset: Dataset) -> str:
    """Names the content: another file, split or reader gives another."""
    read = dataset.reader
    reader = read if isinstance(read, str) else f"{read.__module__}:{read.__qualname__}"
    key: list[Any] = [LAYOUT, dataset.name, reader, dict(dataset.sizes)]
    key += [file.sha256 for file in dataset.all_files()]
    key += plugins.used([("datasets", dataset.name)])  # whose version is a part of it
    if dataset.package:
        from seqloom.data.datasets.from_packages import package_file

        key += [sha256(package_file(dataset.package)), metadata.version(dataset.package)]
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]


def facts(dataset: Dataset) -> dict[str, Any]:
    """All that is known about a dataset, for JSON."""
    names = ("task", "about", "sizes", "unit", "licence", "citation", "home", "data")
    files = [file._asdict() for file in dataset.all_files()]
    return {**{name: getattr(dataset, name) for name in names}, "files": files, "state": state(dataset)}


def state(dataset: Dataset) -> str:
    """Where the data is: embedded, in the mirror, cached, to download, or to be put in place by hand."""
    from importlib.util import find_spec

    from seqloom.data.datasets.download import downloads, mirror_path
    from seqloom.data.datasets.from_packages import EXTRAS

    if dataset.package:
        return "embedded" if find_spec(dataset.package) else f"needs [{EXTRAS[dataset.package]}]"
    wanted = dataset.all_files()
    if not wanted:
        return "embedded"
    if all(map(mirror_path, wanted)):
        return "in the mirror"
    if all(mirror_path(file) or (downloads() / file.path).is_file() for file in wanted):
        return "cached"
    written = default_cache() / "datasets" / dataset.name
    if is_text(dataset) and (written / version(dataset)).is_dir():
        return "cached"
    return "to download" if all(file.address for file in wanted) else "by hand"


def resolve(names: Iterable[str | Path], split: str, task: str, reads: Collection[str] = ()) -> list[str]:
    """Names of datasets, and NAME:SPLIT, replaced by the files of that split. A file of that name wins. `reads`: other
    tasks whose datasets this one takes.

    What is neither a file nor a name stays as it is if it looks like a path: reading it reports that it is missing.
    """
    found: list[str] = []
    for name in map(str, names):
        dataset, asked = _named(name)
        if dataset is None:
            found.append(name)
        elif dataset.task not in (task, *reads):
            later = "; no command trains that yet, but Python can read it" if dataset.task in READABLE else ""
            raise SeqloomError(f"{name}: is a dataset for the task {dataset.task}, not for {task}{later}")
        else:
            found += map(str, files(dataset.name, asked or split))
    return found


def with_suited_options(
    names: Sequence[str | Path], data: Mapping[str, Any], task: str
) -> tuple[dict[str, Any], str | None]:
    """For training on one dataset by name: `data` with the options that suit it where none is set, and NAME:valid.

    The options are for the dataset's own task; another that takes its texts has others.
    """
    given = {name: value for name, value in data.items() if value is not None}
    dataset, split = _named(str(names[0])) if len(names) == 1 else (None, "")
    if dataset is None:
        return given, None
    own = f"{dataset.name}:valid" if "valid" in dataset.sizes and split in ("", "train") else None
    return override(dataset.data if dataset.task == task else {}, given), own


def _named(name: str) -> tuple[Dataset | None, str]:
    """The dataset and the split that an argument names; no dataset if it is a file or looks like one."""
    plain, _, split = name.partition(":")
    if name == STDIN or (Path(name).exists() and not (Path(name).is_dir() and is_known(plain, DATASETS))):
        return None, ""
    if is_known(plain, DATASETS):
        return DATASETS[plain], split
    if set(name) & set("/\\."):
        return None, ""
    raise SeqloomError(f"{name}: no such file, and no dataset of that name{_suggestion(plain)}")
