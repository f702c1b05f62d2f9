"""Generated command lines and configurations: never a traceback, a hang, a file elsewhere or one left behind."""

from __future__ import annotations

import io
import os
import resource
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pytest
import torch

from seqloom.cli.main import run as main
from seqloom.errors import SeqloomError, SettingError, shown
from seqloom.runs.config import build_model, compose
from seqloom.runs.settings.set_option import parse_set
from seqloom.tasks.registry import task as get_task
from tests.cli.fuzz import FILES, Case, Fuzz, keys, make_files
from tests.cli.test_main import COMMAND

LONGEST = 10  # seconds of the processor
ROOM = 4 << 30  # bytes of memory beyond what the process has: absurd sizes must be refused before they hurt


class Hang(BaseException):
    """Nothing that waits for an Exception catches it."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that commands are given in; beside it one that nobody may touch."""
    home = tmp_path_factory.mktemp("fuzz")
    (home / "outside").mkdir()
    (home / "outside" / "file").write_text("nobody writes here")
    work = home / "work"
    work.mkdir()
    make_files(work / "data")
    (work / "out").mkdir()
    (work / "runs").mkdir()
    return work


def trained(place: Path, *tasks: str) -> list[str]:
    """A run of one step for each task."""
    for task in tasks:
        if not (place / "runs" / task).exists():
            line = ["train", task, FILES[task], "--output", f"runs/{task}", "--size", "tiny", "--max-steps", "1"]
            line += ["--batch-rows", "8", "--set", "training.valid_decode=4", "--quiet", "--device", "cpu"]
            with within(place):
                status, _, err = called(line)
            assert status == 0, err
    return [f"runs/{task}" for task in tasks]


@contextmanager
def within(place: Path) -> Iterator[None]:
    """In that folder, with bounded memory."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = Path.cwd()
    os.chdir(place)
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        os.chdir(before)


@contextmanager
def bounded() -> Iterator[None]:
    """Not longer than `LONGEST` seconds of the processor."""

    def late(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def called(words: list[str]) -> tuple[int | str, str, str]:
    """A command in this process: status or what else came out of it, stdout, stderr."""
    held = [io.BytesIO(b"abc\n"), io.BytesIO(), io.BytesIO()]
    ways = ("strict", "strict", "backslashreplace")
    streams = [io.TextIOWrapper(raw, "utf-8", how, write_through=True) for raw, how in zip(held, ways, strict=True)]
    kept = sys.argv, sys.stdin, sys.stdout, sys.stderr
    status: int | str = 0
    try:
        sys.argv = ["seqloom", *words]
        sys.stdin, sys.stdout, sys.stderr = streams
        with bounded():
            main()
    except SystemExit as left:
        status = left.code if isinstance(left.code, str) else int(left.code or 0)
    except Hang:
        status = "hang: " + _where(*sys.exc_info())
    except BaseException:
        status = "traceback: " + _where(*sys.exc_info())
    finally:
        sys.argv, sys.stdin, sys.stdout, sys.stderr = kept
    _, out, err = (raw.getvalue().decode("utf-8", "replace") for raw in held)
    return status, out, err


def _where(kind: Any, error: Any, trace: Any) -> str:
    ours = [
        f"{Path(one.filename).name}:{one.lineno}" for one in traceback.extract_tb(trace) if "seqloom" in one.filename
    ]
    return f"{kind.__name__} {str(error)[:200]!r} {' '.join(ours[-3:])}"


def composed(case: Case) -> str | None:
    """What is wrong with how a configuration was taken or refused."""
    task, model = case.words
    try:
        with bounded():
            config = compose(task, model, "tiny", {}, {}, dict(map(parse_set, case.settings)))
            _built(task, config)
    except SettingError as error:
        return _one_line(str(error)) or _names(case, str(error))
    except SeqloomError as error:
        return f"refused without status 2: {error}"
    except BaseException:
        return _where(*sys.exc_info())
    return None


def _built(task: str, config: dict[str, Any]) -> None:
    """The model of a config, without its numbers."""
    make = get_task(task).models[config["model"]["kind"]]
    sizes = {
        name: 2 if name == "label_count" else 12
        for name, one in signature(make).parameters.items()
        if one.default is Parameter.empty
    }
    with torch.device("meta"):
        build_model(config, sizes)


def _names(case: Case, message: str) -> str | None:
    """Whether it can be told from the message which setting it is about: one that was given, or one of the model's."""
    given = [part for one in case.settings for part in (*one.partition("=")[0].split("."), one.partition("=")[0])]
    every = [part for one in keys(*case.words) for part in one.key.split(".")]
    parts = {shown(part.strip())[1:-1] for part in (*given, *every, "--set")}
    right = any(part and part in message for part in parts) or ("''" in message and "" in parts)
    return None if right else f"names no setting: {message}"


