"""What the user names as an output: a file is whole or not there; anything else is written through, not replaced."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading

import pytest

from seqloom.errors import SeqloomError
from seqloom.files import write_output, writing_output


def test_a_link_stays_and_its_file_is_written(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    real, link = tmp_path / "elsewhere" / "real.txt", tmp_path / "link.txt"
    link.symlink_to(real)
    for text in ("new", "again"):  # it leads nowhere at first
        write_output(link, text)
        assert link.is_symlink()
        assert real.read_text() == text
    assert [path.name for path in real.parent.iterdir()] == ["real.txt"]


def test_what_goes_wrong_leaves_the_file_behind_a_link(tmp_path):
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    real.write_text("before")
    link.symlink_to(real)

    def fail():
        with writing_output(link) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert real.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.txt", "real.txt"]


def test_a_fifo_is_written_through(tmp_path):
    fifo, read = tmp_path / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()))
    reader.start()
    write_output(fifo, "through\n")
    reader.join(10)
    assert read == ["through\n"]
    assert not fifo.is_file()


def test_a_device_is_written_through(tmp_path):
    ours, theirs = pty.openpty()
    try:
        link = tmp_path / "terminal"
        link.symlink_to(os.ttyname(theirs))
        write_output(link, "through\n")
        assert os.read(ours, 100).replace(b"\r", b"") == b"through\n"
        assert link.is_symlink()
    finally:
        os.close(ours)
        os.close(theirs)
    (tmp_path / "null").symlink_to("/dev/null")
    write_output(tmp_path / "null", "gone")
    assert os.path.realpath(tmp_path / "null") == "/dev/null"
    assert not os.path.isfile("/dev/null")


@pytest.mark.parametrize("end", ["file", "pipe"])
def test_standard_output_by_its_path(tmp_path, end):
    """Among what else is printed, in its order, and nothing that stood there before is lost."""
    code = "from pathlib import Path; from seqloom.files import write_output; print('one', flush=True)\n"
    code += "write_output(Path('/dev/stdout'), 'two\\n'); print('three')"
    if end == "pipe":
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
        assert done.stdout == b"one\ntwo\nthree\n"
        return
    with (tmp_path / "out").open("wb") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert (tmp_path / "out").read_bytes() == b"one\ntwo\nthree\n"


def test_what_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for place in (tmp_path / "loop", tmp_path / "no" / "where", tmp_path):
        with pytest.raises(SeqloomError, match=r"could not be written") as caught:
            write_output(place, "text")
        assert str(place) in str(caught.value)
