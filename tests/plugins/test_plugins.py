"""Parts of another package: found by name, recorded in the run, asked for when it is loaded."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from seqloom import plugins
from seqloom.build import build, complete
from seqloom.errors import SeqloomError, is_known, known
from seqloom.parts.attention.scores import SCORES, Dot
from seqloom.tasks.registry import TASKS
from tests.cli.conftest import one_line
from tests.plugins.conftest import forget
from tests.plugins.toys import MODULE, PACKAGE, TOYS, VERSION, write_facts, write_package

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
QUICK = "--size tiny --max-steps 2 --valid 20% --quiet"
IN_TRAINING = ("objectives", "datasets")  # not imported to predict


def words(kind, file, output):
    return [str(file) if word == "FILE" else word for word in (*TOYS[kind].train.split(), *QUICK.split())] + [
        "--output",
        str(output),
    ]


def config_of(run):
    return yaml.safe_load((run / "config.yaml").read_text())


def take_away(site, monkeypatch):
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(site)])
    forget()


@pytest.mark.parametrize("kind", TOYS)
def test_a_toy_of_each_kind_is_used_by_name(kind, site, labelled, tmp_path, seqloom, monkeypatch):
    run, toy = tmp_path / "run", TOYS[kind]
    status, _, err = seqloom("train", *words(kind, labelled, run))
    assert status == 0, err
    recorded = {} if kind == "decodings" else {f"{kind}:{toy.name}": {"package": PACKAGE, "version": VERSION}}
    assert config_of(run).get("plugins", {}) == recorded
    predict = ("predict", run, "--text", "good day", *toy.predict.split())
    forget()  # as in another process
    status, out, err = seqloom(*predict)
    assert (status, out.count("\n")) == (0, 1), err
    assert kind in IN_TRAINING or f"{MODULE}.{kind}" in sys.modules
    forget()
    assert seqloom("train", *words(kind, labelled, run)[:-2], "--max-steps", 3, "--output", run, "--resume")[0] == 0
    assert config_of(run).get("plugins", {}) == recorded
    take_away(site, monkeypatch)
    result = seqloom(*predict)
    if kind == "datasets":  # a trained model does not need its data
        assert result[0] == 0
    elif kind == "decodings":  # nor does it need a decoding, until one names it
        one_line(result, "--decoding: unknown decoding 'ranked'")
        assert seqloom(*predict[:4])[0] == 0
    else:
        one_line(result, f"{kind}:{toy.name}", f"the package {PACKAGE} {VERSION}, which is not installed")
        assert result[0] == 1


def test_in_processes(site, labelled, tmp_path):
    """With the package on PYTHONPATH, and without."""

    def call(*arguments, path=str(site)):
        env = {**os.environ, "PYTHONPATH": os.pathsep.join((os.getcwd(), path))}
        done = subprocess.run([sys.executable, "-m", "seqloom", *arguments], env=env, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    run = tmp_path / "run"
    assert call("train", *words("tasks", labelled, run))[0] == 0
    status, out, _ = call("predict", str(run), "--text", "good day")
    assert (status, out.count("\n")) == (0, 1)
    one_line(call("predict", str(run), "--text", "good day", path=""), "the package seqloom-toys 0.3")
    one_line(call("train", *words("tasks", labelled, tmp_path / "other"), path=""), "unknown task 'moods'")


def test_tables_are_filled_by_every_way_to_look_a_name_up(site):
    assert "biaffine" not in SCORES
    assert known("biaffine", SCORES) == "biaffine"
    forget()
    assert type(build(SCORES, "biaffine", query_dim=2, key_dim=3)).__name__ == "Biaffine"
    forget()
    assert complete(SCORES, {"kind": "biaffine", "bias": True}) == {"kind": "biaffine", "bias": True}
    with pytest.raises(SeqloomError, match="unknown setting of Biaffine 'bais'; did you mean 'bias'"):
        build(SCORES, {"kind": "biaffine", "bais": 1}, query_dim=2, key_dim=3)
    forget()
    with pytest.raises(SeqloomError, match=r"unknown kind 'biafine'\. Choose from: additive"):
        build(SCORES, "biafine", query_dim=2, key_dim=3)
    assert not is_known("biaffine", {**SCORES}), "a copy of a table is no table"
    assert not is_known("biaffine", TASKS), "of another kind"


def test_everything_else_of_a_task(site, labelled, seqloom):
    """What the command line offers for our own tasks, it does for the task of a package."""
    assert "1 broken" not in seqloom("data", "check", "moods", labelled)[1]
    status, out, _ = seqloom("settings", "moods", "gru")
    assert (status, "encoder.cell.zoneout" in out, "data.tokens" in out) == (0, True, True)
    assert seqloom("train", "moods", "parity", "--dry-run", "--size", "tiny")[0] == 0
    one_line(seqloom("train", "mood", labelled, "--output", "x"), "unknown task 'mood'; did you mean 'moods'?")


def test_a_dataset_of_a_package(site, tmp_path, seqloom):
    assert "odd" in seqloom("data", "show", "parity")[1]
    assert seqloom("data", "get", "parity", "--output", tmp_path / "here")[0] == 0
    assert (tmp_path / "here" / "train.tsv").read_text().startswith("0 0 0 0 0 0\teven\n")


def test_our_own_names_win(site):
    write_package(site, scores=f"dot = {MODULE}.gone:Dot")
    assert isinstance(build(SCORES, "dot", query_dim=2, key_dim=2), Dot)
    assert not plugins._loaded


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("gone:Score", rf"cannot be imported: ModuleNotFoundError: No module named '{MODULE}.gone'"),
        ("broken:Score", "cannot be imported: ZeroDivisionError: division by zero"),
        ("scores:Gone", "cannot be imported: AttributeError: .*Gone"),
        ("datasets:PARITY", "is no entry of that table: it is a Dataset"),
    ],
)
def test_a_package_that_does_not_work_is_one_line(site, labelled, tmp_path, seqloom, entry, reason):
    (site / MODULE / "broken.py").write_text("1 / 0\n")
    write_package(site, scores=f"odd = {MODULE}.{entry}")
    with pytest.raises(SeqloomError, match=rf"the plug-in 'odd' .* of the package {PACKAGE} {reason}"):
        build(SCORES, "odd", query_dim=2, key_dim=3)
    run = words("scores", labelled, tmp_path / "run")
    one_line(seqloom("train", *(word.replace("biaffine", "odd") for word in run)), "the plug-in 'odd'")


def test_a_setting_without_a_type_is_one_line(site):
    (site / MODULE / "untyped.py").write_text(
        "class Score:\n    def __init__(self, query_dim, key_dim, hidden=1): ...\n"
    )
    write_package(site, scores=f"odd = {MODULE}.untyped:Score")
    with pytest.raises(SeqloomError, match="hidden of Score has no type annotation"):
        complete(SCORES, "odd")


def test_two_packages_of_one_name(site):
    write_facts(site, "other-toys", "1", {"scores": f"biaffine = {MODULE}.scores:Biaffine"})
    with pytest.raises(SeqloomError, match="brought by other-toys and by seqloom-toys: uninstall one"):
        known("biaffine", SCORES)


def test_another_version_is_a_note_and_another_package_an_error(site, labelled, tmp_path, seqloom):
    run = tmp_path / "run"
    assert seqloom("train", *words("scores", labelled, run))[0] == 0
    write_package(site, version="0.4")
    forget()
    status, _, err = seqloom("predict", run, "--text", "good day")
    assert status == 0
    assert err.count("scores:biaffine was seqloom-toys 0.3 in training, and is 0.4 now\n") == 1
    write_facts(site, PACKAGE, "0.4", {})
    write_facts(site, "other-toys", "1", {"scores": f"biaffine = {MODULE}.scores:Biaffine"})
    forget()
    one_line(seqloom("predict", run, "--text", "good day"), "not installed; other-toys has another of that name")


def test_entry_points_are_read_for_unknown_names_alone(site, labelled, tmp_path, seqloom, monkeypatch):
    def never(**_):
        raise AssertionError("entry points were read")

    monkeypatch.setattr(importlib.metadata, "entry_points", never)
    for command in (["--help"], ["train", "--help"], ["settings", "translate"], ["data", "list"], ["recipes"]):
        assert seqloom(*command)[0] == 0
    assert seqloom("train", "classify", labelled, *QUICK.split(), "--output", tmp_path / "run")[0] == 0
    assert seqloom("predict", tmp_path / "run", "--text", "good day")[0] == 0
    assert "plugins" not in config_of(tmp_path / "run")


@pytest.mark.parametrize("kind", TOYS)
def test_every_address_is_a_table(kind):
    home, _, name = plugins.TABLES[kind].partition(":")
    table = getattr(importlib.import_module(home), name)
    assert isinstance(table, dict)
    assert plugins.kind_of(table) == kind


def test_the_package_of_the_documents(tmp_path, labelled, seqloom, monkeypatch):
    """The page's own files, installed as pip would; its command, on small data."""
    blocks = dict(re.findall(r"```(toml|python|yaml|sh)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S))
    project = tomllib.loads(blocks["toml"])["project"]
    groups = {group.removeprefix("seqloom."): entries for group, entries in project["entry-points"].items()}
    lines = {kind: "\n".join(f"{name} = {value}" for name, value in each.items()) for kind, each in groups.items()}
    write_facts(tmp_path, project["name"], project["version"], lines)
    (tmp_path / "my_seqloom_parts").mkdir()
    (tmp_path / "my_seqloom_parts" / "__init__.py").write_text("")
    (tmp_path / "my_seqloom_parts" / "scores.py").write_text(blocks["python"])
    monkeypatch.syspath_prepend(str(tmp_path))
    command = shlex.split(blocks["sh"].splitlines()[-1].replace("words.tsv", str(labelled)))[1:-1]
    assert seqloom(*command, tmp_path / "run", *QUICK.split())[0] == 0
    forget()
    config = config_of(tmp_path / "run")
    assert config["model"]["decoder"]["score"] == {"kind": "biaffine", "bias": True}
    assert config["plugins"] == yaml.safe_load(blocks["yaml"])["plugins"]
    groups_named = set(re.findall(r"`seqloom\.([a-z]+)`", PAGE.read_text(encoding="utf-8")))
    assert plugins.TABLES.keys() <= groups_named


@pytest.mark.parametrize("kind", ["score", "cell", "mixer", "norm"])
def test_laws_of_a_part_by_name(kind, site, seqloom):
    name = TOYS[f"{kind}s"].name
    status, out, err = seqloom("laws", "--kind", kind, name)
    assert (status, err) == (0, ""), out
    assert out.startswith(f"{name} ({kind}), seed 0\n")
    forget()
    assert seqloom("laws", name, "--law", "shapes")[1].startswith(f"{name} ({kind}), seed 0\n")
    forget()
    one_line(seqloom("laws", "--kind", kind, f"{name}x"), f"unknown {kind} '{name}x'")
    one_line(seqloom("laws", "--kind", "norm" if kind == "cell" else "cell", name), "no part of this name")
    assert not plugins._loaded


def test_laws_take_our_own_part_of_any_kind_first(site, seqloom):
    write_package(site, cells=f"dot = {MODULE}.cells:Ugrnn\nbroken = {MODULE}.gone:Cell")
    assert seqloom("laws", "dot", "--law", "shapes")[1].startswith("dot (score)")
    one_line(seqloom("laws", "broken"), "the plug-in 'broken'", "cannot be imported")
    assert not plugins._loaded
