"""Tables: columns are found, broken rows are named, and rows become numbers as the training rows taught."""

from __future__ import annotations

import gzip
import json
import random
import re

import numpy as np
import pytest

from seqloom.data.batches.table import Schema
from seqloom.data.formats.column_types import (
    Column,
    detect_target_type,
    detect_type,
    fit_column,
    parse_number,
    parse_yes_no,
)
from seqloom.data.formats.table import Row, TableOptions, detect_layout, row_entries, valid_rows
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.prepare.table import prepare_table, unseen_category_notes
from seqloom.data.splits.split import Fold
from seqloom.errors import SeqloomError


def write(path, *lines, end="\n"):
    path.write_text(end.join(lines) + end, encoding="utf-8")
    return str(path)


def people(path, count=400, seed=1):
    draw = random.Random(seed)
    rows = [
        f"{draw.randint(18, 90)},{draw.choice(['yes', 'no'])},country {i % 197},{draw.choice(['buys', 'leaves'])}"
        for i in range(count)
    ]
    return write(path, "age,member,country,label", *rows)


def ready(file, valid=0.0, **options):
    return prepare_table(PrepareRequest([file], valid, TableOptions(**options), seed=3))


def test_one_number_one_yes_and_197_countries_are_199_values(tmp_path):
    found = ready(people(tmp_path / "people.csv"))
    assert [column.kind for column in found.schema.columns] == ["number", "yes", "category"]
    batch = found.train.batch(np.arange(5))
    assert batch.source.values.shape == (5, 199)
    assert len(found.schema.labels) == 199
    assert found.schema.labels[:3] == ["age", "member", "country=country 0"]
    assert (batch.source.values[:, 2:].sum(1) == 1).all()
    assert batch.source.values[:, 2:].argmax(1).tolist() == [
        found.schema.columns[2].values.index(f"country {i}") for i in range(5)
    ]


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        (["yes", "No", "", "TRUE", "n"], "yes"),
        (["1", "0", "0"], "yes"),
        (["是", "否"], "yes"),
        (["1", "2.5", "-3e4", "NA", ""], "number"),
        ([*map(str, range(99)), "many"], "number"),
        ([*map(str, range(9)), "many"], "text"),
        (["a", "b", "a", "b"], "category"),
        (["NA", "US", "NA", "US"], "category"),
        ([f"name {i}" for i in range(50)], "text"),
        ([f"value {i % 1001}" for i in range(3000)], "text"),
        ([f"the value number {i % 50}" for i in range(100)], "category"),
        ([f"the value number {i % 51}" for i in range(200)], "text"),
        (["", " "], None),
        (["NA", "?", "NA", "?"], "category"),
    ],
)
def test_kinds_are_guessed_by_clear_rules(fields, kind):
    assert detect_type(fields) == kind


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        (["0", "1", "2"] * 9, "category"),
        (["0", "1"] * 9, "yes"),
        ([*map(str, range(21))] * 2, "number"),
        (["0.5", "1", "2"], "number"),
        (["a", "b"] * 9, "category"),
        ([f"name {i}" for i in range(50)], "text"),
    ],
)
def test_the_target_is_a_number_or_classes(fields, kind):
    assert detect_target_type(fields) == kind


def test_words_and_numbers():
    assert [parse_yes_no(text) for text in ("Yes", "Y", "是", "true", "1", "no", "N", "否", "False", "0", "maybe")] == (
        [True] * 5 + [False] * 5 + [None]
    )
    assert [parse_number(text) for text in (" 1.5 ", "1e3", "-2", "1_000", "x", "nan", "inf", "1e31")] == (
        [1.5, 1000.0, -2.0, None, None, None, None, None]
    )


def test_numbers_are_scaled_by_the_training_rows_alone(tmp_path):
    train = write(tmp_path / "train.csv", "x,y", "1,a", "2,b", "3,a", ",b")
    valid = write(tmp_path / "valid.csv", "x,y", "100,a", "2,b")
    found = prepare_table(PrepareRequest([train], [valid], TableOptions(), seed=1))
    values = found.train.dense(np.arange(4))[:, 0]
    assert values[:3].mean() == pytest.approx(0)
    assert values[:3].std() == pytest.approx(1)
    assert values[3] == 0  # missing: the mean
    assert found.valid.dense(np.arange(2))[:, 0].tolist() == pytest.approx([98 / np.std([1, 2, 3]), 0])


