"""A job: all that a training was asked for, settled into a complete config."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from seqloom.data.batches.batch_source import Ready
from seqloom.data.datasets import catalog
from seqloom.data.files.columns import RULES, Reading
from seqloom.data.files.lines import STDIN
from seqloom.data.prepare.suggest_tokens import symbols, unspaced
from seqloom.data.splits.split import Fold
from seqloom.documents import read_json
from seqloom.errors import SeqloomError, known
from seqloom.options import hints_of, set_values
from seqloom.runs import config as configs
from seqloom.runs.evaluate import test_scores
from seqloom.runs.load import stored_config, stored_vocabularies, vocabularies
from seqloom.runs.train.session import CHECKPOINTS
from seqloom.tasks.presets import SIZES, about
from seqloom.tasks.registry import TASKS
from seqloom.tasks.registry import task as find
from seqloom.tasks.shared.transfer import Handed, handed
from seqloom.training.distributed.processes import Ranks
from seqloom.version import IMPORTED

# Settings of the data that its vocabularies depend on.
NUMBERING = (
    *("source_tokens", "target_tokens", "tokens", "fold", "half_width", "max_vocab", "min_count"),
    *("repair", "stop_words", "separator", "target"),
)
FOLD = r"fold \d+/\d+"
# Held out alike, whatever the seed of the training.
SEEDED = re.compile(rf"({FOLD}|[\d.]+%?) with seed (\d{{1,19}})")
Files = str | Path | Sequence[str | Path]


@dataclass(frozen=True, kw_only=True)
class Job:
    """The keywords of `seqloom.train`, which says what each means."""

    task: str
    files: Files
    output: str | Path
    valid: Files | float | None = None
    test: Files | None = None
    model: str | Mapping[str, Any] | None = None
    size: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    start: str | Path | None = None
    device: str = "auto"
    resume: bool = False
    cache: Path | None = None
    recorded: bool = False  # of a recipe on its own data: all that it does not say stays as it was when it was recorded

    @property
    def folder(self) -> Path:
        return Path(self.output)

    @property
    def names(self) -> list[str]:
        return file_names(self.files)


@dataclass(frozen=True)
class Settled:
    """A job that can begin; JSON, so that the first of several processes can tell it to the others."""

    config: dict[str, Any]
    saved: dict[str, Any] | None  # the config of the run that goes on
    valid: Any  # files, a share or a fold, as the user writes them
    brought: bool  # by a dataset, not by the user
    start: str | None  # the run whose weights are still to be taken over
    kept: dict[str, Any] | None  # vocabularies that came with them
    free: bool = False  # nobody chose how large a batch is
    told: list[str] = field(default_factory=list)  # what was chosen by a look at the data


def settle(job: Job, ranks: Ranks) -> Settled:
    """The config of a job: of the run in its folder if that goes on, else made new."""
    known(job.task, TASKS, "task")
    if job.test is not None:
        test_scores.check(file_names(job.test), job.task)
    saved = _open(job.folder, job.resume or _begun_by(job.folder, ranks))
    if saved is not None and saved["task"] != job.task:
        raise SeqloomError(f"{job.folder}: holds a run of the task {saved['task']}, not of {job.task}")
    base = None if saved is not None or job.start is None else stored_config(Path(job.start))
    before, data, settings, brought = saved, job.data, job.settings, None
    if saved is None:
        data, brought = catalog.suited(job.names, job.data, job.task)
    if base is not None and base["task"] == job.task:
        before, data = _base(job, base), job.data
    given = None
    if base is not None and before is None:
        job = _like(job, base)
        given = _handed(job, base)
        data, settings = {**data, **given.data, **set_values(job.data)}, {**given.model, **job.settings}
        _same_vocabularies(job, given.data, data)
    told: list[str] = []
    if saved is None:
        fresh = {"rules": _rules(job, base), **set_values(data)}
        told = _cut_as_they_look(job, fresh) if base is None and not job.recorded else []
        data = fresh
    config, chosen = configs.composed(job.task, job.model, job.size, data, job.training, settings, before)
    if saved is not None and (changed := configs.differences(saved, config)):
        raise SeqloomError(f"{job.folder}: cannot resume with other settings: {'; '.join(changed)}")
    if saved is None and before is not None:
        _same_vocabularies(job, before["data"], config["data"])
    usual = brought or "5%" if saved is None else saved["inputs"]["valid"]
    valid = usual if job.valid is None else _plain(job.valid)
    start = str(job.start) if saved is None and job.start else (saved or {}).get("inputs", {}).get("from")
    config["decoding"] = (before or {}).get("decoding", {})
    config["inputs"] = {"train": job.names, "valid": valid} | ({"from": start} if start else {})
    taken = list(given.vocabularies) if given else (saved or {}).get("inputs", {}).get("taken")
    if taken is not None:  # else all, by a run of the same task
        config["inputs"]["taken"] = taken
    if start and config["training"]["vectors"]:
        raise SeqloomError(f"--from {start} brings the source's embedding: leave --vectors out")
    home = None if start is None else job.folder if saved is not None else Path(start)
    kept = None if home is None else stored_vocabularies(home)
    return Settled(
        config=config,
        saved=saved,
        valid=valid,
        brought=job.valid is None and brought is not None,
        start=start if not any((job.folder / CHECKPOINTS).glob("step-*")) else None,
        kept=kept and {name: value for name, value in kept.items() if taken is None or name in taken},
        free=saved is None and not chosen and not job.recorded,
        told=told,
    )


def _rules(job: Job, base: Mapping[str, Any] | None) -> int:
    """By which a new run holds examples out: the latest, but those of the run it starts from, which must not be scored
    on what it was trained on, and the first for a recipe that does not say."""
    if base is not None:
        return base["data"].get("rules", 1)
    return 1 if job.recorded else RULES[-1]


def _cut_as_they_look(job: Job, data: dict[str, Any]) -> list[str]:
    """Where nobody says how texts are cut, and targets look like phonemes or texts have no words, sets it, and says
    so."""
    name = {"translate": "target_tokens", "classify": "tokens"}.get(job.task, "")
    if not name or data.get(name) or f"data.{name}" in job.settings:
        return []
    values = data | {key.removeprefix("data."): one for key, one in job.settings.items() if key.startswith("data.")}
    with suppress(SeqloomError):  # of the settings, which are checked when all is put together
        options = configs.data_options(job.task, values)
        if job.task == "translate" and (example := symbols(job.names, options)):
            data[name] = "words"
            told = f"targets look like space-separated symbols ({example}), so they are split at spaces"
            return [f"{told}; --target-tokens chars splits them into characters"]
        if job.task == "classify" and (example := unspaced(job.names, options)):
            data[name] = "chars"
            told = f"texts have no spaces between words ({example}), so they are split into characters"
            return [f"{told}; --tokens chooses"]
    return []


def _like(job: Job, base: dict[str, Any]) -> Job:
    """Where no model is named, the one whose name is that of the run it starts from, if the task has it."""
    named = base["preset"]
    if job.model is not None or named["model"] not in about(job.task):
        return job
    return replace(job, model=named["model"], size=job.size or (named["size"] if named["size"] in SIZES else None))


def _handed(job: Job, base: dict[str, Any]) -> Handed:
    """What a job takes over from a run of another task: the side that reads text."""
    assert job.start is not None
    folder, parts = Path(job.start), configs.compose(job.task, job.model, job.size, {}, {}, {})["model"]
    return handed(folder, base, vocabularies(folder, base), find(job.task), parts["kind"])


def _base(job: Job, base: dict[str, Any]) -> dict[str, Any]:
    """What a job takes over from the run it starts from: all that belongs to its weights, which cannot be chosen again.
    How it was trained, and what was read of its files, is not taken over."""
    if job.model is not None or job.size is not None:
        raise SeqloomError(f"--from {job.start} brings its model: leave --model and --size out")
    data = {name: value for name, value in base["data"].items() if name not in hints_of(Reading)}
    return base | {"data": data, "training": {}}


def _same_vocabularies(job: Job, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Another way to cut or to normalise texts would not be that of the vocabularies."""
    for name in NUMBERING:
        if name in before and before[name] != after.get(name, before[name]):
            raise SeqloomError(f"--from {job.start} brings its vocabularies: {name} stays {before[name]}")


