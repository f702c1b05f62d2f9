"""Preparing data: numbering, holding out, caching."""

from __future__ import annotations

import gzip
import os
import shutil
import tracemalloc

import numpy as np
import pytest

from seqloom.data.prepare import pairs as module
from seqloom.data.prepare.pairs import DataOptions, prepare_pairs
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.splits.split import Split
from seqloom.data.tokenizers.tokenizers import BOS, EOS, UNK
from seqloom.errors import SeqloomError
from seqloom.files import default_cache


@pytest.fixture
def put(tmp_path):
    def write(name: str, content: str) -> str:
        raw = content.encode()
        (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return str(tmp_path / name)

    return write


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def builds(monkeypatch):
    """Counts how often a corpus is really built."""
    calls = []
    real = module._build
    monkeypatch.setattr(module, "_build", lambda *given: (calls.append(given), real(*given))[1])
    return calls


def many(n: int = 400) -> str:
    return "".join(f"word {i % 300}\t{i} out\n" for i in range(n))


def test_rows_and_batches(put, cache):
    data = prepare_pairs(
        PrepareRequest(
            [put("a.tsv", "ba\tX Y\nb\tY\tZ Y\naaa\tX\n")], 0.0, DataOptions(target_tokens="words"), seed=0, cache=cache
        )
    )
    assert data.valid is None
    assert data.notes == ["1 of the pairs come from further columns or references of a line"]
    assert len(data.train) == 4, "two references give two rows"
    assert data.source.tokens == ["a", "b"]
    assert data.target.tokens == ["Y", "X", "Z"]
    assert data.train.source_lengths.tolist() == [3, 2, 2, 4]
    assert data.train.target_lengths.tolist() == [4, 3, 4, 3]
    batch = data.train.batch(np.array([3, 0, 2]))
    a, b = data.source.encode("ab")
    assert batch.rows == (3, 0, 2)
    assert batch.source.tokens.tolist() == [[a, a, a, EOS], [b, a, EOS, 0], [b, EOS, 0, 0]]
    assert batch.source.host == (4, 3, 2)
    y, x, z = data.target.encode("Y X Z")
    assert batch.target.tokens.tolist() == [[BOS, x, EOS, 0], [BOS, x, y, EOS], [BOS, z, y, EOS]]
    assert batch.index.tolist() == [0, 1, 3, 4, 5, 6, 7, 8]
    with pytest.raises(IndexError):
        data.train.batch(np.array([4]))
    with pytest.raises(IndexError):
        data.train.batch(np.array([-1]))
    assert data.train.batch(np.array([], dtype=np.int64)).rows == ()


def test_every_row_survives_large_buffers(put, cache, monkeypatch):
    monkeypatch.setattr("seqloom.data.encoding.mmap_store._CHUNK", 50)
    data = prepare_pairs(PrepareRequest([put("a.tsv", many())], 0.0, DataOptions(), seed=0, cache=cache))
    batch = data.train.batch(np.arange(400))
    texts = [data.target.decode(row.tolist()) for row in batch.target.tokens]
    assert texts == [f"{i} out" for i in range(400)]


@pytest.mark.parametrize(("end", "source", "target"), [("tail", "abc", "xyz"), ("head", "bcd", "zvw")])
def test_cut(put, cache, end, source, target):
    options = DataOptions(max_length=3, truncate=end)
    data = prepare_pairs(
        PrepareRequest(
            [put("a.tsv", "abcd\txyzvw\nab\tx\n")], [put("v.tsv", "abcd\tx\n")], options, seed=0, cache=cache
        )
    )
    batch = data.train.batch(np.arange(2))
    assert data.source.decode(batch.source.tokens[0].tolist()) == source
    assert data.target.decode(batch.target.tokens[0].tolist()) == target
    assert batch.target.tokens[0, [0, -1]].tolist() == [BOS, EOS], "specials are not cut"
    assert data.notes[1:] == [f"2 pairs cut to 3 tokens (the {end} was dropped)"]


def test_validation_files_use_the_training_vocabulary(put, cache):
    train, valid = put("a.tsv", "ab\tx\n"), put("v.tsv.gz", "abc\ty\nb\tx\n")
    data = prepare_pairs(PrepareRequest([train], [valid], DataOptions(), seed=0, cache=cache))
    assert data.valid is not None
    assert data.source.tokens == ["a", "b"]
    assert data.valid.batch(np.array([0])).source.tokens.tolist() == [[4, 5, UNK, EOS]]
    assert data.notes == [
        "1 of 4 source tokens for validation (25.00%) are unknown",
        "1 of 2 target tokens for validation (50.00%) are unknown",
    ]
    assert [(e.source, e.line) for e in data.validation_examples()] == [("abc", 1), ("b", 2)]


def held_out(data) -> set[str]:
    return {example.source for example in data.validation_examples()}


def test_split_by_source(put, cache):
    data = prepare_pairs(PrepareRequest([put("a.tsv", many())], 0.2, DataOptions(), seed=5, cache=cache))
    assert data.valid is not None
    sources = {data.source.decode(row.tolist()) for row in data.train.batch(np.arange(len(data.train))).source.tokens}
    held = held_out(data)
    assert not sources & held, "no source stands on both sides"
    assert len(sources | held) == 300
    assert len(data.train) + len(data.valid) == 400
    assert len(data.validation_examples()) == len(data.valid)
    assert 0.1 < len(held) / 300 < 0.3
    share = len(data.valid) / 400
    assert data.notes[0] == f"held out {len(data.valid):,} of 400 pairs ({share:.1%}) by source for validation"


def test_split_is_stable(put, cache):
    lines = many().splitlines(keepends=True)
    held = held_out(
        prepare_pairs(PrepareRequest([put("a.tsv", "".join(lines))], 0.2, DataOptions(), seed=5, cache=cache))
    )
    assert (
        held_out(
            prepare_pairs(
                PrepareRequest([put("b.tsv", "".join(reversed(lines)))], 0.2, DataOptions(), seed=5, cache=cache)
            )
        )
        == held
    )
    more = "".join(lines) + "".join(f"new {i}\tx\n" for i in range(50))
    assert {
        s
        for s in held_out(prepare_pairs(PrepareRequest([put("c.tsv", more)], 0.2, DataOptions(), seed=5, cache=cache)))
        if "new" not in s
    } == held
    assert (
        held_out(prepare_pairs(PrepareRequest([put("a.tsv", "".join(lines))], 0.2, DataOptions(), seed=6, cache=cache)))
        != held
    )


def test_split_sees_through_case_and_blanks(put, cache):
    lines = "".join(f"Word {i}\tx\nword  {i}\ty\n" for i in range(100))
    held = held_out(
        prepare_pairs(
            PrepareRequest([put("a.tsv", lines)], 0.5, DataOptions(lowercase="casefold"), seed=1, cache=cache)
        )
    )
    assert held
    assert len(held) == 2 * len({" ".join(source.casefold().split()) for source in held})


def test_few_different_sources_are_named_as_the_reason(put, cache):
    file = put("a.tsv", "".join(f"w{i % 3}\tx{i % 3}\n" for i in range(150)))
    data = prepare_pairs(PrepareRequest([file], 0.05, DataOptions(split_version=2), seed=1, cache=cache))
    assert data.valid is None
    assert "no pair was held out: for 5.0% of 150 too few of them are different" in data.notes[0]


def test_split_that_leaves_one_side_empty(put, cache):
    file = put("a.tsv", "a\tx\na\ty\n")
    number = Split.of([file], 0.5, seed=0)._number
    seeds = {number("a", str(seed).encode()) < 2**63: seed for seed in range(20)}
    data = prepare_pairs(PrepareRequest([file], 0.5, DataOptions(), seed=seeds[False], cache=cache))
    assert data.valid is None
    assert data.notes == ["no pair was held out: 50.0% of 2 is too little; give a larger share or a file"]
    with pytest.raises(SeqloomError, match="all 2 pairs were held out for validation"):
        prepare_pairs(PrepareRequest([file], 0.5, DataOptions(), seed=seeds[True], cache=cache))


def test_cache_hit(put, cache, builds):
    file = put("a.tsv", many())
    first = prepare_pairs(PrepareRequest([file], 0.1, DataOptions(), seed=1, cache=cache))
    again = prepare_pairs(PrepareRequest([put("renamed.tsv", many())], 0.1, DataOptions(), seed=1, cache=cache))
    assert len(builds) == 1, "the same contents under another name"
    assert first.train.fingerprint == again.train.fingerprint
    assert again.notes == first.notes
    assert again.source.to_json() == first.source.to_json()
    rows = np.arange(20)
    assert again.train.batch(rows).target.tokens.equal(first.train.batch(rows).target.tokens)
    assert held_out(again) == held_out(first)


def test_whatever_changes_the_numbers_changes_the_cache(put, cache, builds):
    file = put("a.tsv", many())
    calls = [
        lambda: prepare_pairs(PrepareRequest([file], 0.1, DataOptions(), seed=1, cache=cache)),
        lambda: prepare_pairs(PrepareRequest([file], 0.1, DataOptions(), seed=2, cache=cache)),
        lambda: prepare_pairs(PrepareRequest([file], 0.2, DataOptions(), seed=1, cache=cache)),
        lambda: prepare_pairs(PrepareRequest([file], 0.1, DataOptions(lowercase="casefold"), seed=1, cache=cache)),
        lambda: prepare_pairs(PrepareRequest([file], 0.1, DataOptions(target_tokens="bpe:300"), seed=1, cache=cache)),
        lambda: prepare_pairs(PrepareRequest([file], [file], DataOptions(), seed=1, cache=cache)),
        lambda: prepare_pairs(
            PrepareRequest([put("b.tsv", many() + "new\tx\n")], 0.1, DataOptions(), seed=1, cache=cache)
        ),
    ]
    prints = [call().train.fingerprint for call in calls]
    assert len(set(prints)) == len(builds) == len(calls)
    prepare_pairs(PrepareRequest([file], [file], DataOptions(), seed=9, cache=cache))
    assert len(builds) == len(calls), "without a share the seed changes nothing"


@pytest.mark.parametrize("name", ["train_source_ids.npy", "source.json", "meta.json", "manifest.json"])
@pytest.mark.parametrize("harm", ["remove", "truncate", "change"])
def test_damaged_cache_is_rebuilt(put, cache, builds, name, harm):
    file = put("a.tsv", many(50))
    good = prepare_pairs(PrepareRequest([file], 0.0, DataOptions(), seed=1, cache=cache))
    expected = good.train.batch(np.arange(50)).source.tokens.clone()
    [folder] = cache.iterdir()
    raw = (folder / name).read_bytes()
    if harm == "remove":
        (folder / name).unlink()
    elif harm == "truncate":
        (folder / name).write_bytes(raw[:-5])
    elif name.endswith(".npy"):
        pytest.skip("large files are checked by size only")
    else:
        (folder / name).write_bytes(b"[" + raw[1:])
    again = prepare_pairs(PrepareRequest([file], 0.0, DataOptions(), seed=1, cache=cache))
    assert len(builds) == 2
    assert again.train.batch(np.arange(50)).source.tokens.equal(expected)


def test_a_broken_line_leaves_no_cache(put, cache):
    with pytest.raises(SeqloomError, match=r"a\.tsv:401: no TAB"):
        prepare_pairs(PrepareRequest([put("a.tsv", many() + "broken\n")], 0.1, DataOptions(), seed=1, cache=cache))
    assert list(cache.iterdir()) == []


def test_cache_that_cannot_be_written(put, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SeqloomError, match=r"the cache of data cannot be written: .*; set \$SEQLOOM_CACHE") as caught:
        prepare_pairs(PrepareRequest([put("a.tsv", "a\tx\n")], 0.0, DataOptions(), seed=1, cache=tmp_path / "file"))
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk(put, cache, monkeypatch):
    real = module.PairWriter

    def on_a_full_disk(folder, name):
        writer = real(folder, name)
        writer._source._ids._file.close()
        writer._source._ids._file = open("/dev/full", "wb")  # noqa: SIM115
        return writer

    monkeypatch.setattr(module, "PairWriter", on_a_full_disk)
    with pytest.raises(SeqloomError, match="could not be written: No space left on device"):
        prepare_pairs(PrepareRequest([put("a.tsv", many(5000))], 0.0, DataOptions(), seed=1, cache=cache))
    assert list(cache.iterdir()) == []


def test_default_cache(put, tmp_path, monkeypatch):
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path / "mine"))
    prepare_pairs(PrepareRequest([put("a.tsv", "a\tx\n")], 0.0, DataOptions(), seed=1))
    assert len(list((tmp_path / "mine").iterdir())) == 1
    monkeypatch.delenv("SEQLOOM_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_cache() == tmp_path / "home" / ".cache" / "seqloom"


def test_nothing_to_train_on(put, cache):
    with pytest.raises(SeqloomError, match=r"a\.tsv: holds no pairs"):
        prepare_pairs(PrepareRequest([put("a.tsv", "")], 0.0, DataOptions(), seed=1, cache=cache))
    with pytest.raises(SeqloomError, match="no training files"):
        prepare_pairs(PrepareRequest([], 0.0, DataOptions(), seed=1, cache=cache))


@pytest.mark.parametrize("share", [-0.1, 1.0, 1.5, float("nan")])
def test_share_out_of_range(put, cache, share):
    with pytest.raises(SeqloomError, match="from 0 to below 1"):
        prepare_pairs(PrepareRequest([put("a.tsv", many())], share, DataOptions(), seed=1, cache=cache))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source_tokens": "wrods"}, "did you mean 'words'"),
        ({"target_tokens": "bpe:abc"}, "bpe needs the size"),
        ({"truncate": "front"}, "unknown value of truncate 'front'"),
        ({"max_vocab": 4}, "max_vocab must be a whole number of 5 or more, not 4"),
        ({"min_count": 0}, "min_count must be a whole number of 1 or more, not 0"),
        ({"max_length": "9"}, "max_length must be a whole number of 1 or more, not '9'"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(SeqloomError, match=message):
        DataOptions(**options)


def test_memory_does_not_grow_with_the_data(put, tmp_path, monkeypatch):
    for size in ("files.lines.BLOCK", "encoding.mmap_store._CHUNK"):
        monkeypatch.setattr(f"seqloom.data.{size}", 1 << 14)

    def peak(n: int) -> int:
        file = put(f"{n}.tsv", many(n))
        tracemalloc.start()
        try:
            prepare_pairs(PrepareRequest([file], 0.1, DataOptions(), seed=1, cache=tmp_path / "cache"))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            shutil.rmtree(tmp_path / "cache")

    peak(10)  # first call pays for imports and tables
    assert peak(16_000) < peak(4_000) + 600_000