def test_equal_numbers_do_not_become_noise():
    column = fit_column("x", "number", ["0.1"] * 10)
    assert column.deviation == 1
    assert abs(column.encode(["0.1"])[0]) < 1e-9


def test_a_far_number_stays_finite():
    column = fit_column("x", "number", ["1", "1.0000001"])
    assert np.isfinite(column.dense(column.encode(["1e30", "-1e30"]))).all()


def test_missing_values_stand_at_the_mean_or_have_a_flag(tmp_path):
    lines = ["x,member,kind,y", "1,yes,a,p", "3,,b,q", ",no,,p", "5,yes,a,q"]
    file = write(tmp_path / "t.csv", *lines)
    kinds = {"kind": "category"}
    plain = ready(file, column_types=kinds).train.dense(np.arange(4))
    assert plain.shape == (4, 4)
    assert plain[:, 1].tolist() == pytest.approx([1, 2 / 3, 0, 1])
    assert plain[2, 2:].tolist() == [0, 0]
    flagged = ready(file, column_types=kinds, flag_missing=True)
    assert flagged.schema.labels == ["x", "x is missing", "member", "member is missing", "kind=a", "kind=b"]
    assert flagged.train.dense(np.arange(4))[:, [1, 3]].tolist() == [[0, 0], [0, 1], [1, 0], [0, 0]]


def test_an_unseen_category_is_none_and_is_counted(tmp_path):
    train = write(tmp_path / "train.csv", "c,x,y", "a,1,p", "b,2,q", "a,3,p", "b,4,q")
    valid = write(tmp_path / "valid.csv", "c,x,y", "new,1,p", "a,2,q")
    found = prepare_table(PrepareRequest([train], [valid], TableOptions(), seed=1))
    assert found.valid.dense(np.arange(2))[:, :2].tolist() == [[0, 0], [1, 0]]
    assert list(unseen_category_notes(found.valid)) == [
        "1 of 2 rows have a value of c that no training row has: it counts as none"
    ]
    assert any("value of c" in note for note in found.notes)


def test_an_unseen_class_has_no_likelihood(tmp_path):
    train = write(tmp_path / "train.csv", "x,y", "1,p", "2,q", "3,p", "4,q")
    valid = write(tmp_path / "valid.csv", "x,y", "1,other", "2,q")
    found = prepare_table(PrepareRequest([train], [valid], TableOptions(), seed=1))
    batch = found.valid.batch(np.arange(2))
    assert batch.target.tolist() == [-1, 1]
    assert batch.count == found.valid.count(np.arange(2)) == 1
    assert any("a class that no training row has" in note for note in found.notes)


def test_kinds_can_be_said(tmp_path):
    file = write(tmp_path / "t.csv", "age,note,y", *(f"{i % 5},text {i},{i % 2}" for i in range(40)))
    assert [c.kind for c in ready(file).schema.columns] == ["number", "text"]
    said = ready(file, column_types={"age": "category", "y": "number"})
    assert [c.kind for c in said.schema.columns] == ["category", "text"]
    assert said.schema.target.kind == "number"
    assert ready(file, column_types={"age": "text"}).schema.texts == [0, 1]
    assert TableOptions(column_types={"age": True}).column_types == {"age": "yes"}  # as YAML reads a bare yes
    with pytest.raises(SeqloomError, match=r"unknown column of data.column_types 'agee'; did you mean 'age'"):
        ready(file, column_types={"agee": "category"})
    with pytest.raises(SeqloomError, match=r"unknown kind of the column 'age' 'categry'; did you mean 'category'"):
        TableOptions(column_types={"age": "categry"})


@pytest.mark.parametrize(("target", "columns"), [(None, "a b"), ("a", "b c"), (2, "a c"), ("3", "a b")])
def test_the_target_by_name_or_number(tmp_path, target, columns):
    file = write(tmp_path / "t.csv", "a,b,c", "1,2,3", "2,3,4")
    assert detect_layout([file], TableOptions(target=target)).columns == tuple(columns.split())


