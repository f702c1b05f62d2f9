"""Tagged sentences from files, whole and broken."""

from __future__ import annotations

import gzip

import pytest

from seqloom.data.checks.tags import check
from seqloom.data.files.columns import ReadOptions
from seqloom.data.formats.conll import read, sentences
from seqloom.errors import SeqloomError

UNIVERSAL = (
    "# sent_id = 1\n"
    "# text = don't go\n"
    "1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tdo\tdo\tAUX\tVB\t_\t3\taux\t_\t_\n"
    "2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_\n"
    "3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n"
    "3.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t_\t_\n"
    "\n"
    "# text = #\n"
    "1\t#\t#\tSYM\tNN\t_\t0\troot\t_\t_\n"
)


def found(tmp_path, text, name="x.conll", longest=5000, **reading):
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read([path], ReadOptions(**reading), longest)


def pairs(tmp_path, text, name="x.conll", **reading):
    sentences = found(tmp_path, text, name, **reading).sentences
    return [" ".join(f"{word}/{tag}" for word, tag in zip(s.words, s.tags, strict=True)) for s in sentences]


def test_conll_by_blanks_and_by_tabs(tmp_path):
    rows = "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ  B-VP O\n\n\nPeter NNP B-NP B-PER\n"
    assert pairs(tmp_path, rows) == ["EU/B-ORG rejects/O", "Peter/B-PER"]
    assert pairs(tmp_path, rows, columns="1,2") == ["EU/NNP rejects/VBZ", "Peter/NNP"]
    assert pairs(tmp_path, "New York\tPROPN\n#\tSYM\n\n# a remark\n#\tSYM\n", "x.tsv") == [
        "New York/PROPN #/SYM",
        "#/SYM",
    ]


def test_lines_of_words_are_known(tmp_path):
    one, two = found(tmp_path, UNIVERSAL, "x.conllu").sentences
    assert (one.lines, two.lines, one.text) == ((4, 5, 6), (10,), "do n't go")


def test_conllu(tmp_path):
    assert pairs(tmp_path, UNIVERSAL, "x.conllu") == ["do/AUX n't/PART go/VERB", "#/SYM"]
    assert pairs(tmp_path, UNIVERSAL, "x.conllu", columns="XPOS") == ["do/VB n't/RB go/VB", "#/NN"]
    assert pairs(tmp_path, UNIVERSAL, "x.conllu", columns="lemma,upos")[0] == "do/AUX not/PART go/VERB"
    assert pairs(tmp_path, UNIVERSAL, "x.conllu", columns="2,5")[1] == "#/NN"
    assert pairs(tmp_path, UNIVERSAL, "x.txt")[1] == "#/SYM"  # known by its columns


def test_gz_mark_and_line_ends(tmp_path):
    raw = b"\xef\xbb\xbfa\tX\r\nb\tY\r\n\r\nc\tX"
    assert pairs(tmp_path, gzip.compress(raw), "x.tsv.gz") == ["a/X b/Y", "c/X"]
    assert found(tmp_path, raw, "x.tsv").notes == [f"{tmp_path}/x.tsv: the byte order mark at its start was dropped"]


BROKEN = [
    ("a\tX\nb\n", 2, "no TAB: expected word TAB tag, and an empty line after a sentence"),
    ("a X\nb\n", 2, "no blank: expected word blank tag"),
    ("a\tX\nb\tY\tZ\n", 2, "3 columns, but the file's first line has 2"),
    ("a X\nb\tc Y\n", 2, "a TAB, but the columns of this file stand between blanks"),
    ("a\tX\n\tY\n", 2, "the word is empty"),
    ("a\tX\nb\t\n", 2, "the tag is empty"),
    (b"a\tX\nb\xff\tY\n", 2, "not UTF-8: byte 0xff at byte 2"),
    (b"a\tX\nb\0\tY\n", 2, "NUL character"),
]


@pytest.mark.parametrize(("text", "line", "reason"), BROKEN)
def test_broken_lines_are_named(tmp_path, text, line, reason):
    with pytest.raises(SeqloomError, match=f"x.conll:{line}: {reason}"):
        found(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("2\tn't", "two\tn't", "the first column is a number, a range"),
        ("\tadvmod\t_\t_", "\tadvmod", "CoNLL-U has 10 columns with TABs between, here 8"),
        ("PART", "_", "the tag is _"),
        ("PART", "", "the tag is empty"),
    ],
)
def test_broken_conllu(tmp_path, old, new, reason):
    with pytest.raises(SeqloomError, match=f"x.conllu:5: {reason}"):
        found(tmp_path, UNIVERSAL.replace(old, new), "x.conllu")


