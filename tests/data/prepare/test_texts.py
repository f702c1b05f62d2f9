"""Texts of one side: what is read, held out, cut and kept."""

from __future__ import annotations

import json

import numpy as np
import pytest

from seqloom.data.batches.chunks import split_long_rows
from seqloom.data.encoding.encode import Rows
from seqloom.data.files.columns import ReadOptions
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.prepare.texts import PlainTextOptions, prepare_texts, read_texts
from seqloom.data.splits.split import Fold
from seqloom.data.tokenizers.tokenizers import EOS
from seqloom.errors import SeqloomError


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def rows_of(found, part):
    return [found.codec.decode(part.padded(np.array([row])).tokens[0].tolist()) for row in range(len(part))]


def test_long_texts_become_pieces_of_like_length():
    rows = split_long_rows(Rows(np.arange(23), np.array([10, 0, 3, 10])), 4)
    assert rows.lengths.tolist() == [4, 3, 3, 3, 4, 3, 3]
    assert rows.ids.tolist() == list(range(23))
    assert split_long_rows(Rows(np.arange(3), np.array([0, 3])), None).lengths.tolist() == [3]


def test_nothing_of_a_text_is_lost(tmp_path):
    lines = [" ".join(f"w{i}" for i in range(n)) for n in (1, 7, 30)]
    found = prepare_texts(
        PrepareRequest([write(tmp_path / "a.txt", lines)], 0.0, PlainTextOptions(max_length=7), seed=1)
    )
    assert " ".join(rows_of(found, found.train)).split() == " ".join(lines).split()
    assert max(found.train.lengths) == 8
    assert all(found.train.ids[end - 1] == EOS for end in found.train.offsets[1:])
    assert "3 texts are cut into 7 pieces of at most 7 tokens" in found.notes
    assert found.valid is None
    assert found.validation_examples() == []


@pytest.mark.parametrize("tokens", ["words", "chars", "bytes", "bpe:270"])
def test_texts_survive_every_kind_of_tokens(tmp_path, tokens):
    lines = ["the cat sat", "the dog sät", "a cat sat"]
    found = prepare_texts(
        PrepareRequest([write(tmp_path / "a.txt", lines)], 0.0, PlainTextOptions(tokens=tokens), seed=1)
    )
    assert rows_of(found, found.train) == lines


def test_the_same_text_is_never_on_both_sides_and_folds_share_all_out(tmp_path):
    lines = [f"text {n % 50}" for n in range(200)]
    file = write(tmp_path / "a.txt", lines)
    held = []
    for number in (1, 2, 3):
        found = prepare_texts(PrepareRequest([file], Fold(number, 3), PlainTextOptions(), seed=1))
        train, valid = set(rows_of(found, found.train)), {one.source for one in found.validation_examples()}
        assert valid
        assert not train & valid
        held += [one.line for one in found.validation_examples()]
    assert sorted(held) == list(range(1, 201))


def test_held_out_texts_may_hold_any_line_end_but_one(tmp_path):
    texts = ["a\u2028b", "c\x85d", "e\x0bf"]
    found = prepare_texts(
        PrepareRequest(
            [write(tmp_path / "a.txt", ["z"])], [write(tmp_path / "b.txt", texts)], PlainTextOptions(), seed=1
        )
    )
    assert [example.source for example in found.validation_examples()] == texts


def test_held_out_tokens_name_nothing_in_the_vocabulary(tmp_path):
    train, valid = write(tmp_path / "a.txt", ["a b c"]), write(tmp_path / "b.txt", ["a x", "", "y"])
    found = prepare_texts(PrepareRequest([train], [valid], PlainTextOptions(), seed=1))
    assert found.codec.tokens == ["a", "b", "c"]
    assert rows_of(found, found.valid) == ["a <unk>", "<unk>"]
    assert [(one.source, one.file, one.line) for one in found.validation_examples()] == [
        ("a x", valid, 1),
        ("y", valid, 3),
    ]
    assert found.facts["valid"]["source"]["unknown_tokens"] == 2


