"""Running text in pieces, and what is said about it."""

from __future__ import annotations

import gzip

import pytest

from seqloom.data.checks.texts import check
from seqloom.data.files.columns import ReadOptions
from seqloom.data.formats.bad_lines import Skipped
from seqloom.data.formats.plain_text import raw_chunks, text_chunks
from seqloom.errors import SeqloomError


@pytest.mark.parametrize(
    "text",
    ["", "a", "one\ntwo\n", "no end", "line\n\n\nlong " + "word " * 9000, "字" * 50_000, "x" * 70_000 + "\ny\n"],
    ids=len,
)
def test_pieces_joined_are_the_text(text, tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(text, encoding="utf-8")
    found = list(raw_chunks(str(file), file, size=1000))
    assert b"".join(raw.content for raw in found).decode() == text
    for raw in found:
        raw.content.decode()  # no character is cut in two
    assert "".join(text_chunks(str(file), ReadOptions())) == text


def test_gz_marks_and_line_ends(tmp_path):
    file = tmp_path / "text.txt.gz"
    file.write_bytes(gzip.compress("\ufeffone\r\ntwo\r\nthree".encode()))
    assert "".join(text_chunks(str(file), ReadOptions())) == "one\ntwo\nthree"
    file.write_bytes(gzip.compress(b"one\ntwo\n" * 1000)[:-20])
    with pytest.raises(SeqloomError, match=r"text.txt.gz:\d+: the .gz file is cut off"):
        list(text_chunks(str(file), ReadOptions()))


def test_broken_lines_are_named_or_left_out(tmp_path):
    file = tmp_path / "text.txt"
    file.write_bytes(b"good\nbad \xff\nalso good\nnul \0\n\xef\xbb\xbfmark\nend\n")
    with pytest.raises(SeqloomError, match=r"text.txt:2: not UTF-8: byte 0xff at byte 5 of the line; --skip-bad"):
        list(text_chunks(str(file), ReadOptions()))
    skipped = Skipped()
    assert "".join(text_chunks(str(file), ReadOptions(skip_bad=True), skipped)) == "good\nalso good\nend\n"
    assert [problem.line for problem in skipped.first] == [2, 4, 5]


def test_a_column_of_a_table(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text('name,language\n"a, b",x\nc,y\n')
    assert "".join(text_chunks(str(file), ReadOptions(columns="name"))) == "a, b\nc\n"


def test_check_names_lines_and_counts(tmp_path):
    file = tmp_path / "text.txt"
    file.write_bytes(b"one two\n\xff\n" + "a\u200bb\n".encode() + b"x" * 60 + b"\nend\r\n")
    report = check([str(file)], max_length=50)
    found = [(problem.line, problem.kind, problem.code) for problem in report]
    assert found == [
        (2, "error", "utf8"),
        (3, "warning", "invisible"),
        (4, "warning", "long"),
        (5, "warning", "line-end"),
    ]
    assert (report.errors, report.warnings) == (1, 3)
    [facts] = report.to_json()["groups"]
    assert (facts["lines"], facts["broken"], facts["words"], facts["longest"]) == (4, 1, 5, 60)
    assert "5 words in 4 lines" in report.statistics[0].summary()


def test_check_of_an_empty_file(tmp_path):
    file = tmp_path / "empty.txt"
    file.touch()
    assert [problem.code for problem in check([str(file)])] == ["empty"]
