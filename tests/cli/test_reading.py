"""Columns, broken lines and limits on the command line; what `data check` prints."""

from __future__ import annotations

import io
import json
import sys

import pytest
import yaml

from tests.cli.conftest import one_line
from tests.cli.test_commands import SMALL
from tests.conftest import pronounce, words

pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def small(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chosen = words(60)
    rows = [f'{i},"{word}",{pronounce(word)}' for i, word in enumerate(chosen)]
    (tmp_path / "a.csv").write_text("\n".join(["id,text,label", *rows]) + "\n")
    (tmp_path / "bad.csv").write_text("\n".join(["id,text,label", *rows, "61,alone", '62,"open,x']) + "\n")


def test_columns_travel_with_the_run(seqloom, tmp_path):
    train = ["train", "translate", "a.csv", "-o", "run", *SMALL]
    one_line(seqloom(*train, "--columns", "txt,label"), "a.csv:1", "did you mean 'text'")
    one_line(seqloom(*train, "--columns", "text"), "name at least two")
    status, _, err = seqloom(*train, "--columns", "text,label", "--limit", 50, "--max-steps", 2)
    assert (status, "only the first 50 examples" in err) == (0, True)
    data = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["data"]
    assert (data["columns"], data["skip_bad"], data["limit"]) == ("text,label", False, 50)
    facts = json.loads((tmp_path / "run" / "data.json").read_text())
    assert facts["train"]["pairs"] + facts["valid"]["pairs"] == 50
    assert seqloom(*train, "--max-steps", 3, "--resume")[0] == 0, "the columns are remembered"
    one_line(seqloom(*train, "--resume", "--columns", "text,id"), "data.columns: text,label -> text,id")
    assert json.loads(seqloom("evaluate", "run", "a.csv", "--json")[1])["count"] == 60
    assert json.loads(seqloom("evaluate", "run", "a.csv", "--json", "--columns", "2,3")[1])["count"] == 60
    plain = ["--columns", "2,3", "--no-header"]
    assert json.loads(seqloom("evaluate", "run", "a.csv", "--json", *plain)[1])["count"] == 61


def test_broken_lines_are_skipped_only_on_request(seqloom, tmp_path):
    train = ["train", "translate", "bad.csv", "-o", "run", "--columns", "text,label", "--max-steps", 2, *SMALL]
    one_line(seqloom(*train), "bad.csv:62", "column 3 is missing")
    status, _, err = seqloom(*train, "--skip-bad")
    assert status == 0
    assert "left out 2 broken lines (1 columns, 1 quote): bad.csv:62: column 3 is missing" in err
    assert json.loads((tmp_path / "run" / "data.json").read_text())["skipped"]["count"] == 2
    status, out, err = seqloom("evaluate", "run", "bad.csv", "--json")
    assert json.loads(out)["count"] == 60
    assert "note: left out 2 broken lines" in err


def test_predict_from_columns_and_json(seqloom, run, monkeypatch):
    status, out, _ = seqloom("predict", run, "a.csv", "--columns", "text")
    assert (status, len(out.splitlines())) == (0, 60)
    one_line(seqloom("predict", run, "a.csv", "--columns", "txt"), "did you mean 'text'")
    answers = []
    for raw in (b"abc\ndad\n", b'{"source": "abc"}\n{"source": "dad"}\n'):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
        answers.append(seqloom("predict", run, "-")[1])
    assert answers[0] == answers[1]


def test_check_says_what_kind_of_problem(seqloom, tmp_path):
    content = '\ufeffa\tx\nb\ty\r\nno,tab\nc\u200b\tz\n\ufeffd\tq\n"e\tr\na\tx\n'
    (tmp_path / "odd.tsv").write_text(content, newline="")
    status, out, _ = seqloom("data", "check", "translate", "odd.tsv")
    assert status == 1
    assert out.splitlines()[:7] == [
        "odd.tsv:2: warning: the line ends in CRLF, most lines in LF",
        'odd.tsv:3: error: no TAB but ",": expected source TAB target; did you mean a .csv file?',
        "odd.tsv:4: warning: U+200B (zero width space) at character 2, which nobody sees",
        "odd.tsv:5: error: byte order mark in the middle of the file: were two files joined here?",
        "odd.tsv:6: warning: a column begins with a quote that is not closed; in TSV quotes are text",
        "odd.tsv:7: warning: duplicate: the same pair as in line 1",
        "note: odd.tsv: the byte order mark at its start was dropped",
    ]
    value = json.loads(seqloom("data", "check", "translate", "odd.tsv", "--json")[1])
    assert [problem["code"] for problem in value["problems"]] == [
        "line-end", "delimiter", "invisible", "bom", "quote", "duplicate"
    ]  # fmt: skip
    assert value["codes"]["bom"] == 1
    assert len(value["notes"]) == 1
    assert seqloom("data", "check", "translate", "a.csv", "--columns", "text,label")[0] == 0


def test_check_of_files_that_are_no_texts(seqloom, tmp_path):
    (tmp_path / "empty.tsv").write_bytes(b"")
    (tmp_path / "mac.tsv").write_bytes(b"a\tx\rb\ty\r")
    (tmp_path / "dos.tsv").write_bytes(b"a\tx\r\nb\ty\r\n")
    assert "empty.tsv:1: error: the file is empty" in seqloom("data", "check", "translate", "empty.tsv")[1]
    assert "mac.tsv:1: error: lines end in CR alone" in seqloom("data", "check", "translate", "mac.tsv")[1]
    assert seqloom("data", "check", "translate", "dos.tsv")[:2][0] == 0
    assert "0 warnings" in seqloom("data", "check", "translate", "dos.tsv")[1]


def test_check_of_one_line_knows_no_plural(seqloom, tmp_path):
    (tmp_path / "one.tsv").write_text("a\tx\nb\n")
    _, out, _ = seqloom("data", "check", "translate", "one.tsv")
    assert "one.tsv: 1 pair in 2 lines (tsv), 1 distinct source, 0 of them" in out
    assert "; 1 distinct character\n" in out
    assert out.endswith("\n1 broken line, 0 warnings\n")
    (tmp_path / "one.txt").write_text("a\n")
    assert "1 word in 1 line, the longest of 1" in seqloom("data", "check", "generate", "one.txt")[1]