def test_columns_are_chosen_and_left_out(tmp_path):
    file = write(tmp_path / "t.tsv", "id\ta\tb\tc", "7\t1\t2\tx", "8\t2\t3\ty")
    found = detect_layout([file], TableOptions(exclude="id, b"))
    assert (found.columns, found.target) == (("a",), "c")
    assert valid_rows([file], found, None)[0] == Row(("1",), "x", file, 2)
    assert detect_layout([file], TableOptions(columns="a,c,b")).all == ("a", "c", "b")
    with pytest.raises(SeqloomError, match=r"unknown column to leave out 'idd'; did you mean 'id'"):
        detect_layout([file], TableOptions(exclude="idd"))
    with pytest.raises(SeqloomError, match=r"'c' is the target"):
        detect_layout([file], TableOptions(exclude="c"))
    with pytest.raises(SeqloomError, match=r"no column is left"):
        detect_layout([file], TableOptions(exclude="id,a,b"))
    with pytest.raises(SeqloomError, match=r"unknown target column 'd'"):
        detect_layout([file], TableOptions(target="d"))


def test_columns_by_number_need_no_names(tmp_path):
    file = write(tmp_path / "t.csv", "7,1,x", "8,2,y")
    found = detect_layout([file], TableOptions(columns="2,3"))
    assert [row.fields for row in valid_rows([file], found, None)] == [("1",), ("2",)]
    with pytest.raises(SeqloomError, match=r"t.csv:1: column 9 is missing: the line has 3 fields"):
        valid_rows([file], detect_layout([file], TableOptions(columns="2,9")), None)
    assert detect_layout([file], TableOptions(header=False)).all == ("1", "2", "3")
    assert [
        row.fields for row in valid_rows([file], detect_layout([file], TableOptions(header=False, target=1)), None)
    ] == [
        ("1", "x"),
        ("2", "y"),
    ]
    with pytest.raises(SeqloomError, match="without a header columns have numbers, not names"):
        TableOptions(header=False, columns="a,b")
    taken = ready(write(tmp_path / "taken.csv", "7,1,x", "8,2,y", "9,3,z"))
    assert any("taken for the names of the columns, among them 7; if the first" in note for note in taken.notes)
    named = write(tmp_path / "named.csv", "a,b", *(f"{i},{i / 3}" for i in range(50)))
    with pytest.raises(
        SeqloomError, match=r"named.csv:1: column '1': 'a' is no number; is the first line a line of names"
    ):
        ready(named, columns="1,2")


def test_files_may_be_packed_marked_and_quoted(tmp_path):
    raw = '\ufeffx,"the, note",y\r\n1,"a ""b""\nc",p\r\n2,d,q\r\n'.encode()
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(raw))
    file = str(tmp_path / "t.csv.gz")
    found = detect_layout([file], TableOptions())
    assert found.all == ("x", "the, note", "y")
    assert valid_rows([file], found, None) == [Row(("1", 'a "b"\nc'), "p", file, 2), Row(("2", "d"), "q", file, 4)]


def test_json_lines_have_keys(tmp_path):
    rows = [{"x": 1.5, "member": True, "y": "p"}, {"x": None, "note": "hi", "y": "q"}, {"member": False, "y": "p"}]
    file = write(tmp_path / "t.jsonl", *map(json.dumps, rows))
    found = detect_layout([file], TableOptions(target="y"))
    assert found.columns == ("x", "member", "note")
    assert [row.fields for row in valid_rows([file], found, None)] == [
        ("1.5", "true", ""),
        ("", "", "hi"),
        ("", "false", ""),
    ]
    with pytest.raises(SeqloomError, match=r"JSON lines have names"):
        detect_layout([file], TableOptions(columns="1,2"))


