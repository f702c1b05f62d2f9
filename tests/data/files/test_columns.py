"""Columns by name and number, CSV as RFC 4180 has it, headers."""

from __future__ import annotations

import csv
import gzip
import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.data.batches.language import StreamOptions
from seqloom.data.batches.tags import TagOptions
from seqloom.data.files.columns import MINIMA, ReadOptions, read_options_of_run
from seqloom.data.files.csv import csv_records, split_csv
from seqloom.data.files.lines import LineError
from seqloom.data.formats.pairs import Problem, group_files, read, read_entries, read_sources
from seqloom.data.formats.table import TableOptions
from seqloom.data.prepare.labels import LabelOptions
from seqloom.data.prepare.pairs import DataOptions
from seqloom.data.prepare.texts import PlainTextOptions
from seqloom.errors import SeqloomError
from seqloom.options import hints_of


@pytest.fixture
def put(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name: str, content: str) -> str:
        raw = content.encode()
        (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return name

    return write


def pairs(file: str, columns: str | None = None, **more) -> list[tuple[str, tuple[str, ...]]]:
    return [
        (e.source, e.targets) for one in group_files([file], ReadOptions(columns=columns, **more)) for e in read(one)
    ]


TABLE = "id,text,label,other\n1,a b,x,p\n2,c,y z,\n"
WANTED = [("a b", ("x",)), ("c", ("y z",))]


@pytest.mark.parametrize("end", ["", ".gz"])
def test_columns_by_name_and_number(put, end):
    comma, tab = put(f"a.csv{end}", TABLE), put(f"a.tsv{end}", TABLE.replace(",", "\t"))
    for file in (comma, tab):
        assert pairs(file, "text,label") == pairs(file, " text , label ") == WANTED
        assert pairs(file, "label,text") == [("x", ("a b",)), ("y z", ("c",))]
        assert pairs(file, "text,label,other") == [("a b", ("x", "p")), ("c", ("y z",))]
        assert pairs(file, "2,3") == pairs(file, "2,3", header=True) == WANTED
        assert pairs(file, "2,3", header=False) == [("text", ("label",)), *WANTED], "a line like others, if told so"
    keys = put(f"a.jsonl{end}", '{"text": "a b", "label": "x"}\n{"label": ["y z"], "text": "c", "more": 3}\n')
    assert pairs(keys, "text,label") == WANTED


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("a.csv", TABLE, "txt,label", r"a\.csv:1: unknown column 'txt'; did you mean 'text'\? Choose from: id, label"),
        ("a.tsv", "a\tx\n", "source,target", r"a\.tsv:1: unknown column 'source'"),
        ("a.csv", TABLE, "text,text", "names a column twice"),
        ("a.csv", TABLE, "text,", "expected names or numbers with commas between"),
        ("a.csv", TABLE, "0,1", "columns are counted from 1"),
        ("a.csv", TABLE, "text", "name at least two"),
        ("a.csv", "a,b\nc,d\n", "1,5", r"a\.csv:1: column 5 is missing: the line has 2 columns"),
        ("a.tsv", "text\tlabel\nonly\n", "text,label", r"a\.tsv:2: no TAB: expected source TAB target"),
        ("a.jsonl", '{"text": "a"}\n', "text,label", r'a\.jsonl:1: key "label" is missing'),
        ("a.jsonl", '{"label": "a"}\n', "text,label", r'a\.jsonl:1: key "text" is missing'),
        ("a.jsonl", "3\n", "text,label", r'a\.jsonl:1: expected an object like {"text": …, "label": …}, not a number'),
        ("a.jsonl", '{"text": "a"}\n', "1,2", "JSON lines have names, not numbers"),
        ("a.csv", "", "text,label", r"a\.csv:1: unknown column 'text'"),
    ],
)
def test_wrong_columns(put, name, content, columns, message):
    with pytest.raises(SeqloomError, match=message):
        pairs(put(name, content), columns)


def test_parallel_files_have_no_columns(put):
    with pytest.raises(SeqloomError, match=r"a\.en \+ a\.de: --columns '1,2' goes with TSV, CSV and JSON lines"):
        group_files([put("a.en", "a\n"), put("a.de", "x\n")], ReadOptions(columns="1,2"))


def test_a_header_is_guessed_only_from_well_known_names(put):
    for first, known in (("source,target", True), ("Text, Label", True), ("input,output", True), ("cat,katze", False)):
        [one] = group_files([put("a.csv", f"{first}\na,x\n")])
        assert one.header == known
        assert len(list(read(one))) == 2 - known
        told = f"a.csv: the first line ({first}) is taken as a header; --no-header reads it as data"
        assert one.notes == ((told,) if known else ())
    assert len(pairs(put("a.tsv", "source\ttarget\na\tx\n"))) == 1
    assert len(pairs("a.tsv", detect=False)) == 2, "as runs of earlier versions read it"


def test_a_byte_order_mark_is_noted(put):
    [one] = group_files([put("a.csv", "\ufefftext,label\na,x\n")])
    assert one.header
    assert one.notes[0] == "a.csv: the byte order mark at its start was dropped"
    assert len(list(read(one))) == 1


