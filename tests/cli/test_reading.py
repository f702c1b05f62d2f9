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
        "odd.tsv:4: warning: U+200B (zero width space) at character 2, which is invisible",
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


def test_each_kind_of_thing_is_said_once_in_the_order_of_lines(seqloom, tmp_path):
    lines = [f"a text {n},label" if n % 2 else f"a text\tlabel {n}" for n in range(40)]
    lines[30] = "a text 30\t"
    (tmp_path / "odd.tsv").write_text("\n".join(lines) + "\n")
    status, out, _ = seqloom("data", "check", "translate", "odd.tsv")
    assert status == 1
    assert out.splitlines()[:2] == [
        'odd.tsv:2: error: no TAB but ",": expected source TAB target; did you mean a .csv file? '
        "(20 such lines: 2, 4, 6, 8, 10, …)",
        "odd.tsv:31: error: the target is empty",
    ]
    every = seqloom("data", "check", "translate", "odd.tsv", "--all")[1].splitlines()
    places = [int(line.split(":")[1]) for line in every if ": error:" in line]
    assert places == sorted([*range(2, 41, 2), 31])
    found = json.loads(seqloom("data", "check", "translate", "odd.tsv", "--json")[1])
    assert [(one["line"], one["count"], one["lines"]) for one in found["kinds"]] == [
        (2, 20, [2, 4, 6, 8, 10]),
        (31, 1, [31]),
    ]


def test_headers_delimiters_and_encodings_travel_with_the_run(seqloom, tmp_path):
    rows = "".join(f"{word};{pronounce(word)}\r\n" for word in words(60))
    (tmp_path / "a.csv").write_bytes(f"Wörter;Aussprache\r\n{rows}".encode("cp1252"))
    (tmp_path / "a.txt").write_text(rows.replace("\r", ""))
    train = ["train", "translate", "a.txt", "-o", "run", "--no-header", *SMALL, "--max-steps", 2]
    one_line(seqloom(*train, "--delimiter", "ab"), "--delimiter 'ab'")
    assert seqloom(*train, "--delimiter", ";")[0] == 0
    data = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["data"]
    assert (data["delimiter"], data["header"], data["encoding"], data["detect"]) == (";", False, None, True)
    assert json.loads(seqloom("evaluate", "run", "a.csv", "--json")[1])["count"] == 61, "no header, as in the training"
    assert json.loads(seqloom("evaluate", "run", "a.csv", "--json", "--header")[1])["count"] == 60
    _, out, err = seqloom("predict", "run", "a.csv", "--header", "--encoding", "latin-1")
    assert len(out.splitlines()) == 60
    assert "note: a.csv: the first line (Wörter,Aussprache) is taken as a header" in err
    assert seqloom("data", "check", "translate", "a.txt", "--delimiter", "semicolon", "--no-header")[0] == 0


def test_a_run_of_an_earlier_version_goes_on_as_it_began(seqloom, tmp_path):
    rows = "".join(f"{word}\t{pronounce(word)}\n" for word in words(60))
    (tmp_path / "a.tsv").write_text(f"source\ttarget\n{rows}")
    train = ["train", "translate", "a.tsv", "-o", "run", *SMALL]
    assert seqloom(*train, "--max-steps", 2, "--set", "data.detect=false")[0] == 0
    file = tmp_path / "run" / "config.yaml"
    config = yaml.safe_load(file.read_text())
    for name in ("header", "delimiter", "encoding", "detect"):
        del config["data"][name]
    file.write_text(yaml.safe_dump(config))
    status, _, err = seqloom("train", "translate", "a.tsv", "-o", "run", "--resume", "--max-steps", 3)
    assert (status, "resumed at step 2" in err) == (0, True)


def test_messages_name_what_is_wrong(seqloom, tmp_path):
    rows = [(f"some words number {n}", f"kind{n % 3}") for n in range(60)]
    (tmp_path / "swapped.tsv").write_text("".join(f"{label}\t{text}\n" for text, label in rows))
    (tmp_path / "blank.txt").write_text("".join(f"{label} {text}\n" for text, label in rows))
    (tmp_path / "semi.txt").write_text("".join(f"{text};{label}\n" for text, label in rows))
    (tmp_path / "same.tsv").write_text("".join(f"{text}\t1\n" for text, _ in rows))
    train = ["train", "classify", "-o", "run", "--size", "tiny"]
    one_line(seqloom(*train, "swapped.tsv"), "the columns seem to be swapped", "--columns 2,1")
    assert "swapped; --columns 2,1" in seqloom("data", "check", "classify", "swapped.tsv")[1]
    assert "seem to be swapped" not in seqloom("data", "check", "classify", "swapped.tsv", "--columns", "2,1")[1]
    one_line(seqloom(*train, "blank.txt"), "begin with a label, as 'kind0'", "put a TAB", "--columns 2,1")
    one_line(seqloom(*train, "semi.txt"), "semicolons seem to stand", "--delimiter semicolon")
    (tmp_path / "semi.tsv").write_text("".join(f"{text};{label}\n" for text, label in rows))
    one_line(seqloom(*train, "semi.tsv"), 'no TAB but ";"', "--delimiter semicolon reads it")
    assert seqloom("data", "check", "classify", "semi.tsv", "--delimiter", "semicolon")[0] == 0
    one_line(seqloom(*train, "same.tsv"), "all examples have the label '1'", "read from the second column")
    one_line(seqloom("train", "--recipe", "cmudict", "nowhere.tsv", "b.tsv", "-o", "run"), "nowhere.tsv: no such file")
    status, _, err = seqloom("train", "tag", "--recipe", "cmudict", "-o", "run")
    assert (status, "is of the task translate, not of tag" in err) == (2, True)


def test_a_delimiter_of_the_training_does_not_stop_json_lines(seqloom, tmp_path):
    pairs = [(word, pronounce(word)) for word in words(60)]
    (tmp_path / "a.txt").write_text("".join(f"{word};{said}\n" for word, said in pairs))
    (tmp_path / "b.jsonl").write_text("".join(f'{{"source": "{word}", "target": "{said}"}}\n' for word, said in pairs))
    train = ["train", "translate", "a.txt", "-o", "run", *SMALL, "--max-steps", 1]
    assert seqloom(*train, "--delimiter", ";")[0] == 0
    assert json.loads(seqloom("evaluate", "run", "b.jsonl", "--json")[1])["count"] == 60
    status, out, _ = seqloom("predict", "run", "b.jsonl")
    assert (status, len(out.splitlines())) == (0, 60)
    for command in ("evaluate", "predict"):
        one_line(seqloom(command, "run", "b.jsonl", "--delimiter", ";"), "goes with TSV and CSV, not with JSON lines")
