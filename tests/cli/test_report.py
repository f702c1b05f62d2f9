"""seqloom report, as a stranger uses it."""

from __future__ import annotations

import shutil

from tests.cli.conftest import one_line


def test_one_run_and_two(seqloom, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / "report.html").unlink()
    assert seqloom("report", copy)[:2] == (0, f"{copy / 'report.html'}\n")
    assert (copy / "report.html").exists()
    assert seqloom("report", run, copy)[:2] == (0, "report.html\n")
    assert "2 runs" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert seqloom("report", run, copy, "--output", "both.html")[:2] == (0, "both.html\n")


def test_wrong_folders(seqloom, run, tmp_path):
    one_line(seqloom("report", tmp_path / "none"), "no such run")
    one_line(seqloom("report", tmp_path), "not a run folder")
    one_line(seqloom("report", run, tmp_path), "not a run folder")
    one_line(seqloom("report", run, run, "--output", tmp_path / "no" / "where.html"), "could not be written")
