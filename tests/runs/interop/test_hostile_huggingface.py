"""Damaged and hostile folders of Hugging Face's models, by a table: one line, at once, and no run is left behind."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import seqloom
from seqloom.errors import SeqloomError
from seqloom.runs.interop.huggingface_import import import_hf
from tests.hostile import within
from tests.hostilehf import CASES, SIZE, Case, make

SECONDS = 10


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("theirs") / "whole"
    make(folder)
    return folder


def wrong(case: Case, whole: Path, work: Path) -> str | None:
    """What a case does that it should not."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(whole, work / "theirs")
    case.change(work / "theirs")
    run, worked = work / "run", False
    try:
        with within(SECONDS):
            import_hf(work / "theirs", run, ids=case.ids)
            worked = True
            seqloom.load(run, device="cpu").predict(["2 3" if case.ids else "w2 w3"])
    except SeqloomError as error:
        line = str(error)
        if "\n" in line or len(line) > 2000:
            return f"more than a line: {line}"
        if not worked and case.harmless:
            return f"should work: {line}"
        if str(work) not in line:
            return f"does not say where: {line}"
        return "left a run behind" if run.exists() and not worked else None
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {error}"
    return None if case.harmless else "went unnoticed"


def check(cases: list[Case], whole: Path, tmp_path: Path) -> None:
    found = [f"{case}: {told}" for case in cases if (told := wrong(case, whole, tmp_path / "work"))]
    assert not found, "\n".join(found)
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_whole_one_is_imported(whole, tmp_path):
    for ids in (True, False):
        import_hf(whole, tmp_path / f"run-{ids}", ids=ids)
        assert len(seqloom.load(tmp_path / f"run-{ids}", device="cpu").predict(["2 3" if ids else "w2 w3"])) == 1


def test_a_stranger_s_folder_is_refused_in_a_line(whole, tmp_path):
    check(CASES[::6], whole, tmp_path)


@pytest.mark.slow
def test_every_damaged_folder_is_refused_in_a_line(whole, tmp_path):
    assert len({str(case) for case in CASES}) == len(CASES) >= 95
    check(CASES, whole, tmp_path)


def test_words_beyond_the_weights_take_no_memory(whole, tmp_path):
    """Not even for a moment: the words of ids are made after the weights are known to have room for them."""
    import tracemalloc

    [case] = [case for case in CASES if str(case) == f"config.json: vocab_size is {str(10**12)!r}"]
    shutil.copytree(whole, tmp_path / "theirs")
    case.change(tmp_path / "theirs")
    tracemalloc.start()
    try:
        with pytest.raises(SeqloomError, match="vocab_size"):
            import_hf(tmp_path / "theirs", tmp_path / "run", ids=True)
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()
    assert SIZE < 10**12