def test_broken_sentences_are_left_out_and_counted(tmp_path):
    text = "a\tX\n\nb\nc\n\nd\tX\ne\tY\n\nf\tX\n\ng\t\n"
    result = found(tmp_path, text, "x.tsv", skip_bad=True)
    assert [sentence.text for sentence in result.sentences] == ["a", "d e", "f"]
    assert result.skipped.to_json()["reasons"] == {"columns": 1, "empty": 1}
    assert result.notes[0].startswith("left out 2 broken sentences (1 columns, 1 empty): ")
    with pytest.raises(SeqloomError, match="2 of 3 sentences are broken, more than half"):
        found(tmp_path, "a\tX\n\nb\n\nc\n", "x.tsv", skip_bad=True)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [("word,tag", "columns of CoNLL have no names"), ("1", "name two columns"), ("1,2,3", "name two columns")],
)
def test_wrong_columns(tmp_path, columns, reason):
    with pytest.raises(SeqloomError, match=reason):
        found(tmp_path, "a X\n", columns=columns)


def test_wrong_columns_of_conllu(tmp_path):
    with pytest.raises(SeqloomError, match="unknown column of CoNLL-U 'UPOSS'; did you mean 'UPOS'"):
        found(tmp_path, UNIVERSAL, "x.conllu", columns="FORM,uposs")
    with pytest.raises(SeqloomError, match=r"x.conll:1: column 4 is missing: the line has 2"):
        found(tmp_path, "a X\n", columns="1,4")


def test_a_file_without_empty_lines_is_not_one_sentence(tmp_path):
    with pytest.raises(SeqloomError, match=r"x.conll:1: a sentence of 6 words, more than 5: are the empty lines"):
        found(tmp_path, "a X\n" * 6, longest=5)
    with pytest.raises(SeqloomError, match="no such file"):
        read([tmp_path / "none"], ReadOptions())


def test_words_alone_can_be_read_for_prediction(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("a\nb\n\nc\n")
    assert list(sentences(path, ReadOptions())) == [("a", "b"), ("c",)]
    path.write_text("a\tX\nb\tY\n")
    assert list(sentences(path, ReadOptions())) == [("a", "b")]
    universal = tmp_path / "x.conllu"
    universal.write_text(UNIVERSAL.replace("AUX", "_").replace("\tgo\tgo\tVERB", "\t_\tgo\t_"))
    assert list(sentences(universal, ReadOptions())) == [("do", "n't", "_"), ("#",)]
    path.write_text("a\tX\n\tY\n")
    with pytest.raises(SeqloomError, match=r"x.tsv:2: the word is empty"):
        list(sentences(path, ReadOptions()))


def test_check_names_everything(tmp_path):
    train, test = tmp_path / "train.tsv", tmp_path / "test.tsv"
    train.write_text("a\tB-X\nb\tI-X\n\nc\tI-X\n\na\tO\nb\tO\n\nd\n")
    test.write_text("c\tO\n\nzero\u200bwidth\tB-X\n")
    report = check([str(train), str(test)])
    told = [(problem.file, problem.line, problem.kind, problem.code) for problem in report]
    assert (str(train), 9, "error", "columns") in told
    assert (str(train), 4, "warning", "scheme") in told
    assert (str(train), 6, "warning", "duplicate") in told
    assert (str(test), 1, "warning", "overlap") in told
    assert (str(test), 3, "warning", "invisible") in told
    assert (report.errors, report.warnings) == (1, 4)
    group = report.to_json()["groups"][0]
    assert (group["sentences"], group["broken"], group["words"], group["scheme"]) == (3, 1, 5, "bio")
    assert group["tags"] == {"I-X": 2, "O": 2, "B-X": 1}
    assert "3 sentences (conll), 5 words, 3 distinct; 3 tags (BIO)" in group["told"][0]


def test_check_of_an_empty_file_and_of_the_columns(tmp_path):
    (tmp_path / "empty").write_text("\n\n")
    assert [str(problem).rpartition(": ")[2] for problem in check([str(tmp_path / "empty")])] == [
        "the file holds no sentences"
    ]
    (tmp_path / "x").write_text(UNIVERSAL)
    assert check([str(tmp_path / "x")], reading=ReadOptions(columns="XPOS")).statistics[0].tags["RB"] == 1
    assert check([str(tmp_path / "x")], max_length=2).errors == 1
