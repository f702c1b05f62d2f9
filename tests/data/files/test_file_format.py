"""Files as strangers write them: encodings, delimiters and headers told by content, and what is no text at all."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import pytest

from seqloom.data.batches.language import StreamOptions
from seqloom.data.batches.tags import TagOptions
from seqloom.data.checks.pairs import check
from seqloom.data.files.columns import ReadOptions
from seqloom.data.files.encodings import as_utf8, detect_encoding
from seqloom.data.files.file_format import detect_format
from seqloom.data.files.header import is_column_name, is_header
from seqloom.data.formats.conll import read as read_conll
from seqloom.data.formats.pairs import group_files, read_entries, read_sources
from seqloom.data.formats.pairs_fast import Pairs, read_bulk
from seqloom.data.formats.table import TableOptions, detect_layout, valid_rows
from seqloom.data.prepare.pairs import DataOptions, prepare_pairs
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.prepare.texts import PlainTextOptions, prepare_texts
from seqloom.errors import SeqloomError
from seqloom.files import new_folder, write_atomic, writing

GERMAN = [
    ("Übermut tut selten gut", "gut"),
    ("Schöne Grüße aus Köln, Max", "gut"),
    ("völlig überteuert; nie wieder", "böse"),
]
CHINESE = [
    ("这家酒店的服务很好，房间也很干净", "好评"),
    ("手机的质量不行，我不喜欢", "差评"),
    ("快递很快，下次还会来", "好评"),
]


@pytest.fixture
def put(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name: str, content: str | bytes, encoding: str = "utf-8") -> str:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        return name

    return write


def pairs(file: str, **reading) -> list[tuple[str, str]]:
    """By the quick reader, which must agree with the plain one."""
    [one] = group_files([file], ReadOptions(**reading))
    found = [each for many in read_bulk(one) if isinstance(many, Pairs) for each in many.examples(one.files[0])]
    assert found == list(read_entries(one))
    return [(each.source, each.targets[0]) for each in found]


def rows(pairs, sign="\t", end="\n") -> str:
    return "".join(f"{left}{sign}{right}{end}" for left, right in pairs)


@pytest.mark.parametrize(
    ("encoding", "wanted", "told"),
    [
        ("utf-8", GERMAN, None),
        ("utf-8-sig", GERMAN, "byte order mark at its start was dropped"),
        ("cp1252", GERMAN, "read as Latin-1 (cp1252), detected"),
        ("utf-16", GERMAN, "read as UTF-16, by the mark"),
        ("utf-16-le", GERMAN, "read as UTF-16, detected"),
        ("utf-16", CHINESE, "read as UTF-16, by the mark"),
        ("utf-16-le", CHINESE, "read as UTF-16, detected"),
        ("utf-16-be", CHINESE, "read as UTF-16, detected"),
        ("gb18030", CHINESE, "read as GB18030, detected"),
        ("utf-8", CHINESE, None),
    ],
)
def test_the_encoding_is_told_by_the_content_and_said(put, encoding, wanted, told):
    for end in ("\n", "\r\n"):
        file = put("a.tsv", rows(wanted, end=end), encoding)
        assert pairs(file) == wanted
        notes = group_files([file])[0].notes
        assert (told is None and not notes) or told in notes[0]
        assert pairs(file, encoding=encoding) == wanted
    (gzipped := "a.tsv.gz", put(gzipped, gzip.compress(rows(wanted).encode(encoding))))
    assert pairs(gzipped) == wanted


def test_what_is_told_wins_and_single_damaged_lines_stay_errors(put):
    file = put("a.tsv", rows(GERMAN), "cp1252")
    assert pairs(file, encoding="latin-1") == GERMAN
    with pytest.raises(SeqloomError, match=r"a\.tsv:1: not UTF-8: byte 0xdc"):
        [str(one) for one in _raise(group_files([file], ReadOptions(encoding="utf-8"))[0])]
    with pytest.raises(SeqloomError, match=r"a\.tsv:1: not UTF-8"):
        _raise(group_files([file], ReadOptions(detect=False))[0])
    names_alone = put("e.tsv", "词\t读音\n" + "ab\tba\n" * 30, "gb18030")
    assert pairs(names_alone)[0] == ("ab", "ba")
    damaged = put("b.tsv", rows(GERMAN).encode() + b"caf\xe9\tgut\n")
    assert [problem.line for problem in check([damaged])] == [4]
    undefined = put("c.tsv", b"gut\x81er Tag\tgut\n")
    with pytest.raises(SeqloomError, match=r"c\.tsv:1: byte 0x81 is no character in the encoding of the file"):
        _raise(group_files([undefined], ReadOptions(encoding="cp1252"))[0])
    (one,) = group_files([put("d.tsv", rows(GERMAN))], ReadOptions(encoding="cp1252"))
    assert "read as cp1252 as requested, although it is valid UTF-8" in one.notes[0]
    with pytest.raises(SeqloomError, match="unknown --encoding 'utf-99'; for example utf-8"):
        ReadOptions(encoding="utf-99")
    with pytest.raises(SeqloomError, match="--encoding 'rot13'"):
        ReadOptions(encoding="rot13")


def _raise(one) -> list:
    from seqloom.data.formats.pairs import read

    return list(read(one))


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1251", "Это просто замечательный фильм"),
        ("koi8_r", "Это просто замечательный фильм"),
        ("euc_kr", "이 영화는 정말 재미있었습니다 추천합니다"),
        ("shift_jis", "この映画はとても面白かったです"),
        ("euc_jp", "この映画はとても面白かったです"),
        ("big5", "這部電影真的非常好看我很喜歡"),
        ("cp1250", "Źle, bardzo źle się bawiłem"),
    ],
)
def test_other_encodings_are_not_taken_for_those_that_are_guessed_but_named(put, encoding, text):
    raw = f"{text}\t1\n".encode(encoding) * 30
    assert detect_encoding(raw) == "utf-8"
    with pytest.raises(SeqloomError, match=rf":1: not UTF-8: .*; if it is {encoding}, --encoding {encoding} reads it"):
        _raise(group_files([put("a.tsv", raw)])[0])
    assert pairs("a.tsv", encoding=encoding)[0] == (text, "1")


def test_a_csv_of_a_german_spreadsheet(put):
    file = put("a.csv", "Text;Klasse\r\n" + 'eins, zwei;gut\r\n"mit; und\nZeile";böse\r\n1,5 Grad;gut\r\n', "cp1252")
    assert pairs(file) == [("eins, zwei", "gut"), ("mit; und\nZeile", "böse"), ("1,5 Grad", "gut")]
    told = " ".join(group_files([file])[0].notes)
    assert all(part in told for part in ("cp1252", "semicolons stand between", "the first line (Text,Klasse) is taken"))
    assert not list(check([file])), "the line end inside the cell is none of the file's"


def test_delimiters_by_name_and_sign(put):
    for name, sign in (("semicolon", ";"), ("|", "|"), ("tab", "\t"), ("comma", ","), (";", ";")):
        file = put("a.txt", f'one{sign}"two{sign}three"\nfour{sign}five\n')
        second = f'"two{sign}three"' if sign == "\t" else f"two{sign}three"
        if sign != "\t":
            assert pairs(file, delimiter=name) == [("one", second), ("four", "five")]
    assert pairs(put("a.csv", "a|b\nc|d\n")) == [("a", "b"), ("c", "d")]
    assert pairs(put("b.csv", "a;b,c\nd;e,f\n")) == [("a;b", "c"), ("d;e", "f")], "a comma, where both would do"
    for wrong in ("", "ab", "x", '"'):
        with pytest.raises(SeqloomError, match="--delimiter"):
            ReadOptions(delimiter=wrong)
    with pytest.raises(SeqloomError, match="not with JSON lines"):
        group_files([put("a.jsonl", "{}\n")], ReadOptions(delimiter=";"))


MANY = [[f"a sentence of words number {n}", "good" if n % 3 else "bad"] for n in range(30)]


@pytest.mark.parametrize(
    ("first", "rest", "header"),
    [
        (["text", "label"], [], True),
        (["文本", "标签"], [["今天天气很好", "好"]], True),
        (["Source Text", "label_1"], [["a", "b"]], True),
        (["", "review", "stars"], [["0", "good", "5"]], True),
        (["tweet", "feeling"], MANY, True),
        (["blurb", "kindness"], MANY, True),
        (["v1", "v2"], [[b, a] for a, b in MANY], True),
        (["message", "spamminess"], [[a, str(n % 2)] for n, (a, _) in enumerate(MANY)], True),
        (["english", "mandarin"], [[a, "你好世界"] for a, _ in MANY], True),
        (["a sentence of words", "good"], MANY, False),
        (["go", "gehen"], [["run", "laufen"]] * 40, False),
        (["text", "en"], [["house", "en"], ["Haus", "de"]], False),
        (["word", "text"], [["text", "word"]], True),
        (["word", "W ER D"], [["a", "AH"], ["bird", "B ER D"]] * 20, False),
        (["hello there", "greeting"], [["bye now", "farewell"]], False),
        (["OK", "好的"], [["yes", "是的"]] * 30, False),
        (["text", "text"], [["a", "b"]], False),
        (["源文", "译文"], [["今天天气很好", "the weather is fine"]], True),
        (["文本内容", "类别标签"], [["今天天气很好", "好"]], True),
        (["inputText", "outputLabel"], [["a", "b"]], True),
        (["surname", "language"], [["Baum", "German"], ["Yun", "Korean"]] * 9, True),
        (["Romijnsen", "Dutch"], [["Baum", "German"], ["Yun", "Korean"]] * 30, False),
        (["Lang", "English"], [["Baum", "German"]], False),
        (["He", "PRON"], [["runs", "VERB"], [".", "PUNCT"]], False),
        (["el", "ɛ l"], [[f"sz{c}l", f"s oː {c}"] for c in "abcdefghijklmnopqrstuvwxyz"], False),
        (["boel", "b u l"], [[f"mees{c}", f"m eː {c} ə"] for c in "abcdefghijklmnopqrstuvwxyz"], False),
        (["Right", "INTJ"], [["the", "DET"], ["cat", "NOUN"]] * 99 + [["two", "NUM"]], False),
        (["3", "label"], [["4", "x"]], False),
    ],
)
def test_headers_are_known_by_words_and_by_being_unlike_the_rest(first, rest, header):
    assert is_header(first, rest) == header


def test_known_words():
    assert all(map(is_column_name, ("text", "Source Text", "label_1", "#word", "标签", "text (en)")))
    assert not any(map(is_column_name, ("", "12", "tweets!", "a b")))


def test_header_and_no_header(put):
    file = put("a.tsv", "alpha\tbeta\nc\td\n")
    assert pairs(file) == [("alpha", "beta"), ("c", "d")]
    assert pairs(file, header=True) == [("c", "d")]
    assert pairs(put("b.tsv", "text\tlabel\nc\td\n"), header=False) == [("text", "label"), ("c", "d")]
    with pytest.raises(SeqloomError, match="without a header columns have numbers"):
        ReadOptions(columns="text,label", header=False)


def test_a_header_of_the_training_file_is_one_of_the_validation_file(put, tmp_path):
    train = put("a.tsv", "blurb\tkindness\n" + rows(map(tuple, MANY)))
    valid = put("v.tsv", "blurb\tkindness\na new one\tgood\n")
    assert pairs(valid) == [("blurb", "kindness"), ("a new one", "good")], "alone it tells nothing"
    data = prepare_pairs(PrepareRequest([train], [valid], DataOptions(), seed=1, cache=tmp_path / "c"))
    assert (len(data.train), len(data.valid or ())) == (30, 1)


def test_headers_of_tagged_sentences(put):
    body = "Ann B-PER\nsleeps O\n\nRome B-LOC\n"
    file = put("a.conll", f"token ner\n{body}")
    found = read_conll([file], TagOptions())
    assert [one.words for one in found.sentences] == [("Ann", "sleeps"), ("Rome",)]
    assert "the first line (token ner) is taken as a header" in found.notes[0]
    assert len(read_conll([file], TagOptions(header=False)).sentences[0].words) == 3
    assert [one.tags for one in read_conll([file], TagOptions(columns="token,ner")).sentences][1] == ("B-LOC",)
    assert len(read_conll([put("b.conll", f"word O\n{body}")], TagOptions()).sentences[0].words) == 3
    for first in ("#token ner\n", "# of news\n#token ner\n", "# of news\ntoken ner\n"):
        found = read_conll([put("e.conll", first + body)], TagOptions())
        assert [one.words for one in found.sentences] == [("Ann", "sleeps"), ("Rome",)]
        assert "token ner) is taken as a header" in found.notes[0]
    comma = put("c.txt", body.replace(" ", ","))
    assert read_conll([comma], TagOptions(delimiter="comma")).sentences[0].tags == ("B-PER", "O")
    wide = put("d.conll", "张 B-NAME\n三 E-NAME\n\n" * 9, "gb18030")
    assert read_conll([wide], TagOptions(encoding="gb18030")).sentences[0].words == ("张", "三")


def test_prediction_hears_of_the_header_and_reads_standard_input_as_it_comes(put, monkeypatch):
    told: list[str] = []
    file = put("a.tsv", "source\ttarget\ncafé\tx\n", "cp1252")
    assert list(read_sources(file, on_note=told.append)) == ["café"]
    assert len(told) == 2
    assert list(read_sources(put("b.csv", "text\none\n"))) == ["one"]
    assert list(read_sources(put("c.txt", "text\none\n"))) == ["text", "one"]

    def asked(raw: bytes, **reading) -> list[str]:
        stream = io.BufferedReader(io.BytesIO(raw))  # pyright: ignore
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
        return list(read_sources("-", ReadOptions(**reading)))

    assert asked("schön\ngroß\n".encode("cp1252")) == ["schön", "groß"]
    assert asked("schön\ngroß\n".encode("utf-16"), encoding="utf-16") == ["schön", "groß"]
    assert asked(b"source\ttarget\na\tx\n") == ["a"]
    assert asked(b"alpha\tbeta\na\tx\n") == ["alpha", "a"]
    assert asked(b"a;x\nb;y\n", delimiter=";") == ["a", "b"]


def test_tables_and_running_text(put, tmp_path):
    file = put("a.csv", "größe;klasse\n1;schön\n2;böse\n", "cp1252")
    plan = detect_layout([file], TableOptions())
    assert [row.target for row in valid_rows([file], plan, None)] == ["schön", "böse"]
    lines = put("b.txt", "Schöne Grüße aus Köln\n" * 40, "utf-16")
    found = prepare_texts(PrepareRequest([lines], 0.0, PlainTextOptions(tokens="words"), seed=1, cache=tmp_path))
    assert "Grüße" in found.codec.tokens
    assert "read as UTF-16" in found.notes[0]
    from seqloom.data.prepare.language import prepare_language

    running = prepare_language(PrepareRequest([lines], 0.0, StreamOptions(tokens="words"), seed=1, cache=tmp_path))
    assert "Grüße" in running.codec.tokens
    assert "read as UTF-16" in running.notes[0]


def test_the_cache_knows_how_a_file_was_read(put, tmp_path):
    file = put("a.tsv", "source\ttarget\n" + rows([(f"a{n}", f"b{n}") for n in range(9)]))

    def fingerprint(**reading) -> str:
        return prepare_pairs(
            PrepareRequest([file], 0.0, DataOptions(**reading), seed=1, cache=tmp_path / "c")
        ).train.fingerprint

    before = fingerprint(detect=False)
    assert fingerprint(header=False) == before == fingerprint(header=False, delimiter="tab", encoding="utf-8")
    assert fingerprint() == fingerprint(header=True) != before
    put("a.tsv", rows([(f"a{n}", f"b{n}") for n in range(9)]))
    assert fingerprint() == fingerprint(detect=False), "nothing is recognised here, so caches from before serve"


@pytest.mark.parametrize(
    ("name", "start", "told"),
    [
        ("a.wav", b"RIFF\x24\x08\0\0WAVEfmt ", "that is audio (WAVE), not text"),
        ("a.tsv", b"\x89PNG\r\n\x1a\n\0\0", "that is a picture (PNG), not text"),
        (
            "a.xlsx",
            b"PK\x03\x04\x14\0" + b"\0" * 40 + b"xl/workbook.xml",
            "spreadsheet (Excel), not text: save it as CSV",
        ),
        ("a.csv", b"\x1f\x8b\x08\0", "compressed by gzip: give it a name that ends in .gz"),
        ("a.txt", b"%PDF-1.7\n", "that is a PDF"),
    ],
)
def test_files_that_are_no_text_are_named(put, name, start, told):
    with pytest.raises(SeqloomError, match=r"^a\.\w+: that is ") as raised:
        group_files([put(name, start)])
    assert told in str(raised.value)


@pytest.mark.parametrize(("ending", "told"), [("wav", "audio (0.wav, 0.wav), not texts"), ("jpg", "pictures (0.jpg")])
def test_folders_of_sounds_and_pictures(tmp_path, ending, told):
    from seqloom.data.prepare.labels import LabelOptions

    for label in ("yes", "no"):
        (tmp_path / label).mkdir()
        (tmp_path / label / f"0.{ending}").write_bytes(b"\0\1")
    with pytest.raises(SeqloomError) as raised:
        group_files([str(tmp_path)], LabelOptions())
    assert f"that is {told}" in str(raised.value)
    for named, options in ((tmp_path / "yes", LabelOptions()), (tmp_path, ReadOptions())):
        with pytest.raises(SeqloomError, match=r": that is (audio|pictures) \(0"):
            group_files([str(named)], options)


def test_one_line_without_an_end_and_names_without_examples(put):
    from seqloom.data.checks import labels as labelcheck
    from seqloom.data.checks import table as tablecheck
    from seqloom.data.checks import texts
    from seqloom.data.prepare.table import prepare_table

    [text] = texts.check([put("a.txt", "two words")]).statistics
    assert (text.numbers["lines"], text.numbers["longest"], text.numbers["characters"]) == (1, 9, 10)
    endless = texts.check([put("b.txt", "ab " * 3_000_000)])
    assert len(list(endless)) == 1, "one line, so one warning"
    assert endless.statistics[0].numbers["lines"] == 1
    file = put("c.csv", "text,label\n")
    for looks in (check, labelcheck.check, tablecheck.check):
        assert looks([file]).errors == 1
    with pytest.raises(SeqloomError, match=r"c\.csv: holds no rows"):
        prepare_table(PrepareRequest([file], 0.05, TableOptions(split_version=2), seed=1))


def test_odd_files(put):
    assert pairs(put("empty.tsv", "")) == []
    assert pairs(put("one.csv", "a;b")) == [("a", "b")]
    assert pairs(put("header.tsv", "text\tlabel\n")) == []
    long = "x" * 300_000
    assert pairs(put("long.csv", f"text,label\n{long},a\nb,c\n")) == [(long, "a"), ("b", "c")]
    assert detect_format("long.csv", Path("long.csv")).separator == ","


def test_a_full_disk_is_told_with_what_is_needed_and_what_is_free(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("seqloom.files.os.fsync", full)
    with pytest.raises(
        SeqloomError, match=r"x: could not be written: No space left on device: .*bytes are needed, and "
    ):
        write_atomic(tmp_path / "x", b"y" * 1234)
    with (
        pytest.raises(SeqloomError, match=r"more than 1,234 bytes are needed, and [\d,]+ are free in "),
        writing(tmp_path / "x") as file,
    ):
        file.write(b"y" * 1234)
    with pytest.raises(SeqloomError, match=r"cache: .* bytes are needed"), new_folder(tmp_path / "cache") as folder:
        full(folder)
    assert not list(tmp_path.iterdir())


def test_wide_encodings_need_no_mark(tmp_path):
    rows = "".join(f"gut {n}\tgood {n}\n" for n in range(30))
    for encoding in ("utf-16-le", "utf-16-be", "utf-32-le"):
        (tmp_path / f"{encoding}.tsv").write_bytes(rows.encode(encoding))
        family = encoding[:6]
        found = [*as_utf8((tmp_path / f"{encoding}.tsv").open("rb"), family)]
        assert b"".join(found).decode() == rows
    (tmp_path / "plain.tsv").write_text(rows)
    assert b"".join(as_utf8((tmp_path / "plain.tsv").open("rb"), "utf-16")), "other characters, and no exception"