def test_quotes(put):
    file = put("a.csv", 'a,"x, y"\n"b ""c""","1\n2\r\n3"\n\n"d",e "f" g,h\n')
    found = [
        (e.line, e.reason if isinstance(e, Problem) else (e.source, e.targets))
        for e in read_entries(group_files([file])[0])
    ]
    assert found == [
        (1, ("a", ("x, y",))),
        (2, ('b "c"', ("1\n2\n3",))),
        (5, "empty line; expected source comma target"),
        (6, ("d", ('e "f" g', "h"))),
    ]


def test_broken_quotes_cost_one_line_each(put):
    content = 'a,x\nb,"never closed\nc,y\n"d" e,z\nf,g"\nh,"fine\nhere"\ni;j\nk\n"l,m\n'
    found = [(e.line, isinstance(e, Problem) and e.code) for e in read_entries(group_files([put("a.csv", content)])[0])]
    assert found == [
        (1, False), (2, "quote"), (3, False), (4, "quote"), (5, "quote"), (6, False), (8, "delimiter"), (9, "columns"),
        (10, "quote"),
    ]  # fmt: skip


fields = st.lists(st.text(st.sampled_from('ab ,"\n;é'), max_size=6), min_size=2, max_size=4)


@given(st.lists(fields, min_size=1, max_size=5))
def test_whatever_the_csv_module_writes_is_read_back(rows):
    file = io.StringIO()
    csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    lines = enumerate(io.BytesIO(file.getvalue().encode()), 1)
    assert [record for _, record in csv_records(lines)] == rows


def test_open_quote():
    assert split_csv('a,"b') is None
    assert split_csv('a,""') == ["a", ""]
    assert split_csv("a,") == ["a", ""]
    with pytest.raises(LineError, match="unbalanced quote at character 4"):
        split_csv('a,b"')


def test_sources_for_prediction(put, monkeypatch):
    file = put("a.csv", TABLE)
    assert list(read_sources(file, ReadOptions(columns="label,text"))) == ["x", "y z"]
    assert list(read_sources(file, ReadOptions(columns="4", header=False))) == ["other", "p", ""]
    assert list(read_sources(put("b.csv", 'text,label\n"a, b",x\n\nc\n'))) == ["a, b", "", "c"]
    assert list(read_sources(put("a.tsv", TABLE.replace(",", "\t")), ReadOptions(columns="text"))) == ["a b", "c"]
    with pytest.raises(SeqloomError, match="not plain text"):
        list(read_sources(put("a.txt", "a\nb\n"), ReadOptions(columns="text")))
    json_lines = b'{"source": "a"}\n\n{"source": "b"}\n'
    for raw, wanted in ((json_lines, ["a", "", "b"]), (b"a {\n{b\n", ["a {", "{b"]), (b"", [])):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
        assert list(read_sources("-")) == wanted
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"q": "a"}\n')))
    assert list(read_sources("-", ReadOptions(columns="q"))) == ["a"]


def test_limits_are_checked():
    with pytest.raises(SeqloomError, match="limit must be a whole number of 1 or more, not 0"):
        ReadOptions(limit=0)


@pytest.mark.parametrize(
    "options", [DataOptions, LabelOptions, TableOptions, TagOptions, PlainTextOptions, StreamOptions]
)
def test_whole_numbers_are_checked_alike_in_every_kind_of_data(options):
    names = MINIMA.keys() & hints_of(options).keys()
    assert names >= {"limit", "max_vocab", "min_count"}
    for name in names:
        for wrong in (MINIMA[name] - 1, True, "9", 9.0):
            with pytest.raises(SeqloomError, match=f"^{name} must be a whole number of {MINIMA[name]} or more, not "):
                options(**{name: wrong})
    options(**{name: MINIMA[name] for name in names - {"stride", "sample"}})  # which do not go with all


def test_more_than_two_columns_of_a_csv_are_spoken_of(put):
    """A header that nobody named would be trained on in silence."""
    (one,) = group_files([put("own.csv", TABLE.partition("\n")[2])])
    assert "4 columns, and the first line is data" in one.notes[0]
    assert "--columns" in one.notes[0]
    (one,) = group_files([put("own.csv", TABLE)])
    assert "the first line (id,text,label,other) is taken as a header" in one.notes[0]
    assert "4 columns, and the first column is the source, the others are targets" in one.notes[1]
    assert group_files([put("two.csv", "a,b\n")])[0].notes == ()
    assert group_files(["own.csv"], ReadOptions(columns="text,label"))[0].notes == ()


def test_further_files_are_read_as_those_of_the_training():
    data = {"columns": "1,2", "header": False, "delimiter": ";", "encoding": "latin-1", "detect": True}
    assert read_options_of_run(data, None, False) == ReadOptions(
        columns="1,2", header=False, delimiter=";", encoding="latin-1"
    )
    others = read_options_of_run(data, "text,label", True)
    assert others == ReadOptions(columns="text,label", skip_bad=True, delimiter=";", encoding="latin-1")
    for old in ({}, {"detect": False}):
        assert read_options_of_run(old, None, False) == ReadOptions(detect=False), "as the earlier version read them"
