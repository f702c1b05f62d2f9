"""What is shipped: the wheel's files and metadata, and that it works where nothing else is installed."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from seqloom.version import __version__

ROOT = Path(__file__).parent.parent
DOCKER = ("FROM", "ARG", "COPY", "USER", "ENTRYPOINT")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that no build folder is left in the tree; without a network."""
    pytest.importorskip("setuptools")
    copy = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "seqloom", copy / "seqloom", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "tests").mkdir()
    (copy / "tests" / "__init__.py").touch()  # stands beside the package and must not get in
    dist = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", dist, copy]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (file,) = dist.glob("*.whl")
    return file


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    """Data files too: one that is not named in pyproject.toml would be left at home."""
    files = (file for file in (ROOT / "seqloom").rglob("*") if file.is_file() and file.suffix != ".pyc")
    expected = {str(file.relative_to(ROOT)) for file in files}
    names = set(zipfile.ZipFile(wheel).namelist())
    held = {name for name in names if ".dist-info/" not in name}
    assert held == expected
    assert "seqloom/py.typed" in held
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheels_metadata(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    facts = email.message_from_bytes(archive.read(name))
    assert facts["Name"] == "seqloom"
    assert facts["Version"] == __version__
    assert wheel.name == f"seqloom-{__version__}-py3-none-any.whl"
    assert "Typing :: Typed" in facts.get_all("Classifier", [])
    assert {"demo", "plots", "zh", "test"} <= set(facts.get_all("Provides-Extra", []))
    core = [line for line in facts.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert any(line.startswith("torch") for line in core)
    assert not any(re.match("pytest|matplotlib|transformers|rjieba", line) for line in core), "the core stays light"
    (entry,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
    assert "seqloom = seqloom.cli.main:run" in archive.read(entry).decode()


def test_the_container_copies_what_is_there_and_runs_as_nobody_special():
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    said = {word: [line.split(maxsplit=1)[1] for line in lines if line.startswith(f"{word} ")] for word in DOCKER}
    assert {line.split()[0] for line in said["FROM"]} == {"python:3.11-slim"}
    assert said["USER"] == ["${UID}"]
    assert said["ENTRYPOINT"] == ['["seqloom"]']
    copied = {name for line in said["COPY"] if "--from" not in line for name in line.split()[:-1]}
    assert all((ROOT / name).exists() for name in copied)
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignore if line.startswith("!")} == copied
    documented = set(re.findall(r"^#   ([A-Z_]+) ", "\n".join(lines), re.M))
    assert documented == {line.partition("=")[0] for line in said["ARG"]}


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(wheel, tmp_path):
    """Installed with its own dependencies alone (from the package index that pip is set to), used from elsewhere."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    bare |= {"SEQLOOM_CACHE": str(tmp_path / "cache"), "PATH": f"{home / 'bin'}:{os.environ['PATH']}"}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def call(*command: object) -> str:
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=elsewhere, env=bare)
        assert done.returncode == 0, done.stderr
        return done.stdout

    pip = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    call(*pip, "-c", ROOT / "constraints.txt", f"{wheel}[demo]")
    seqloom = home / "bin" / "seqloom"
    assert call(seqloom, "--version").startswith(f"seqloom {__version__} ")
    where = call(home / "bin" / "python", "-c", "import seqloom; print(seqloom.__file__)")
    assert Path(where.strip()).is_relative_to(home)
    assert Path(where.strip()).with_name("py.typed").exists()
    shown = call(seqloom, "demo", "--steps", 20)
    assert "phoneme error rate" in shown
    assert (elsewhere / "runs" / "demo" / "model.safetensors").exists()
    call(seqloom, "predict", "runs/demo", "--output", "said.txt", _file(elsewhere / "words.txt", "rhythm\n"))
    assert (elsewhere / "said.txt").read_text().count("\n") == 1


def _file(path: Path, content: str) -> Path:
    path.write_text(content)
    return path
