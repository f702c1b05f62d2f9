"""Settings keep working under the names that they had in earlier versions, wherever they are given."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from seqloom.build import build, complete
from seqloom.build import settings as keywords
from seqloom.data.files.columns import cache_settings
from seqloom.errors import SettingError
from seqloom.options import hints_of
from seqloom.parts.recurrent.cells import CELLS
from seqloom.runs import config as configs
from seqloom.runs.recipes import recipe as recipes
from seqloom.runs.recipes.run_recipe import job_of
from seqloom.runs.settings import setting_table
from seqloom.runs.settings.train_keywords import DataKeywords, TrainingKeywords, into_sections
from seqloom.runs.train.job import Job
from seqloom.setting_names import OPTIONS, RENAMED, current_name
from seqloom.tasks.registry import TASKS
from seqloom.tasks.registry import task as get_task

BOOK = json.loads(setting_table.FILE.read_text(encoding="utf-8"))
TEXTS = {"truncate": "head", "class_weights": "balanced", "exclude": "a", "optimizer": "sgd", "cuda_graphs": "off"}
TEXTS |= {"lowercase": "lower", "column_types": {"a": "number"}, "context_to": "input", "initial_state": "zero"}
TEXTS |= {"reset_gate": "before", "normalizer": "relu", "pooling": "mean", "split_version": 2}


def pairs(section: str) -> list[tuple[str, str]]:
    table = RENAMED[section].items()
    return [(old, one) for old, new in table for one in ((new,) if isinstance(new, str) else new)]


def another(name: str, usual: Any) -> Any:
    """A value that is right and not the default."""
    if name in TEXTS:
        return TEXTS[name]
    return not usual if isinstance(usual, bool) else usual + 2 if isinstance(usual, int) else (usual or 0.0) * 0.5 + 0.1


def places(section: str) -> list[Any]:
    """(task, old dotted key, new one, what chooses the part): every place of every renamed setting."""
    if section == "training":
        return [("translate", f"training.{old}", f"training.{new}", {}) for old, new in pairs(section)]
    if section == "data":
        tasks = {task: hints_of(get_task(task).options) for task in TASKS}
        every = [(t, o, n) for t, names in tasks.items() for o, n in pairs(section) if n in names]
        return [(task, f"data.{old}", f"data.{new}", {}) for task, old, new in every]
    found: dict[tuple[str, str], Any] = {}
    for task in TASKS:
        for old, new, key, chosen in _of_parts(BOOK["tasks"][task]["models"], "kind", ""):
            found.setdefault((new, key), (task, f"{key}{old}", f"{key}{new}", chosen))
    return list(found.values())


def _of_parts(table: str, kind: str, prefix: str, depth: int = 3) -> list[Any]:
    found = []
    for name, entry in BOOK["tables"][table].items():
        for key, told in BOOK["parts"][entry["part"]].items():
            found += [(old, new, prefix, {kind: name}) for old, new in pairs("model") if new == key]
            if depth and "table" in told:
                inner = _of_parts(told["table"], f"{prefix}{key}", f"{prefix}{key}.", depth - 1)
                found += [(old, new, where, {kind: name, **chosen}) for old, new, where, chosen in inner]
    return found


EVERY = [one for section in RENAMED for one in places(section)]


def test_every_renamed_setting_has_a_place():
    """And where the new name is a setting, the old one is none, nor listed as one."""
    reached = {tuple(key.rpartition(".")[2] for key in (old, new)) for _, old, new, _ in EVERY}
    assert reached == {pair for section in RENAMED for pair in pairs(section)}
    owners = [*BOOK["parts"].values(), BOOK["training"], *(one["data"] for one in BOOK["tasks"].values())]
    owners += [dict(hints_of(DataKeywords)), dict(hints_of(TrainingKeywords))]
    for section in RENAMED:
        for old, new in pairs(section):
            assert not [1 for names in owners if new in names and old in names], old


def nested(key: str, value: Any) -> dict[str, Any]:
    for name in reversed(key.split(".")):
        value = {name: value}
    return value


@pytest.mark.parametrize(("task", "old", "new", "chosen"), EVERY)
def test_an_old_name_means_the_new_one(tmp_path, task, old, new, chosen):
    section, _, name = new.partition(".")
    usual = configs.compose(task, None, None, {}, {}, chosen)
    before = usual if section in RENAMED else usual["model"]
    for part in new.split("."):
        before = before[part]
    value = another(new.rpartition(".")[2], before)
    model: dict[str, Any] = {}
    for key, kind in chosen.items():  # as a YAML file has it
        if key == "kind":
            model["kind"] = kind
            continue
        inner = model
        for part in key.split("."):
            inner = inner.setdefault(part, {})
        inner["kind"] = kind
    wanted = configs.compose(task, None, None, {}, {}, {**chosen, new: value})
    assert wanted != usual
    assert configs.compose(task, None, None, {}, {}, {**chosen, old: value}) == wanted, "--set"
    plain = old.removeprefix(f"{section}.")
    if section in ("data", "training"):
        sections = {"data": {}, "training": {}} | {section: {plain: value}}
        assert configs.compose(task, None, None, sections["data"], sections["training"], {}) == wanted, "sections"
        assert getattr(into_sections(task, {plain: value}, None, None, None), section) == {name: value}, "train()"
        assert getattr(into_sections(task, {}, *sections.values(), None), section) == {name: value}, "train(data={})"
        job = Job(task="", files=[], output="x")
        recipe = recipes.Recipe(name="x", about="x", task=task, train="x", model="x", **{section: {plain: value}})
        assert getattr(job_of(recipe, job), section) == {name: value}, "recipe"
    else:
        file = tmp_path / "mine.yaml"
        found = []
        for key in (old, new):
            file.write_text(yaml.safe_dump(merged(model, nested(key, value))))
            found.append(configs.compose(task, str(file), None, {}, {}, {}))
            file.write_text(yaml.safe_dump({"model": merged(model, nested(key, value))}))
            assert configs.compose(task, str(file), None, {}, {}, {}) == found[-1]
            assert (
                configs.compose(task, merged(model, nested(key, value)), None, {}, {}, {})["model"]
                == (found[-1]["model"])
            )
        assert found[0] == found[1], "YAML"
    if old == "data.fold":
        return
    with pytest.raises(SettingError, match=rf"{old} is the earlier name of {new}, and both are given"):
        configs.compose(task, None, None, {}, {}, {**chosen, old: value, new: before})
    same = configs.compose(task, None, None, {}, {}, {**chosen, old: value, new: value})
    assert same == wanted, "the same value twice is no contradiction"


def merged(model: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    from seqloom.options import merge

    return merge(model, more)


def test_a_word_that_two_parts_have_means_each_ones_own():
    both = {"model": "gru", "settings": {"encoder.cell.reset": "before", "reset": 0.5, "decoder.start": "zero"}}
    assert current_name("model", "reset", keywords(CELLS["gru"])) == "reset_gate"
    made = configs.compose("generate", "gru", "tiny", {}, {}, {"encoder.cell.reset": "before", "reset": 0.5})["model"]
    assert (made["encoder"]["cell"]["reset_gate"], made["state_reset"]) == ("before", 0.5), both
    moved = {"encoder": "transformer", "encoder.position": "floater", "encoder.position.start": "zero"}
    made = configs.compose("translate", "gru-attention", "tiny", {}, {}, {**moved, "decoder.start": "zero"})["model"]
    assert made["encoder"]["position"]["start"] == made["decoder"]["initial_state"] == "zero"


def test_parts_in_python_know_old_names():
    assert build(CELLS, {"kind": "lstm", "forget": 0.0}, input_dim=2, dim=3).bias.tolist() == [0.0] * 12
    assert complete(CELLS, {"kind": "gru", "reset": "before"})["reset_gate"] == "before"
    with pytest.raises(SettingError, match="forget is the earlier name of forget_bias, and both are given"):
        build(CELLS, {"kind": "lstm", "forget": 0.0, "forget_bias": 1.0}, input_dim=2, dim=3)


def test_what_is_given_later_wins_by_any_name(tmp_path):
    """A recipe by old names, and a user who knows the new ones; a preset, and a file that changes it."""
    recipe = {"name": "x", "about": "x", "task": "tag", "train": "x", "model": "lstm"}
    recipe |= {"data": {"repair": True}, "training": {"rate": 1.0, "smoothing": 0.1}, "settings": {"unknown": 0.1}}
    job = Job(task="", files=[], output="x", training={"learning_rate": 2.0}, settings={"unk_rate": 0.2})
    found = job_of(recipes.Recipe(**recipe), job)
    assert found.training == {"label_smoothing": 0.1, "learning_rate": 2.0}
    assert (found.data, found.settings) == ({"repair_tags": True}, {"unk_rate": 0.2})
    parts = recipes.Recipe(**recipe, members=[{"seed": 1}, {"training": {"learning_rate": 3.0}}]).parts()
    assert [one.training.get("learning_rate", one.training.get("rate")) for one in parts] == [1.0, 3.0]
    (tmp_path / "mine.yaml").write_text("preset: awd-lstm\ntie: false\nencoder: {lock: false}\n")
    made = configs.compose("generate", str(tmp_path / "mine.yaml"), None, {}, {}, {"lock": False})["model"]
    assert not any((made["tie_embeddings"], made["encoder"]["locked_dropout"], made["locked_dropout"]))


def test_both_names_are_refused_in_python():
    with pytest.raises(SettingError, match=r"training\.rate is the earlier name of training\.learning_rate"):
        configs.compose("translate", None, None, {}, {"rate": 1.0, "learning_rate": 2.0}, {})
    with pytest.raises(SettingError, match=r"data\.fold is the earlier name of data\.lowercase"):
        configs.compose("translate", None, None, {"lowercase": "lower", "fold": True}, {}, {})
    with pytest.raises(SettingError, match="rate is the earlier name of learning_rate"):
        into_sections("translate", {"learning_rate": 2.0, "rate": 1.0}, None, None, None)
    assert configs.compose("translate", None, None, {}, {"rate": 1.0, "learning_rate": None}, {})["training"][
        "learning_rate"
    ] == (1.0)


def test_caches_are_known_by_the_old_names():
    """What `since` gives is hashed: a change here makes every cache new and lets no run of before go on."""
    options: Any = get_task("classify").options
    made = options(lowercase="casefold", truncate="head", shorten_repeats=True, class_weights="balanced")
    assert cache_settings(made) == {
        "columns": None,
        "skip_bad": False,
        "limit": None,
        "fold": True,
        "half_width": False,
        "max_vocab": None,
        "min_count": 1,
        "max_length": None,
        "cut": "head",
        "target": "label",
        "separator": "|",
        "tokens": "words",
        "stop_words": "none",
        "repair": True,
        "weights": "balanced",
    }
    for task in TASKS:
        assert not cache_settings(get_task(task).options()).keys() & {new for _, new in pairs("data")}, task
    folds = [cache_settings(options(**configs.section("classify", "data", {"fold": fold})))["fold"] for fold in FOLDS]
    assert folds == FOLDS, "of every value"


FOLDS: list[Any] = [False, True, "lower", "casefold"]


def test_what_is_shown_are_the_new_names():
    from typer.testing import CliRunner

    from seqloom.cli.main import app

    shown = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
    words = shown.split()
    for old, new in OPTIONS.items():
        assert new in words, new
        assert old not in words, old
    for name in recipes.names():
        loaded = recipes.load(name)
        for section in ("data", "training"):
            given = getattr(loaded, section)
            assert configs.section(loaded.task, section, given) == given, name
        last = {key.rpartition(".")[2] for one in loaded.parts() for key in one.settings}
        assert not last & {old for old, _ in pairs("model")}, name