def prepared(job: Job, settled: Settled, ranks: Ranks) -> Ready:
    """The data, once a cache; every machine must have been given the same."""
    config = settled.config

    def work() -> Ready:
        if ranks.several and STDIN in job.names:
            raise SeqloomError("several processes cannot share standard input; write the data to a file first")
        return find(job.task).prepare(
            catalog.resolve(job.names, "train", job.task),
            _found(settled.valid, job.task),
            configs.data_options(job.task, config["data"]),
            seed=_parted(settled.valid, config["training"]["seed"])[1],
            cache=job.cache,
            kept=settled.kept,
        )

    made = ranks.in_turn(work)
    if made.valid is None and re.match("fold ", str(settled.valid)):
        raise SeqloomError(f"{settled.valid} holds nothing: there are too few examples for so many folds; take fewer")
    found = set(ranks.gather(made.train.fingerprint))
    with ranks.together():
        if len(found) > 1:
            raise SeqloomError("the training data differ between the machines; give every one the same files")
    return made


def _begun_by(folder: Path, ranks: Ranks) -> bool:
    """torchrun starts this training again, and what is in the folder comes from an earlier attempt of its own."""
    if not any(launch.attempt for launch in ranks.launches) or not (folder / "env.json").is_file():
        return False
    begun = read_json(folder / "env.json").get("launches", [])
    return isinstance(begun, list) and any(launch.name in begun for launch in ranks.launches)


