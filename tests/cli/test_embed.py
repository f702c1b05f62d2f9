"""seqloom embed: vectors in three forms, neighbours, recall, and wrong inputs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.cli.conftest import one_line

TEXTS = ["abc", "abca", "ddd", "", "ddde"]


@pytest.fixture
def texts(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("".join(f"{text}\n" for text in TEXTS))
    return file


def test_vectors_come_in_three_forms(seqloom, run, texts, tmp_path):
    for ending in ("npy", "tsv", "jsonl"):
        assert seqloom("embed", run, texts, "-o", tmp_path / f"v.{ending}")[0] == 0
    table = np.load(tmp_path / "v.npy")
    assert table.shape == (5, 128)
    assert table.dtype == np.float32
    assert np.allclose(np.loadtxt(tmp_path / "v.tsv", delimiter="\t"), table, rtol=1e-4, atol=1e-6)
    lines = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert [line["text"] for line in lines] == TEXTS
    assert np.allclose([line["vector"] for line in lines], table, rtol=1e-4, atol=1e-6)
    seqloom("embed", run, texts, "-o", tmp_path / "s.npy", "--way", "summary")
    assert not np.allclose(np.load(tmp_path / "s.npy"), table)


def test_the_nearest_lines(seqloom, run, texts, tmp_path):
    status, out, _ = seqloom("embed", run, texts, "--nearest", 1)
    assert status == 0
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[0] for row in rows] == ["1", "2", "3", "4", "5"]
    assert (rows[0][2:], rows[2][2:]) == (["2", "abca"], ["5", "ddde"])
    assert float(rows[0][1]) > 0.7
    others = tmp_path / "others.txt"
    others.write_text("ddd\nabc\n")
    _, out, _ = seqloom("embed", run, texts, "--nearest", 2, "--among", others)
    assert out.splitlines()[0] == "1\t1.0000\t2\tabc"
    seqloom("embed", run, texts, "--nearest", 2, "--among", others, "-o", tmp_path / "near.jsonl")
    first = json.loads((tmp_path / "near.jsonl").read_text().splitlines()[0])
    assert first["text"] == "abc"
    assert first["nearest"][0] == {"line": 2, "cosine": 1.0, "text": "abc"}


def test_pairs_find_each_other(seqloom, run, tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{text}\t{text}\n" for text in ("abc", "ddd", "abe", "cad")))
    status, out, _ = seqloom("embed", run, file, "--pairs")
    assert status == 0
    assert out.split() == ["4", "pairs", "recall@1", "100.00", "recall@10", "100.00"]


def test_files_as_spreadsheets_write_them(seqloom, run, tmp_path):
    file = tmp_path / "texts.csv"
    file.write_text("text;label\nabc;á\nddd;á\nabca;á\n", "utf-16")
    status, out, err = seqloom("embed", run, file, "--nearest", 1)
    assert (status, len(out.splitlines())) == (0, 3)
    assert "read as UTF-16" in err
    assert "the first line (text,label) is taken as a header; --no-header" in err
    assert len(seqloom("embed", run, file, "--nearest", 1, "--no-header")[1].splitlines()) == 4
    bars = tmp_path / "bars.txt"
    bars.write_text("abc|é\nddd|é\n", "cp1252")
    asked = ("--nearest", 1, "--delimiter", "bar", "--encoding", "latin-1")
    assert seqloom("embed", run, bars, *asked)[1].splitlines()[0].endswith("\t2\tddd")


def test_wrong_inputs(seqloom, run, texts, tmp_path):
    one_line(seqloom("embed", run, texts), "--nearest 5 or --pairs")
    one_line(seqloom("embed", run, texts, "-o", "v.txt"), ".npy or .tsv or .jsonl")
    one_line(seqloom("embed", run, texts, "--among", texts), "--nearest 5")
    one_line(seqloom("embed", run, texts, "--pairs", "--nearest", 2), "leave --nearest and --output out")
    one_line(seqloom("embed", run, texts, "--nearest", 0), "at least 1, here 0")
    one_line(seqloom("embed", run, texts, "--nearest", 2, "-o", tmp_path / "n.npy"), ".tsv or .jsonl")
    one_line(seqloom("embed", run, texts, "--nearest", 2, "--way", "men"), "did you mean 'mean'")
    one_line(seqloom("embed", run, tmp_path / "no.txt", "--nearest", 2), "no such file")
    one_line(seqloom("embed", tmp_path / "none", texts, "--nearest", 2), "no such run")
    one_line(seqloom("embed", run, texts, "--pairs"), "no second file")
