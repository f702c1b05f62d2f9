"""What is left out, what is said, and what a run keeps about its data."""

from __future__ import annotations

import json

import pytest

from seqloom.data.files.columns import ReadOptions
from seqloom.data.formats.bad_lines import read_examples
from seqloom.data.prepare.pairs import DataOptions, prepare_pairs
from seqloom.data.prepare.request import PrepareRequest
from seqloom.errors import SeqloomError


@pytest.fixture
def put(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name: str, content: str | bytes) -> str:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    return write


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


BAD = b"a\tx\nb\n\xff\ty\nc\tz\n\td\ne\tf\ng\th\n"


def test_broken_lines_are_left_out_and_counted(put, cache):
    file = put("a.tsv", BAD)
    with pytest.raises(SeqloomError, match=r"^a\.tsv:2: no TAB"):
        prepare_pairs(PrepareRequest([file], 0.0, DataOptions(), seed=1, cache=cache))
    for name in (file, put("renamed.tsv", BAD)):  # the second from the cache
        data = prepare_pairs(PrepareRequest([name], 0.0, DataOptions(skip_bad=True), seed=1, cache=cache))
        assert len(data.train) == 4
        first = [
            f"{name}:2: no TAB: expected source TAB target",
            f"{name}:3: not UTF-8: byte 0xff at byte 1 of the line",
            f"{name}:5: the source is empty",
        ]
        assert data.facts["skipped"] == {"count": 3, "reasons": {"columns": 1, "utf8": 1, "empty": 1}, "first": first}
        assert data.notes == [f"left out 3 broken lines (1 columns, 1 empty, 1 utf8): {'; '.join(first)}"]
        assert data.facts["notes"] == data.notes


def test_too_many_broken_lines(put, cache):
    with pytest.raises(SeqloomError, match=r"a\.tsv: 3 of 5 lines are broken, more than half"):
        prepare_pairs(
            PrepareRequest(
                [put("a.tsv", "a\tx\nb\nc\nd\ne\ty\n")], 0.0, DataOptions(skip_bad=True), seed=1, cache=cache
            )
        )
    assert list(cache.iterdir()) == []


def test_unequal_parallel_files_are_never_let_through(put, cache):
    files = [put("a.en", "a\nb\nc\n"), put("a.de", "x\ny\n")]
    with pytest.raises(SeqloomError, match=r"a\.de:3: the line is missing"):
        prepare_pairs(PrepareRequest(files, 0.0, DataOptions(skip_bad=True), seed=1, cache=cache))


def test_a_parallel_line_broken_on_both_sides_counts_once(put, cache):
    files = [put("a.en", "a\n\nc\n"), put("a.de", "x\n\nz\n")]
    data = prepare_pairs(PrepareRequest(files, 0.0, DataOptions(skip_bad=True), seed=1, cache=cache))
    assert (len(data.train), data.facts["skipped"]["count"]) == (2, 1)


def test_a_line_too_long_to_train_on(put, cache):
    file = put("a.tsv", f"a\t{'x' * 5001}\nb\ty\n")
    with pytest.raises(SeqloomError, match=r"a\.tsv:1: the target has 5,001 characters; .*--max-length cuts"):
        prepare_pairs(PrepareRequest([file], 0.0, DataOptions(), seed=1, cache=cache))
    assert len(prepare_pairs(PrepareRequest([file], 0.0, DataOptions(max_length=20), seed=1, cache=cache)).train) == 2
    assert len(prepare_pairs(PrepareRequest([file], 0.0, DataOptions(skip_bad=True), seed=1, cache=cache)).train) == 1


def test_limit(put, cache):
    files = [put("a.tsv", "a\tx\nb\ty\tz\n"), put("b.tsv", "c\tx\nd\ty\nbroken\n")]
    data = prepare_pairs(
        PrepareRequest(files, [put("v.tsv", "q\tx\nr\ty\n")], DataOptions(limit=3), seed=1, cache=cache)
    )
    assert (len(data.train), len(data.valid or ())) == (4, 2)
    assert data.notes[0] == "only the first 3 examples of the training files are read"
    assert len(prepare_pairs(PrepareRequest(files[:1], 0.0, DataOptions(limit=9), seed=1, cache=cache)).train) == 3


def test_validation_files(put, cache):
    train = put("a.tsv", "a\tx\nb  c\ty\n")
    data = prepare_pairs(
        PrepareRequest([train], [put("v.tsv", "b c\tx\nd\ty\na\tz\n")], DataOptions(), seed=1, cache=cache)
    )
    assert data.notes[0].startswith("2 of 3 validation sources stand in the training data too")
    with pytest.raises(SeqloomError, match=r"e\.tsv: holds no pairs; a validation file needs at least one"):
        prepare_pairs(PrepareRequest([train], [put("e.tsv", "")], DataOptions(), seed=1, cache=cache))


def test_columns_reach_the_corpus(put, cache):
    csv = put("a.csv", 'id,text,label\n1,"a, b",x\n2,c,y\n')
    options = DataOptions(columns="text,label")
    data = prepare_pairs(
        PrepareRequest([csv], [put("v.jsonl", '{"text": "c", "label": "x"}\n')], options, seed=1, cache=cache)
    )
    assert data.source.decode(data.train.batch([0]).source.tokens[0].tolist()) == "a, b"
    assert [(e.source, e.targets, e.file, e.line) for e in data.validation_examples()] == [("c", ("x",), "v.jsonl", 1)]


def test_facts(put, cache):
    file = put("a.tsv", "a b\tx\na b\ty z\tx\nc\tx\n")
    options = DataOptions(source_tokens="words", target_tokens="words")
    for _ in range(2):  # built, then from the cache
        facts = json.loads(
            json.dumps(
                prepare_pairs(PrepareRequest([file], [put("v.tsv", "a q\tx\n")], options, seed=1, cache=cache)).facts
            )
        )
        assert facts["train"] == {
            "pairs": 4,
            "distinct_sources": 2,
            "source": {
                "tokens": 7,
                "lengths": {"mean": 1.75, "median": 2, "p95": 2, "longest": 2},
                "unknown_tokens": 0,
                "unknown": 0.0,
            },
            "target": {
                "tokens": 5,
                "lengths": {"mean": 1.25, "median": 1, "p95": 2, "longest": 2},
                "unknown_tokens": 0,
                "unknown": 0.0,
            },
        }
        assert facts["valid"]["source"] | {"lengths": None} == {
            "tokens": 2,
            "lengths": None,
            "unknown_tokens": 1,
            "unknown": 0.5,
        }
        assert facts["vocabulary"]["source"] == {"size": 3, "commonest": [["a", 3], ["b", 3], ["c", 1]]}
        assert facts["vocabulary"]["target"]["commonest"] == [["x", 3], ["y", 1], ["z", 1]]
        assert facts["skipped"] == {"count": 0, "reasons": {}, "first": []}
    assert prepare_pairs(PrepareRequest([file], 0.0, options, seed=1, cache=cache)).facts["valid"] is None


def test_examples_for_evaluation(put):
    file = put("a.tsv", BAD)
    found, notes = read_examples([file], ReadOptions(skip_bad=True))
    assert [(example.source, example.line) for example in found] == [("a", 1), ("c", 4), ("e", 6), ("g", 7)]
    assert notes[0].startswith("left out 3 broken lines")
    with pytest.raises(SeqloomError, match=r"a\.tsv:2"):
        read_examples([file], ReadOptions())