def _one_line(message: str) -> str | None:
    right = "\n" not in message and 0 < len(message) < 2000 and "Traceback" not in message
    return None if right else f"not one line: {message[:300]!r}"


def judged(words: list[str], status: int | str, out: str, err: str) -> str | None:
    """What is wrong with how a command ended."""
    if status not in (0, 1, 2):
        return f"status {status}"
    if "Traceback" in out + err:
        return "traceback"
    if status == 0 or (words[:2] == ["data", "check"] and out) or (status == 2 and "Usage" in out):
        return None
    lines = [line for line in err.split("\n") if line]
    if not lines or not lines[-1].startswith("seqloom: ") or sum(line.startswith("seqloom: ") for line in lines) > 1:
        return f"not one line: {err[-300:]!r}"
    return _one_line(lines[-1])


def listed(place: Path) -> dict[str, Any]:
    """All that must stay as it is: what the folder of the commands holds beside outputs, and what is beside it."""
    folders = (place, place / "data", place / "runs", place.parent, place.parent / "outside")
    found = {str(path): path.lstat() for folder in folders for path in folder.iterdir()}
    return {name: (about.st_mode, 0 if path_is_dir(about) else about.st_size) for name, about in found.items()}


def path_is_dir(about: os.stat_result) -> bool:
    return (about.st_mode & 0o170000) == 0o040000


def tidied(place: Path, before: dict[str, Any]) -> str | None:
    """What a command left where nothing may be left; it is then as before."""
    shutil.rmtree(place / "out")
    (place / "out").mkdir()
    after = listed(place)
    named = place / "runs"
    new = [name for name in after if before.get(name) != after[name]]
    for name in new:
        shutil.rmtree(name) if Path(name).is_dir() and not Path(name).is_symlink() else Path(name).unlink()
    odd = [name for name in new if Path(name).parent != named or Path(name).name.startswith(".")]
    gone = [name for name in before if name not in after]
    return f"left {odd}, took {gone}" if odd or gone else None


def tried(place: Path, case: Case, call: Callable[[list[str]], tuple[int | str, str, str]]) -> str | None:
    before = listed(place)
    for name, text in case.files.items():
        (place / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    return judged(case.words, *call(case.words)) or tidied(place, before)


def fuzzed(place: Path, fuzz: Fuzz, count: int) -> list[str]:
    """Every failure, with what repeats it."""
    failures = []
    with within(place):
        for number in range(count):
            case = fuzz.case(number)
            wrong = composed(case) if case.settings else tried(place, case, called)
            if wrong:
                failures.append(
                    f"{number} {case.kind}: {wrong}\n    {case.words} {case.settings} {list(case.files.values())}"
                )
    return failures


def test_a_sample_of_generated_lines(place):
    failures = fuzzed(place, Fuzz(1, trained(place, "tag", "vectors"), rehearsed=0.9), 200)
    assert not failures, "\n".join(failures)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_generated_lines(place, seed):
    failures = fuzzed(place, Fuzz(seed, trained(place, *FILES)), 5000)
    assert not failures, "\n".join(failures)


def processed(words: list[str]) -> tuple[int | str, str, str]:
    """A command in a process of its own."""

    def limits() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (LONGEST + 10, LONGEST + 10))  # torch takes some of it to be loaded

    raw = [os.fsencode(word) for word in [*COMMAND, *words]]
    done = subprocess.run(raw, input=b"abc\n", capture_output=True, timeout=300, preexec_fn=limits)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def in_processes(place: Path, seed: int, count: int, runs: list[str]) -> list[str]:
    fuzz = Fuzz(seed, runs)
    failures = []
    with within(place):
        cases = (case for case in map(fuzz.case, range(100 * count)) if not case.settings)
        for case, _ in zip(cases, range(count), strict=False):
            if wrong := tried(place, case, processed):
                failures.append(f"{case.kind}: {wrong}\n    {case.words} {list(case.files.values())}")
    return failures


def test_three_generated_lines_as_processes(place):
    failures = in_processes(place, 43, 3, trained(place, "vectors"))
    assert not failures, "\n".join(failures)


@pytest.mark.slow
def test_generated_lines_as_processes(place):
    failures = in_processes(place, 5, 300, trained(place, *FILES))
    assert not failures, "\n".join(failures)
