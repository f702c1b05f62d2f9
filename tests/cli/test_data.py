"""`seqloom data list`, `get` and `show`, and datasets by name in the other commands."""

from __future__ import annotations

import json

import pytest

from seqloom.data.datasets import catalog


@pytest.fixture(autouse=True)
def no_mirror(monkeypatch):
    monkeypatch.delenv("SEQLOOM_DATA", raising=False)


def refused(result: tuple[int, str, str], *parts: str) -> None:
    status, out, err = result
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert all(part in err for part in parts), err


def test_list(seqloom):
    status, out, _ = seqloom("data", "list")
    rows = out.splitlines()
    assert (status, len(rows)) == (0, 1 + len(catalog.DATASETS))
    assert max(map(len, rows)) <= 100
    found = {row.split()[0]: row for row in rows[1:]}
    assert found["pinyin"].split()[1:] == ["translate", "42,353", "2,335", "2,423", "MIT", "embedded"]
    assert found["imdb"].endswith("by hand")
    assert found["trec"].endswith(("to download", "cached"))
    assert "25,000       -  25,000" in found["imdb"]


def test_list_by_task_and_as_json(seqloom):
    rows = seqloom("data", "list", "--task", "graph")[1].splitlines()
    assert [row.split()[0] for row in rows] == ["name", "cora"]
    facts = json.loads(seqloom("data", "list", "--json")[1])
    assert facts.keys() == catalog.DATASETS.keys()
    assert facts["ud-ewt"]["sizes"] == {"train": 12_544, "valid": 2_001, "test": 2_077}
    assert facts["ud-ewt"]["files"][0]["address"].endswith("/r2.16/en_ewt-ud-train.conllu")
    refused(seqloom("data", "list", "--task", "grahp"), "did you mean 'graph'")


def test_a_missing_package_is_listed(seqloom, monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    rows = seqloom("data", "list")[1].splitlines()
    needs = {
        extra: {row.split()[0] for row in rows if row.endswith(f"needs [{extra}]")}
        for extra in ("demo", "dictionaries")
    }
    assert needs["demo"] == {"cmudict", "pinyin", "pinyin-characters", "pinyin-tags"}
    assert needs["dictionaries"] == {"pinyin-dictionaries", "pinyin-pieces"}


def test_get(seqloom, tmp_path):
    status, out, _ = seqloom("data", "get", "copy", "reverse")
    assert (status, [line.split("/")[-1] for line in out.splitlines()]) == (
        0,
        ["train.tsv", "valid.tsv", "test.tsv"] * 2,
    )
    status, out, _ = seqloom("data", "get", "copy", "--output", tmp_path / "mine")
    assert out.splitlines() == [str(tmp_path / "mine" / f"{split}.tsv") for split in ("train", "valid", "test")]
    assert len((tmp_path / "mine" / "train.tsv").read_text().splitlines()) == 10_000
    refused(seqloom("data", "get", "copy", "--output", tmp_path / "mine"), "train.tsv", "there already")
    seqloom("data", "get", "copy", "reverse", "--output", tmp_path / "both")
    assert {path.name for path in (tmp_path / "both").iterdir()} == {"copy", "reverse"}
    assert "nothing to fetch" in seqloom("data", "get", "adding")[2]
    (tmp_path / "mine" / "train.tsv").rename(tmp_path / "mine" / "kept")
    refused(seqloom("data", "get", "copy", "--output", tmp_path / "mine"), "valid.tsv")
    assert not (tmp_path / "mine" / "train.tsv").exists(), "refused, yet written"


def test_get_says_what_is_wrong(seqloom, tmp_path):
    refused(seqloom("data", "get", "copy", "pinyn"), "unknown dataset 'pinyn'", "did you mean 'pinyin'")
    refused(seqloom("data", "get", "imdb"), "by hand", "$SEQLOOM_DATA/imdb/train.tsv", "imdb/test.tsv", "stanford.edu")
    (tmp_path / "file").write_text("")
    refused(seqloom("data", "get", "copy", "--output", tmp_path / "file"), "file")


def test_show(seqloom):
    _, out, _ = seqloom("data", "show", "recall", "--count", 2)
    assert "Ba et al. 2016" in out
    assert "train 10,000, valid 1,000, test 1,000" in out
    assert len([line for line in out.splitlines() if line.startswith("  ")]) == 2
    assert "float32[" in seqloom("data", "show", "adding")[1]
    assert "by hand" in seqloom("data", "show", "mnist")[1]


def test_train_evaluate_and_predict_by_name(seqloom, tmp_path):
    run = tmp_path / "run"
    arguments = ["train", "translate", "pinyin", "--output", run, "--size", "tiny", "--device", "cpu"]
    status, _, err = seqloom(*arguments, "--max-steps", 2)
    assert status == 0
    assert "validates on pinyin:valid" in err
    config = (run / "config.yaml").read_text()
    assert "target_tokens: words" in config
    assert "valid: pinyin:valid" in config
    assert seqloom(*arguments, "--max-steps", 3, "--resume", "--quiet")[0] == 0
    result = json.loads(seqloom("evaluate", run, "pinyin", "--json", "--metrics", "exact_match")[1])
    assert result["count"] == 2_423
    some = tmp_path / "some.tsv"
    some.write_text("一不小心\n")
    assert len(seqloom("predict", run, some)[1].splitlines()) == 1
    assert len(seqloom("predict", run, "recall:valid")[1].splitlines()) == 1_000


def test_a_share_or_file_of_the_user_wins_over_the_datasets_valid_split(seqloom, tmp_path):
    small = ["--size", "tiny", "--device", "cpu", "--max-steps", 1]
    err = seqloom("train", "translate", "recall", "--valid", "3%", "-o", tmp_path / "run", *small)[2]
    assert "validates on" not in err
    assert "held out" in err


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("pinyn", ["no such file", "did you mean 'pinyin'"]),
        ("imdb", ["task classify, not for translate"]),
        ("pinyin:tset", ["did you mean 'test'"]),
        ("pinyin.tsv", ["pinyin.tsv: no such file"]),
    ],
)
def test_wrong_names(seqloom, tmp_path, monkeypatch, word, told):
    monkeypatch.chdir(tmp_path)
    refused(seqloom("train", "translate", word, "-o", "x"), *told)
    assert not (tmp_path / "x").exists()
