"""Looking through tables: every broken row by name, doubtful ones as warnings, then the columns."""

from __future__ import annotations

from seqloom.data.checks.table import check
from seqloom.data.files.columns import ReadOptions
from seqloom.data.formats.table import TableOptions
from tests.data.formats.test_table import people, write


def test_a_whole_table(tmp_path):
    report = check([people(tmp_path / "people.csv")])
    assert list(report) == []
    assert (report.errors, report.warnings) == (0, 0)
    (told,) = report.to_json()["groups"]
    assert (told["lines"], told["broken"], told["distinct"]) == (400, 0, 400)
    assert [(one["name"], one["kind"]) for one in told["columns"]] == [
        ("age", "number"),
        ("member", "yes"),
        ("country", "category"),
        ("label", "category"),
    ]
    assert told["told"][3] == "  country: category, 197 values (country 0 3, country 1 3, country 2 3, …)"
    assert report.notes == [
        "columns: age number, member yes, country category, label category; the last is the target. "
        "data.column_types.NAME=KIND changes a kind"
    ]


def test_every_broken_row_is_named(tmp_path):
    lines = [f"{i},{'pq'[i % 2]}" for i in range(40)]
    lines[3:6] = ["3", "four,p", "5,"]
    lines[8] = lines[7]
    lines[9] = "7,p"
    lines[10] = "10,\u200bp"
    file = write(tmp_path / "t.csv", "x,y", *lines)
    found = {(problem.line, problem.kind, problem.code): problem.reason for problem in check([file])}
    assert found == {
        (5, "error", "columns"): "1 field, but the first line names 2",
        (7, "error", "empty"): "the target (y) is empty",
        (6, "error", "value"): "column 'x': 'four' is no number",
        (10, "warning", "duplicate"): "duplicate: the same row as in line 9",
        (11, "warning", "duplicate"): "the same row as in line 9, but there the target is 'q' and here 'p'",
        (12, "warning", "invisible"): "U+200B (zero width space) at character 4, which is invisible",
    }
    told = check([file]).to_json()
    assert (told["errors"], told["warnings"], told["groups"][0]["lines"]) == (3, 3, 37)


def test_later_tables_are_searched_for_the_rows_of_the_first(tmp_path):
    train = write(tmp_path / "train.csv", "a,b,y", "1,2,p", "3,4,q")
    test = write(tmp_path / "test.csv", "y,b,a", "p,2,1", "q,x,1")
    problems = [str(problem) for problem in check([train, test])]
    assert problems == [
        f"{test}:3: column 'b': 'x' is no number",
        f"{test}:2: overlap: line 2 of the first table",
    ]


def test_what_cannot_be_learned_from_is_said(tmp_path):
    file = write(tmp_path / "t.csv", "x,y", *(f"{i},name {i}" for i in range(50)))
    assert "too many for classes" in str(*check([file]))
    assert not list(check([file], reading=TableOptions(target="x")))
    assert not list(check([file], reading=ReadOptions(columns="y,x")))
    empty = write(tmp_path / "e.csv", "x,y")
    assert str(*check([empty])) == f"{empty}:1: the table has no rows"
    long = write(tmp_path / "l.csv", "x,y", "a long field here,p", "short,q")
    assert [problem.code for problem in check([long], max_length=10)] == ["long"]
