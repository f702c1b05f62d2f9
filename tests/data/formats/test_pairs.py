"""Every format, and every way in which a line can be broken."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import threading

import pytest

from seqloom.data.files import lines
from seqloom.data.formats.pairs import Example, group_files, read, read_sources
from seqloom.errors import SeqloomError


@pytest.fixture
def put(tmp_path):
    def write(name: str, content: str | bytes) -> str:
        raw = content.encode() if isinstance(content, str) else content
        path = tmp_path / name
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return str(path)

    return write


@pytest.fixture
def stdin(monkeypatch):
    def feed(raw: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
        lines._spool.cache_clear()

    yield feed
    lines._spool.cache_clear()


def pairs(*files: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(example.source, example.targets) for one in group_files(files) for example in read(one)]


TWO = [("a b", ("x",)), ("c", ("y z",))]


@pytest.mark.parametrize("end", ["", ".gz"])
def test_formats(put, end):
    tsv = put(f"a.tsv{end}", "a b\tx\nc\ty z\n")
    sniffed = put(f"a.txt{end}", "\n".join(["a b\tx", "c\ty z"]))
    jsonl = put(f"a.jsonl{end}", '{"source": "a b", "target": "x"}\n{"source": "c", "target": ["y z"]}\n')
    left, right = put(f"a.en{end}", "a b\nc\n"), put(f"a.de{end}", "x\ny z\n")
    for files in ([tsv], [sniffed], [jsonl], [left, right]):
        assert pairs(*files) == TWO, files
    groups = group_files([tsv, left, right, jsonl])
    assert [one.form for one in groups] == ["tsv", "parallel", "jsonl"]
    assert list(read(groups[1]))[1] == Example("c", ("y z",), left, 2)


def test_several_references(put):
    tsv = put("a.tsv", "a\tx\ty\t\tz\t \n")
    jsonl = put("a.jsonl", '{"target": ["x", "y", "z"], "source": "a"}\n')
    assert pairs(tsv) == pairs(jsonl) == [("a", ("x", "y", "z"))]


def test_line_ends_are_newlines_only(put):
    odd = "a\u2028b\x0bc\x85d\x0ce\x1cf"
    file = put("a.tsv", b"\xef\xbb\xbf" + f"{odd}\tx\r\nq\ty\rz\r\n".encode())
    assert pairs(file) == [(odd, ("x",)), ("q", ("y\rz",))]


def test_byte_order_mark_only_at_the_start(put):
    assert pairs(put("a.tsv", "\ufeffa\tx\nb\ufeff\ty\n")) == [("a", ("x",)), ("b\ufeff", ("y",))]
    with pytest.raises(SeqloomError, match=r"b\.tsv:2: byte order mark in the middle of the file"):
        pairs(put("b.tsv", "\ufeffa\tx\n\ufeffb\ty\n"))


def test_first_line_with_text_decides(put):
    with pytest.raises(SeqloomError, match=r"a\.txt:1: empty line; expected source TAB target"):
        pairs(put("a.txt", "\n\na\tx\n"))


def test_stdin_can_be_read_twice(stdin):
    stdin(b"a b\tx\nc\ty z\n")
    assert pairs("-") == TWO
    assert pairs("-") == TWO
    stdin(b"a\tx\nb\n")
    with pytest.raises(SeqloomError, match=r"^stdin:2: no TAB"):
        pairs("-")


def test_a_pipe_can_be_read_twice(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    feeder = threading.Thread(target=lambda: pipe.write_bytes(b"a b\tx\nc\ty z\n"))
    feeder.start()
    [one] = group_files([str(pipe)])
    feeder.join()
    assert [(e.source, e.targets) for e in read(one)] == [(e.source, e.targets) for e in read(one)] == TWO


GOOD_JSON = b'{"source": "a", "target": "x"}\n'
BROKEN = [
    ("a.tsv", b"a\tx\nab\xff\tx\n", "2: not UTF-8: byte 0xff at byte 3 of the line"),
    ("a.tsv", b"a\tx\nb\tx\nb x\n", "3: no TAB: expected source TAB target"),
    ("a.tsv", b"a\tx\n\nb\ty\n", "2: empty line"),
    ("a.tsv", b"\tx\n", "1: the source is empty"),
    ("a.tsv", b" \tx\n", "1: the source is empty"),
    ("a.tsv", b"a\t\n", "1: the target is empty"),
    ("a.tsv", b"a\t\ty\n", "1: the target is empty"),
    ("a.tsv", b"a\tx\0\n", "1: NUL character at character 4 of the line"),
    (
        "a.jsonl",
        GOOD_JSON + b'{"source": "a", "target" "x"}\n',
        r"2: broken JSON: Expecting ':' delimiter at column 26",
    ),
    ("a.jsonl", GOOD_JSON + b"\n", "2: empty line; expected a JSON object"),
    ("a.jsonl", b"[" * 100_000 + b"\n", "1: broken JSON: too deep"),
    ("a.jsonl", b'["a", "x"]\n', "1: expected an object like .* not a list"),
    ("a.jsonl", b"null\n", "1: expected an object like .* not null"),
    ("a.jsonl", b'{"src": "a", "target": "x"}\n', '1: key "source" is missing'),
    ("a.jsonl", b'{"source": "a"}\n', '1: key "target" is missing'),
    ("a.jsonl", b'{"source": "a", "target": []}\n', '1: key "target" is missing'),
    ("a.jsonl", b'{"source": 3, "target": "x"}\n', '1: "source" must be text, not a number'),
    ("a.jsonl", b'{"source": "a", "target": ["x", null]}\n', '1: "target" must be text, not null'),
    ("a.jsonl", b'{"source": "a", "target": " "}\n', "1: the target is empty"),
    ("a.jsonl", b'{"source": "a\\u0000", "target": "x"}\n', '1: NUL character in "source"'),
    ("a.jsonl", b'{"source": "\\ud83d", "target": "x"}\n', '1: "source" holds half a surrogate pair'),
]


@pytest.mark.parametrize(("name", "content", "message"), BROKEN)
def test_broken_lines(put, name, content, message):
    with pytest.raises(SeqloomError, match=rf"^\S*{name}:{message}"):
        pairs(put(name, content))


def test_parallel_files_of_unequal_length(put):
    short, long = put("a.en", "a\nb\n"), put("a.de", "x\ny\nz\n")
    with pytest.raises(SeqloomError, match=r"a\.en:3: the line is missing, but \S*a\.de goes on"):
        pairs(short, long)
    with pytest.raises(SeqloomError, match=r"a\.en:3: the line is missing, but \S*a\.de goes on"):
        pairs(long, short)


def test_a_broken_side_names_its_own_file(put):
    with pytest.raises(SeqloomError, match=r"a\.de:2: the target is empty"):
        pairs(put("a.en", "a\nb\n"), put("a.de", "x\n\n"))


def test_reading_stops_at_the_first_broken_line(put):
    [one] = group_files([put("a.tsv", "a\tx\nb\ty\nbroken\n")])
    examples = read(one)
    assert [next(examples).source, next(examples).source] == ["a", "b"]
    with pytest.raises(SeqloomError, match=":3:"):
        next(examples)


def test_sources_without_targets(put):
    [one] = group_files([put("a.tsv", "a\nb\t\nc\tx\n")])
    assert [(e.source, e.targets) for e in read(one, need_target=False)] == [("a", ()), ("b", ()), ("c", ("x",))]


def test_lone_file(put):
    lone, tsv = put("train.en", "a\nb\n"), put("a.tsv", "a\tx\n")
    for files in ([lone], [lone, tsv], [tsv, lone]):
        with pytest.raises(
            SeqloomError, match=r"train\.en: no second file .* source TAB target .* train\.en train\.de"
        ):
            group_files(files)


def test_files_that_cannot_be_read(put, tmp_path):
    with pytest.raises(SeqloomError, match=r"nowhere\.tsv: no such file$"):
        group_files([str(tmp_path / "nowhere.tsv")])
    with pytest.raises(SeqloomError, match=r"is a folder, not a file; name the files in it$"):
        group_files([str(tmp_path)])
    if os.getuid():
        locked = put("locked.tsv", "a\tx\n")
        os.chmod(locked, 0)
        with pytest.raises(SeqloomError, match=r"locked\.tsv: cannot be read: Permission denied$"):
            group_files([locked])


def test_damaged_gz(put, tmp_path):
    whole = gzip.compress(os.urandom(3000).hex().encode() + b"\tx\n")
    (tmp_path / "cut.tsv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SeqloomError, match=r"cut\.tsv\.gz:1: the \.gz file is cut off or damaged here"):
        pairs(str(tmp_path / "cut.tsv.gz"))
    (tmp_path / "no.tsv.gz").write_bytes(b"a\tx\n")
    with pytest.raises(SeqloomError, match=r"no\.tsv\.gz:1: the \.gz file is cut off or damaged here"):
        pairs(str(tmp_path / "no.tsv.gz"))


def test_endless_line(put, monkeypatch):
    monkeypatch.setattr(lines, "LONGEST", 1 << 20)
    with pytest.raises(SeqloomError, match="1: no line end within 1 MiB"):
        pairs(put("a.tsv", b"a" * (1 << 21)))


def test_read_sources(put, stdin):
    assert list(read_sources(put("a.txt", "a b\n\nc\r\n"))) == ["a b", "", "c"]
    assert list(read_sources(put("a.tsv.gz", "a\tx\n\nb\ty\tz"))) == ["a", "", "b"]
    assert list(read_sources(put("a.jsonl", '{"source": "a\\nb"}\n\n{"source": "", "target": "x"}\n'))) == [
        "a\nb",
        "",
        "",
    ]
    stdin("ä\n\nb\ty\n".encode())
    assert list(read_sources("-")) == ["ä", "", "b"]
    with pytest.raises(SeqloomError, match=r"b\.txt:2: not UTF-8"):
        list(read_sources(put("b.txt", b"a\n\xe9\n")))
    with pytest.raises(SeqloomError, match="no such file"):
        list(read_sources("nowhere.txt"))


def test_reading_does_not_load_torch():
    code = "import sys, seqloom.data.formats.pairs, seqloom.data.checks.pairs; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
