"""The report on data names every problem by file and line."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from seqloom.data.checks.pairs import check, counter_statistics


@pytest.fixture
def put(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name: str, content: str | bytes) -> str:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    return write


def test_every_broken_line_is_named(put):
    file = put("a.tsv", b"a\tx\n\xff\tx\nb\nc\t\n\ty\n\nd\tx\0\n" + b"e" * 30 + b"\tx\nf\ty\n")
    report = check([file], max_length=20)
    assert [str(problem) for problem in report] == [
        "a.tsv:2: not UTF-8: byte 0xff at byte 1 of the line",
        "a.tsv:3: no TAB: expected source TAB target",
        "a.tsv:4: the target is empty",
        "a.tsv:5: the source is empty",
        "a.tsv:6: empty line; expected source TAB target",
        "a.tsv:7: NUL character at character 4 of the line",
        "a.tsv:8: the source has 30 characters; more than 20",
    ]
    assert (report.errors, report.warnings) == (7, 0)
    assert (report.statistics[0].lines, report.statistics[0].broken) == (2, 7)


def test_default_limit_of_length(put):
    file = put("a.tsv", f"a\t{'x' * 5000}\nb\t{'x' * 5001}\n")
    assert [str(problem) for problem in check([file])] == ["a.tsv:2: the target has 5,001 characters; more than 5,000"]


def test_json_and_parallel(put):
    jsonl = put("a.jsonl", '{"source": "a", "target": "x"}\n{"source"}\n{"target": "x"}\n')
    left, right = put("a.en", "p\nq\n\n"), put("a.de", "x\n\n")
    assert [str(problem) for problem in check([jsonl, left, right])] == [
        "a.jsonl:2: broken JSON: Expecting ':' delimiter at column 10",
        'a.jsonl:3: key "source" is missing',
        "a.de:2: the target is empty",
        "a.de:3: the line is missing, but a.en goes on; parallel files need equally many lines",
    ]


def test_duplicates_and_overlap_are_warnings(put):
    train = put("train.tsv", "a\tx\nb\ty\na\tz\na\tx\na\tx\n")
    test = put("test.tsv", "c\tx\na\tq\tr\nb\ty\n")
    report = check([train, test])
    assert [(problem.kind, str(problem)) for problem in report] == [
        ("warning", "train.tsv:4: duplicate: the same pair as in line 1"),
        ("warning", "train.tsv:5: duplicate: the same pair as in line 1"),
        ("warning", "test.tsv:2: overlap: the source stands already in train.tsv:1"),
        ("warning", "test.tsv:3: overlap: the source stands already in train.tsv:2"),
    ]
    assert (report.errors, report.warnings) == (0, 4)


def test_sides_are_not_confused(put):
    """ "ab"+"c" and "a"+"bc" are different pairs; a source that equals an earlier target is no overlap."""
    assert list(check([put("a.tsv", "ab\tc\na\tbc\n"), put("b.tsv", "c\td\n")])) == []


def test_statistics(put):
    file = put("a.tsv", "ab cd\tx\nab cd\ty\tz\nb\tb\n")
    report = check([file])
    value = json.loads(json.dumps(report.to_json()))
    [numbers] = value["groups"]
    assert (numbers["lines"], numbers["pairs"], numbers["same"]) == (3, 4, 1)
    assert (numbers["distinct_sources"], numbers["several_targets"]) == (2, 1)
    assert numbers["source"]["characters"] == {"mean": 3.67, "median": 5, "p95": 5, "longest": 5}
    assert numbers["source"]["words"] == {"mean": 1.67, "median": 2, "p95": 2, "longest": 2}
    assert numbers["source"]["distinct_characters"] == 5
    assert numbers["target"]["distinct_characters"] == 4
    assert value["problems"] == []


def test_to_json_lists_problems_and_reads_by_itself(put):
    value = check([put("a.tsv", "a\tx\nb\n")]).to_json()
    assert value["errors"] == 1
    expected = "no TAB: expected source TAB target"
    assert value["problems"] == [
        {
            "file": "a.tsv",
            "line": 2,
            "reason": expected,
            "kind": "error",
            "code": "columns",
            "text": f"a.tsv:2: {expected}",
        }
    ]


def test_a_file_without_one_good_line(put):
    report = check([put("a.tsv", "a\nb\n"), put("b.tsv", "")])
    assert (report.errors, report.warnings) == (3, 0)
    assert report.to_json()["groups"][1]["source"]["characters"]["longest"] == 0


def test_summary():
    lengths = Counter(range(1, 101))
    assert counter_statistics(lengths) == {"mean": 50.5, "median": 50, "p95": 95, "longest": 100}
