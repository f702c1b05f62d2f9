"""A large file with one line in a hundred broken, in every way there is: each is found, and nothing else."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from seqloom.data.checks.pairs import check
from seqloom.data.prepare.pairs import DataOptions, prepare_pairs
from seqloom.data.prepare.request import PrepareRequest
from seqloom.errors import SeqloomError

LINES, BROKEN, SECONDS = 50_000, 500, 2.5
LONG = 1 << 20


def text(draw: random.Random, line: int) -> str:
    """Distinct from line to line; some with accents, Chinese, emoji, and joiners where they belong."""
    words = ["river", "Straße", "中文", "naïve", "👨\u200d👩\u200d👧", "نامه\u200cها", "क्\u200dष", "x"]
    return f"{draw.choice(words)} {line} {draw.choice(words)}"


Way = tuple[str, Callable[[random.Random, str, str], bytes]]


def ways(tab: str) -> list[Way]:
    """A code, and how a line becomes broken so. The bytes stand for the whole line, its end included."""

    def joined(source: str, target: str, end: str = "\n") -> bytes:
        return f"{source}{tab}{target}{end}".encode()

    hidden = "\u200b\u200c\u200d\u2060\ufeff\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    return [
        (
            "utf8",
            lambda draw, s, t: joined(s, t).replace(b" ", draw.choice([b"\xff", b"\xc3\x28", b"\xed\xa0\x80"]), 1),
        ),
        ("nul", lambda draw, s, t: joined(s, t + "\0")),
        ("columns", lambda draw, s, t: f"{s}\n".encode()),
        ("empty", lambda draw, s, t: draw.choice([b"\n", joined(s, ""), joined("", t), joined(" ", t)])),
        ("long", lambda draw, s, t: joined(s, t * (LONG // len(t)))),
        ("bom", lambda draw, s, t: b"\xef\xbb\xbf" + joined(s, t)),
        ("line-end", lambda draw, s, t: joined(s, t, "\r\n")),
        ("invisible", lambda draw, s, t: joined(f"{s[:-1]}a{draw.choice(hidden)}b", t)),
        ("delimiter", lambda draw, s, t: f"{s};{t}\n".encode()),
    ]


TSV_WAYS: list[Way] = [
    *ways("\t"),
    ("delimiter", lambda draw, s, t: f"{s}   {t}\n".encode()),
    ("delimiter", lambda draw, s, t: f"{s},{t}\n".encode()),
    ("quote", lambda draw, s, t: f'"{s}\t{t}\n'.encode()),
]
CSV_WAYS: list[Way] = [
    *ways(","),
    ("delimiter", lambda draw, s, t: f"{s}\t{t}\n".encode()),
    ("quote", lambda draw, s, t: f'"{s},{t}\n'.encode()),
    ("quote", lambda draw, s, t: f'{s},"{t}\n'.encode()),
    ("quote", lambda draw, s, t: f'{s},{t}"\n'.encode()),
    ("quote", lambda draw, s, t: f'"{s}" x,{t}\n'.encode()),
]


def make(good: Callable[[random.Random, str, str], bytes], chosen: list[Way]) -> tuple[bytes, set[tuple[int, str]]]:
    """The file, and what is wrong with which line."""
    draw = random.Random(5)
    broken = dict(zip(draw.sample(range(2, LINES + 1), BROKEN), range(BROKEN), strict=True))
    lines: list[bytes] = []
    expected: set[tuple[int, str]] = set()
    sound: list[int] = []
    while len(lines) < LINES:
        number = len(lines) + 1
        source, target = text(draw, number), text(draw, number)
        way = broken.get(number)
        if way is None:
            lines.append(good(draw, source, target))
            sound.append(number)
        elif way % (len(chosen) + 1) == len(chosen):  # once more what stood before
            again = draw.choice(sound)
            lines.append(lines[again - 1])
            expected.add((number, "duplicate"))
        else:
            code, spoil = chosen[way % (len(chosen) + 1)]
            lines.append(spoil(draw, source, target))
            expected.add((number, code))
    return b"".join(lines), expected


def found(files: list[str]) -> tuple[list[tuple[int, str]], float]:
    started = time.process_time()
    report = check(files)
    problems = [(problem.line, problem.code) for problem in report]
    report.to_json()
    return problems, time.process_time() - started


def test_every_broken_line_of_a_tsv_and_no_other(tmp_path):
    content, expected = make(lambda draw, s, t: f"{s}\t{t}\n".encode(), TSV_WAYS)
    file = tmp_path / "broken.tsv"
    file.write_bytes(content)
    problems, seconds = found([str(file)])
    assert len(expected) == BROKEN
    assert {code for _, code in expected} >= {"utf8", "nul", "columns", "empty", "long", "bom", "line-end", "duplicate"}
    assert len(problems) == len(set(problems)), "each line is named once for each reason"
    assert set(problems) == expected
    assert seconds < SECONDS
    # Training stops at the first error, warnings let through; told to skip, it leaves out exactly the errors.
    errors = {line for line, code in expected if code not in ("line-end", "duplicate", "invisible", "quote")}
    with pytest.raises(SeqloomError, match=rf"broken\.tsv:{min(errors)}: "):
        prepare_pairs(PrepareRequest([str(file)], 0.0, DataOptions(), seed=1, cache=tmp_path))
    data = prepare_pairs(PrepareRequest([str(file)], 0.0, DataOptions(skip_bad=True), seed=1, cache=tmp_path))
    assert len(data.train) == LINES - len(errors)
    assert data.facts["skipped"]["count"] == len(errors)


def test_every_broken_line_of_a_csv_and_no_other(tmp_path):
    def good(draw: random.Random, source: str, target: str) -> bytes:
        if draw.random() < 0.1:
            target = draw.choice([f'"{target}, ""quoted"""', f'"{target},"', f'"{target}"'])
        return f"{source},{target}\n".encode()

    content, expected = make(good, CSV_WAYS)
    file = tmp_path / "broken.csv"
    file.write_bytes(content)
    problems, seconds = found([str(file)])
    assert sorted(problems) == sorted(expected)
    assert seconds < SECONDS


def test_every_broken_line_of_parallel_files_and_no_other(tmp_path):
    ways: list[Way] = [
        ("utf8", lambda draw, s, t: t.encode() + b"\xff\n"),
        ("nul", lambda draw, s, t: f"{t}\0\n".encode()),
        ("empty", lambda draw, s, t: draw.choice([b"\n", b"  \n", b"\t\n"])),
        ("long", lambda draw, s, t: t.encode() * (LONG // len(t)) + b"\n"),
        ("bom", lambda draw, s, t: f"\ufeff{t}\n".encode()),
        ("line-end", lambda draw, s, t: f"{t}\r\n".encode()),
        ("invisible", lambda draw, s, t: f"{t}\u200b\n".encode()),
    ]
    content, expected = make(lambda draw, s, t: f"{t}\n".encode(), ways)
    left, right = tmp_path / "a.en", tmp_path / "a.de"
    right.write_bytes(content)
    duplicates = {line for line, code in expected if code == "duplicate"}
    lines = content.split(b"\n")
    first = {raw: line for line, raw in reversed(list(enumerate(lines, 1)))}
    sources = [f"{first[lines[line - 1]] if line in duplicates else line}\n" for line in range(1, LINES + 1)]
    left.write_text("".join(sources) + "one more\nand more\n")
    problems, seconds = found([str(left), str(right)])
    assert sorted(problems) == sorted(expected | {(LINES + 1, "pairs")})
    assert seconds < SECONDS
