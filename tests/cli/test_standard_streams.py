"""Standard streams that are closed, full, left by their reader or in ASCII, and memory that cannot be had."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys

import pytest
import torch

from tests.cli.conftest import one_line
from tests.cli.test_main import COMMAND


@pytest.fixture(scope="module")
def chinese(tmp_path_factory):
    """Tokens and tags that ASCII does not have."""
    import seqloom

    folder = tmp_path_factory.mktemp("chinese")
    (folder / "tagged.conll").write_text("我 名\n爱 动\n\n" * 20, encoding="utf-8")
    (folder / "words.txt").write_text("我 爱\n" * 3000, encoding="utf-8")
    training = {"max_steps": 1, "batch_rows": 8}
    seqloom.train("tag", folder / "tagged.conll", output=folder / "run", size="tiny", training=training, quiet=True)
    return folder


def shell(folder, line: str, redirected: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A command as a shell starts it, with its streams redirected."""
    command = f"{shlex.join(COMMAND)} {line} {redirected}"
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, capture_output=True, timeout=120, env=os.environ | environment
    )


@pytest.mark.parametrize(
    ("line", "redirected", "status"),
    [
        ("data check tag -", "<&- >&-", 1),
        ("settings nope", "2>&-", 2),
        ("settings tag", ">&-", 0),
    ],
)
def test_closed_streams_are_silent(chinese, line, redirected, status):
    done = shell(chinese, line, redirected)
    assert (done.returncode, done.stdout, done.stderr) == (status, b"", b"")


def test_a_file_does_not_take_the_number_of_a_closed_stream(chinese):
    """Else what is printed would stand in it."""
    done = shell(chinese, "predict run words.txt --output answers --threshold 0.5", ">&- 2>&- <&-")
    assert done.returncode == 0
    lines = (chinese / "answers").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 3000
    assert not any("confidence" in line for line in lines)


def test_a_full_disk_behind_standard_output_is_one_line(chinese):
    done = shell(chinese, "settings tag", ">/dev/full")
    assert done.returncode == 1
    assert done.stderr == b"seqloom: standard output, or a file: No space left on device\n"


def test_predictions_that_the_encoding_does_not_have_are_refused(seqloom, chinese, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    told = "standard output is in ascii, which has no '\\u540d'; set PYTHONIOENCODING=utf-8"
    one_line(seqloom("predict", chinese / "run", chinese / "words.txt"), told)


def test_help_and_facts_are_written_in_any_encoding(chinese):
    checked = shell(chinese, "data check tag tagged.conll", "", PYTHONIOENCODING="latin-1")
    assert (checked.returncode, checked.stderr) == (0, b"")
    helped = shell(chinese, "train --help", "", PYTHONIOENCODING="ascii")
    assert (helped.returncode, helped.stderr) == (0, b"")
    assert b"--no-header" in helped.stdout


def test_a_plain_locale_takes_chinese(chinese):
    (chinese / "名.conll").write_text("我 名\n我 名 动\n", encoding="utf-8")
    done = shell(chinese, "data check tag 名.conll", "", LANG="C", LC_ALL="C", PYTHONIOENCODING="")
    assert (done.returncode, done.stderr) == (1, b"")
    assert "名.conll:2: error" in done.stdout.decode()


def test_a_reader_that_leaves_early(chinese):
    done = shell(chinese, "settings tag", "2>errors | head -1")
    assert len(done.stdout.splitlines()) == 1
    assert (chinese / "errors").read_bytes() == b""
    assert shell(chinese, "settings nope", "2>&1 | head -0").returncode == 0


def test_memory_that_cannot_be_had_is_one_line(seqloom, chinese, monkeypatch):
    from seqloom.runs import load as loading

    def greedy(*_: object, **__: object) -> None:
        torch.empty(1 << 60, dtype=torch.uint8)  # no machine has it: refused before anything is taken

    monkeypatch.setattr(loading, "load", greedy)
    told = "out of memory: failed to allocate 1,152,921,504,606,846,976 bytes; try a smaller --size or --batch-rows"
    one_line(seqloom("predict", chinese / "run", chinese / "words.txt"), told)


def test_other_failures_of_ours_are_shown_whole(seqloom, chinese, monkeypatch):
    from seqloom.runs import load as loading

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(loading, "load", broken)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        seqloom("predict", chinese / "run", chinese / "words.txt")