def test_a_kept_vocabulary_is_used_as_it_is(tmp_path):
    one = prepare_texts(PrepareRequest([write(tmp_path / "a.txt", ["a b c"])], 0.0, PlainTextOptions(), seed=1))
    other = prepare_texts(
        PrepareRequest(
            [write(tmp_path / "b.txt", ["c d"])], 0.0, PlainTextOptions(), seed=1, vocabularies=one.vocabularies()
        )
    )
    assert other.codec.tokens == one.codec.tokens
    assert rows_of(other, other.train) == ["c <unk>"]


def test_the_text_column_of_labelled_files(tmp_path):
    table = write(tmp_path / "a.tsv", ["good film\tpositive", "bad film\tnegative"])
    assert prepare_texts(PrepareRequest([table], 0.0, PlainTextOptions(), seed=1)).codec.tokens == [
        "film",
        "bad",
        "good",
    ]
    named = write(tmp_path / "b.csv", ["label,text", 'positive,"good, really"'])
    found = prepare_texts(PrepareRequest([named], 0.0, PlainTextOptions(columns="text"), seed=1))
    assert rows_of(found, found.train) == ["good, really"]
    keys = write(tmp_path / "c.jsonl", [json.dumps({"text": "a b", "label": 1})])
    assert rows_of(
        found := prepare_texts(PrepareRequest([keys], 0.0, PlainTextOptions(columns="text"), seed=1)), found.train
    ) == ["a b"]


def test_broken_lines_are_named_or_skipped(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntwo\n\xff\xfe\nthree\n")
    with pytest.raises(SeqloomError, match=r"a\.txt:3: not UTF-8"):
        prepare_texts(PrepareRequest([str(path)], 0.0, PlainTextOptions(), seed=1))
    found = prepare_texts(PrepareRequest([str(path)], 0.0, PlainTextOptions(skip_bad=True), seed=1))
    assert rows_of(found, found.train) == ["one", "two", "three"]
    assert any("left out 1 broken line" in note for note in found.notes)
    path.write_bytes(b"one\n\xff\n\xff\n")
    with pytest.raises(SeqloomError, match="more than half"):
        prepare_texts(PrepareRequest([str(path)], 0.0, PlainTextOptions(skip_bad=True), seed=1))


def test_the_limit_counts_all_training_files(tmp_path):
    one, other = write(tmp_path / "a.txt", "abc"), write(tmp_path / "b.txt", "def")
    found = prepare_texts(PrepareRequest([one, other], 0.0, PlainTextOptions(limit=4), seed=1))
    assert rows_of(found, found.train) == list("abcd")


def test_nothing_to_train_on(tmp_path):
    with pytest.raises(SeqloomError, match=r"a\.txt: holds no text"):
        prepare_texts(PrepareRequest([write(tmp_path / "a.txt", ["", "  "])], 0.0, PlainTextOptions(), seed=1))
    with pytest.raises(SeqloomError, match=r"nowhere\.txt: no such file"):
        prepare_texts(PrepareRequest([str(tmp_path / "nowhere.txt")], 0.0, PlainTextOptions(), seed=1))


def test_the_cache_is_used_again_and_mended(tmp_path):
    file = write(tmp_path / "a.txt", ["a b", "c"])
    first = prepare_texts(PrepareRequest([file], 0.0, PlainTextOptions(), seed=1, cache=tmp_path / "cache"))
    [folder] = (tmp_path / "cache").iterdir()
    written = (folder / "train_ids.npy").stat().st_mtime_ns
    assert prepare_texts(
        PrepareRequest([file], 0.0, PlainTextOptions(), seed=2, cache=tmp_path / "cache")
    ).train.fingerprint
    assert (folder / "train_ids.npy").stat().st_mtime_ns == written
    (folder / "train_ids.npy").write_bytes(b"")
    again = prepare_texts(PrepareRequest([file], 0.0, PlainTextOptions(), seed=1, cache=tmp_path / "cache"))
    assert rows_of(again, again.train) == ["a b", "c"]
    assert again.train.fingerprint == first.train.fingerprint
    assert (
        prepare_texts(PrepareRequest([file], 0.0, PlainTextOptions(lowercase="casefold"), seed=1)).train.fingerprint
        != first.train.fingerprint
    )


def test_reading_for_an_evaluation(tmp_path):
    file = write(tmp_path / "a.txt", ["a b", "", "c"])
    examples, notes = read_texts([file], ReadOptions())
    assert [(one.source, one.line) for one in examples] == [("a b", 1), ("c", 3)]
    assert notes == []