BROKEN = [
    ("a,b,y\n1,2,p\n1,2\n", "3: 2 fields, but the first line names 3"),
    ("a,b,y\n1,2,p\n1,2,3,q\n", "3: 4 fields, but the first line names 3"),
    ("a,b,y\n1,2,p\n\n1,3,q\n", "3: empty line; expected a row of the table"),
    ("a,b,y\n1,2,p\n1,3, \n", "3: the target (y) is empty"),
    ('a,b,y\n1,"2,p\n', "2: the quote is never closed"),
    ("a,b,y\n1,2,\udcff\n", "2: not UTF-8"),
]


@pytest.mark.parametrize(("text", "reason"), BROKEN)
def test_broken_rows_are_named(tmp_path, text, reason):
    file = tmp_path / "t.csv"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SeqloomError, match=re.escape(f"t.csv:{reason}")):
        ready(str(file))


def test_wrong_values_are_named_or_left_out(tmp_path):
    lines = [f"{i},{'pq'[i % 2]}" for i in range(40)]
    lines[7] = "seven,p"
    file = write(tmp_path / "t.csv", "x,y", *lines)
    with pytest.raises(SeqloomError, match=r"t.csv:9: column 'x': 'seven' is no number; data.column_types"):
        ready(file)
    found = ready(file, skip_bad=True)
    assert len(found.train) == 39
    assert found.schema.columns[0].mean == pytest.approx(np.mean([i for i in range(40) if i != 7]))
    assert found.facts["skipped"]["count"] == 1
    assert any(note.startswith("left out 1 broken line (1 value)") for note in found.notes)
    said = write(tmp_path / "said.csv", "x,y", "1,p", "maybe,q", "0,p", "1,q")
    with pytest.raises(SeqloomError, match=r"said.csv:3: column 'x': 'maybe' is neither yes nor no"):
        ready(said, column_types={"x": "yes"})
    with pytest.raises(SeqloomError, match=r"x': '1e31' is too large"):
        ready(write(tmp_path / "far.csv", "x,y", "1,p", "1e31,q"), column_types={"x": "number"})


def test_mostly_broken_tables_are_refused(tmp_path):
    file = write(tmp_path / "t.csv", "x,y", "1,p", "1", "2", "3")
    with pytest.raises(SeqloomError, match=r"3 of 4 rows are broken, more than half"):
        ready(file, skip_bad=True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the file is empty"),
        ("a b\n1 2\n", "t.csv:1: no comma: expected the names of at least two columns"),
        ("a,a\n1,2\n", "t.csv:1: two columns are called 'a'"),
        ("1,1,2\n3,4,5\n", "two columns are called '1'; if the first line is data, say data.header=false"),
        ("a,b\n", "holds no rows"),
        ("a,b\n1,p\n2,p\n", "the target 'b' is 'p' in every training row"),
        ("a,b\n,p\n,q\n", "every column but the target is empty"),
        ("a,b\n" + "".join(f"{i},name {i}\n" for i in range(30)), "the target 'b' has 30 different values in 30 rows"),
    ],
)
def test_tables_nobody_can_learn_from(tmp_path, text, reason):
    file = tmp_path / "t.csv"
    file.write_text(text)
    with pytest.raises(SeqloomError, match=re.escape(reason)):
        ready(str(file))


def test_other_files_are_no_tables(tmp_path):
    with pytest.raises(SeqloomError, match=r"a table is a .csv, .tsv or .jsonl file"):
        ready(write(tmp_path / "t.txt", "some words"))
    with pytest.raises(SeqloomError, match=r"no such file"):
        ready(str(tmp_path / "none.csv"))


def test_later_files_may_order_their_columns_otherwise(tmp_path):
    train = write(tmp_path / "train.csv", "a,b,y", "1,2,p", "3,4,q")
    found = detect_layout([train], TableOptions())
    other = write(tmp_path / "other.csv", "more,y,b,a", "0,p,2,1")
    assert valid_rows([other], found, None)[0].fields == ("1", "2")
    without = write(tmp_path / "without.csv", "b,a", "2,1")
    assert next(iter(row_entries(without, found, need_target=False))).fields == ("1", "2")
    with pytest.raises(SeqloomError, match=r"without.csv:1: unknown column 'y'"):
        valid_rows([without], found, None)