def _open(folder: Path, resume: bool) -> dict[str, Any] | None:
    """The config of the run that the folder holds, if that is to go on."""
    if folder.is_file():
        raise SeqloomError(f"{folder}: is a file; --output names a folder")
    if not resume:
        check_free(folder)
    saved = stored_config(folder) if (folder / configs.FILE).exists() else None
    if saved is not None and saved["preset"]["size"] == IMPORTED and "from" not in saved["inputs"]:
        raise SeqloomError(f"{folder}: was imported, not trained here: train from it with --from {folder}")
    return saved


def check_free(folder: Path) -> None:
    if (folder / configs.FILE).exists():
        raise SeqloomError(f"{folder}: already holds a run; add --resume to go on with it, or name another --output")


def file_names(files: Files) -> list[str]:
    return [str(files)] if isinstance(files, str | Path) else [str(file) for file in files]


def share_or_files(valid: Files | float) -> list[str] | float | Fold:
    """`0.05`, `"5%"`, `"fold 2/5"`, either with a seed behind it, or file names."""
    valid, _ = _parted(valid)
    if isinstance(valid, str) and re.fullmatch(FOLD, valid):
        return _fold(valid)
    if isinstance(valid, int | float):
        share = float(valid)
    elif isinstance(valid, str) and valid.endswith("%"):
        try:
            share = float(valid[:-1]) / 100
        except ValueError:
            raise SeqloomError(f"cannot read the share {valid!r}; write it as 5%") from None
    elif isinstance(valid, str) and re.fullmatch(r"0?\.\d+|0", valid):
        share = float(valid)
    elif isinstance(valid, str) and re.match(rf"({FOLD}|[\d.]+%) ", valid):
        raise SeqloomError(f"cannot read the share {valid!r}; write it as 5%, or as '5% with seed 7'")
    else:
        return file_names(valid)
    if not 0 <= share < 1:
        raise SeqloomError(f"a validation share lies between 0% and 100%, here {share:.0%}")
    return share


def one_split(valid: Files | float, seed: int) -> Files | float:
    """A share or a fold that does not change with the seed of the training: `"5% with seed 7"`; files stay."""
    held = share_or_files(valid)
    fixed = isinstance(held, list) or held == 0 or SEEDED.fullmatch(str(valid))
    return valid if fixed else f"{valid} with seed {seed}"


def _parted(valid: Any, usual: int = 0) -> tuple[Any, int]:
    """What is held out, and the seed that it is drawn by."""
    found = SEEDED.fullmatch(valid) if isinstance(valid, str) else None
    return (found[1], int(found[2])) if found else (valid, usual)


def _fold(text: str) -> Fold:
    from seqloom.runs.many.cross_validation import MOST  # which needs this file

    number, count = (int(one[:10]) for one in text.removeprefix("fold ").split("/"))  # no text of thousands of digits
    if count > MOST:
        raise SeqloomError(f"{text[:100]}: there are at most {MOST:,} folds")
    if not 1 <= number <= count or count < 2:
        raise SeqloomError(f"{text[:100]}: there are folds 1 to {max(count, 2)} of at least 2")
    return Fold(number, count)


def _found(valid: Files | float, task: str) -> list[str] | float | Fold:
    """As `share_or_files`, with files for the names of datasets."""
    held = share_or_files(valid)
    return catalog.resolve(held, "valid", task) if isinstance(held, list) else held


def _plain(valid: Files | float) -> Any:
    return valid if isinstance(valid, str | int | float) else file_names(valid)