def test_a_share_is_held_out_by_the_row(tmp_path):
    file = people(tmp_path / "people.csv", 600)
    found = ready(file, 0.2)
    assert 70 < len(found.valid) < 170
    assert len(found.train) + len(found.valid) == 600 == len(found.train) + len(found.validation_examples())
    lines = (tmp_path / "people.csv").read_text().splitlines()
    turned = write(tmp_path / "turned.csv", lines[0], *reversed(lines[1:]))
    assert {row.fields for row in ready(turned, 0.2).validation_examples()} == {
        row.fields for row in found.validation_examples()
    }
    folds = [{row.line for row in ready(file, Fold(n, 3)).validation_examples()} for n in (1, 2, 3)]
    assert set().union(*folds) == set(range(2, 602))
    assert sum(map(len, folds)) == 600


def test_the_fingerprint_goes_by_content(tmp_path):
    one, other = people(tmp_path / "a.csv"), people(tmp_path / "b.csv")
    assert ready(one).train.fingerprint == ready(other).train.fingerprint
    assert ready(one).train.fingerprint != ready(one, column_types={"age": "category"}).train.fingerprint
    assert ready(one).train.fingerprint != ready(one, 0.1).train.fingerprint


def test_texts_are_tokens(tmp_path):
    lines = [f"{i},note number {i} here,{i % 2}" for i in range(30)]
    found = ready(write(tmp_path / "t.csv", "x,note,y", *lines), max_length=3)
    batch = found.train.batch(np.array([3, 4]))
    (text,) = batch.source.texts
    assert text.host == (4, 4)  # three words and <eos>
    assert found.schema.codec.decode(text.tokens[0].tolist()) == "note number 3"
    piece = batch.micro_batches(2)[1]
    assert piece.source.texts[0].tokens.tolist() == text.tokens[1:].tolist()
    assert batch.zero_weight_row().count == 0


def test_only_the_training_rows_make_the_vocabulary(tmp_path):
    train = write(tmp_path / "train.csv", "note,y", "a b,1", "b c,0", "c a,1")
    valid = write(tmp_path / "valid.csv", "note,y", "strange,1")
    found = prepare_table(PrepareRequest([train], [valid], TableOptions(), seed=1))
    assert sorted(found.schema.codec.tokens) == ["a", "b", "c"]


def test_what_was_learned_is_written_and_read_back(tmp_path):
    lines = [f"{i},yes,note number {i} here,k{i % 3},{'pq'[i % 2]}" for i in range(30)]
    found = ready(write(tmp_path / "t.csv", "x,m,note,k,y", *lines), flag_missing=True)
    again = Schema.from_json(json.loads(json.dumps(found.vocabularies())))
    assert (again.columns, again.target, again.layout) == (
        found.schema.columns,
        found.schema.target,
        found.schema.layout,
    )
    rows = [Row(("3", "no", "number 4", "k9"), "", "", 0)]
    assert again.encode(rows).batch(np.arange(1)).source.values.tolist() == (
        found.schema.encode(rows).batch(np.arange(1)).source.values.tolist()
    )
    kept = prepare_table(
        PrepareRequest([str(tmp_path / "t.csv")], 0.0, TableOptions(), seed=1, vocabularies=found.vocabularies())
    )
    assert kept.schema.columns == found.schema.columns
    source = {"source": found.vocabularies()["source"]}
    other = write(tmp_path / "o.csv", "note,y", *(f"number word {i},{i % 3}" for i in range(9)))
    tokens = prepare_table(PrepareRequest([other], 0.0, TableOptions(), seed=1, vocabularies=source))
    assert tokens.schema.codec.tokens == found.schema.codec.tokens
    strange = write(tmp_path / "s.csv", "x,m,note,k,y", *(f"{i},yes,note {i},k1,{'pqr'[i % 3]}" for i in range(9)))
    with pytest.raises(SeqloomError, match=r"3 rows have a class that the run it starts from lacks; it has p, q"):
        prepare_table(PrepareRequest([strange], 0.0, TableOptions(), seed=1, vocabularies=found.vocabularies()))
    with pytest.raises(SeqloomError, match=r"the stored columns are damaged"):
        Schema.from_json({"columns": {"columns": [{"name": "x"}], "target": {}}, "source": {}})


def test_yes_as_a_target_keeps_its_spelling(tmp_path):
    file = write(tmp_path / "t.csv", "x,y", "1,Ja", "2,Nein", "3,Ja", "4,Nein")
    assert ready(file).schema.classes == ("Ja", "Nein")
    file = write(tmp_path / "u.csv", "x,y", "1,TRUE", "2,FALSE", "3,true", "4,FALSE", "5,TRUE")
    found = ready(file)
    assert found.schema.classes == ("FALSE", "TRUE")
    assert found.train.values.tolist() == [1, 0, 1, 0, 1]


def test_numbers_of_rows_are_doubted(tmp_path):
    file = write(tmp_path / "t.csv", "id,x,y", *(f"{3 * i},{i % 7},{'pq'[i % 2]}" for i in range(30)))
    told = [note for note in ready(file).notes if "leave it out" in note]
    assert told == ["id rises from row to row: if it only numbers them, leave it out by data.exclude"]
    assert not any("leave it out" in note for note in ready(file, exclude="id").notes)


def test_classes_can_weigh_unlike(tmp_path):
    file = write(tmp_path / "t.csv", "x,y", "1,p", "2,p", "3,p", "4,q")
    weight = ready(file, class_weights="balanced").train.batch(np.arange(4)).weight
    assert weight.tolist() == pytest.approx([2 / 3] * 3 + [2])
    assert ready(file).train.batch(np.arange(4)).weight is None


def test_a_column_can_be_shuffled(tmp_path):
    lines = [f"{i},note {i},k{i % 3},{i % 2}" for i in range(6)]
    found = ready(write(tmp_path / "t.csv", "x,note,k,y", *lines), column_types={"k": "category"}).train
    order = np.array([1, 2, 3, 4, 5, 0])
    rows = np.arange(6)
    for column, part in ((0, slice(0, 1)), (2, slice(1, 4))):
        mixed = found.permute_column(column, order).dense(rows)
        assert (mixed[:, part] == found.dense(rows)[order][:, part]).all()
        rest = [i for i in range(4) if i not in range(*part.indices(4))]
        assert (mixed[:, rest] == found.dense(rows)[:, rest]).all()
    text = found.permute_column(1, order).batch(rows).source.texts[0].tokens
    assert (text == found.batch(rows).source.texts[0].tokens[order]).all()


def test_a_plan_covers_every_row_once(tmp_path):
    supply = ready(people(tmp_path / "people.csv", 100)).train
    one = supply.plan(seed=1, epoch=0, batch_tokens=None, batch_rows=16)
    assert sorted(one.order.tolist()) == list(range(100))
    assert len(supply.costs(one)) == len(one) == 7
    assert one.order.tolist() != supply.plan(seed=1, epoch=1, batch_tokens=None, batch_rows=16).order.tolist()


def test_columns_say_what_is_wrong():
    column = Column("age", "number")
    assert column.problem("4") is None
    assert column.problem(" ") is None
    assert column.problem("n/a") is None
    assert column.problem("old") == "column 'age': 'old' is no number"


@pytest.mark.parametrize(
    ("values", "gap"), [(["1.5", "2.5", "3.25"], "NA"), (["yes", "no", "yes"], "NA"), (["1.5", "2.5", "0.5"], " ? ")]
)
def test_a_missing_target_is_named_or_left_out(tmp_path, values, gap):
    """It would make the loss NaN, and the mean of all that is learned."""
    rows = [f"{place},{value}" for place, value in enumerate([*values, gap] * 3)]
    file = write(tmp_path / "a.csv", "x,y", *rows)
    with pytest.raises(SeqloomError, match=r"a\.csv:5: the target \(y\) is missing"):
        ready(file)
    found = ready(file, skip_bad=True)
    assert len(found.train) == 9
    assert np.isfinite(found.train.values).all()
    schema = found.schema
    assert schema.problem(Row(("1",), gap, "b.csv", 2), need_target=False) is None
    assert str(schema.problem(Row(("1",), gap, "b.csv", 2))) == "b.csv:2: the target (y) is missing"
