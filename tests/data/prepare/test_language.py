"""From text to numbers: protocols, what is held out, the cache."""

from __future__ import annotations

import numpy as np
import pytest

from seqloom.data.batches.language import StreamOptions
from seqloom.data.prepare.language import encode_files, line_hash, line_hashes, prepare_language
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.splits.split import Fold
from seqloom.data.tokenizers.tokenizers import BOS, EOS
from seqloom.errors import SeqloomError


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("".join(f"line {n} has words\n" for n in range(100)))
    return file


def test_words_end_their_lines_with_eos(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(" a b \n\n c <eos> a")
    found = prepare_language(PrepareRequest([str(file)], 0.0, StreamOptions(tokens="words"), seed=1))
    a, b, c, literal = (found.codec.token_id(word) for word in ("a", "b", "c", "<eos>"))
    assert found.train.ids.tolist() == [a, b, EOS, EOS, c, literal, a, EOS]
    assert literal > EOS
    assert found.valid is None


@pytest.mark.parametrize("tokens", ["chars", "bytes", "bpe:300"])
def test_running_text_is_whole(tokens, text, tmp_path):
    second = tmp_path / "more.txt"
    second.write_text("é字 no line end")
    found = prepare_language(PrepareRequest([str(second), str(text)], 0.0, StreamOptions(tokens=tokens), seed=1))
    assert found.codec.decode(found.train.ids.tolist()) == f"é字 no line end\n{text.read_text()}"


def test_the_last_share_is_held_out_and_said(text):
    found = prepare_language(PrepareRequest([str(text)], 0.1, StreamOptions(), seed=1))
    whole, cut = text.read_text(), int(0.9 * len(text.read_text()))
    assert found.codec.decode(found.train.ids.tolist()) == whole[:cut]
    assert found.codec.decode(found.valid.ids.tolist()) == whole[cut:]
    assert "for validation, the last of the text" in found.notes[0]


def test_words_are_not_cut_in_two_and_folds_cover_the_text(text):
    held = []
    for number in range(1, 5):
        found = prepare_language(
            PrepareRequest([str(text)], Fold(number, 4), StreamOptions(tokens="words", min_count=1), seed=1)
        )
        assert len(found.train.ids) + len(found.valid.ids) == 500
        held.append(found.codec.decode(found.valid.ids.tolist()))
    words = text.read_text().split()
    assert sum(len(part.split()) for part in held) == len(words)


def test_the_vocabulary_is_of_the_training_text(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("a" * 90 + "b" * 10)
    found = prepare_language(PrepareRequest([str(file)], 0.1, StreamOptions(), seed=1))
    assert found.codec.tokens == ["a"]
    assert "10 of 10 tokens for validation are unknown" in found.notes


def test_lines_stand_between_bos_and_eos_and_long_ones_are_cut(tmp_path):
    file = tmp_path / "names.txt"
    file.write_text("ab\n\nabcdef\nb")
    found = prepare_language(PrepareRequest([str(file)], 0.0, StreamOptions(batches="lines", length=4), seed=1))
    rows = np.split(found.train.ids, found.train.offsets[1:-1])
    a, b, c, d = (found.codec.token_id(letter) for letter in "abcd")
    assert [row.tolist() for row in rows] == [[BOS, a, b, EOS], [BOS, a, b, c, d], [BOS, b, EOS]]
    assert any("1 lines cut to 4 tokens" in note for note in found.notes)


def test_lines_are_held_out_by_their_text(tmp_path):
    one, other = tmp_path / "one.txt", tmp_path / "other.txt"
    lines = [f"name {n}" for n in range(400)]
    one.write_text("\n".join(lines))
    other.write_text("\n".join([*lines[::-1], *lines[:50]]))
    held = []
    for file in (one, other):
        found = prepare_language(PrepareRequest([str(file)], 0.1, StreamOptions(batches="lines"), seed=1))
        rows = np.split(found.valid.ids, found.valid.offsets[1:-1])
        held.append({found.codec.decode(row.tolist()) for row in rows})
        assert "by a hash" in found.notes[0]
    assert held[0] == held[1]
    assert 15 < len(held[0]) < 70


def test_labels_stand_in_the_place_of_bos(tmp_path):
    file = tmp_path / "names.tsv"
    file.write_text("French\tDupont\nDutch\tJansen\nFrench\tMartin\n")
    found = prepare_language(PrepareRequest([str(file)], 0.0, StreamOptions(condition=True), seed=1))
    assert found.labels == ["Dutch", "French"]
    first = found.train.ids[found.train.offsets[:-1]].tolist()
    size = found.codec.size
    assert first == [size + 1, size, size + 1]
    turned = tmp_path / "turned.csv"
    turned.write_text("name,language\nDupont,French\nJansen,Dutch\nMartin,French\n")
    again = prepare_language(
        PrepareRequest([str(turned)], 0.0, StreamOptions(condition=True, columns="language,name"), seed=1)
    )
    assert again.train.ids.tolist() == found.train.ids.tolist()
    kept, notes = encode_files([str(file)], StreamOptions(condition=True), found.codec, ["French"])
    assert kept.ids[kept.offsets[:-1]].tolist() == [size, BOS, size]
    assert notes == ["1 of 3 lines have a label that the model lacks: 'Dutch'"]


def test_a_label_that_the_model_lacks_is_named(tmp_path):
    names, others = tmp_path / "names.tsv", tmp_path / "others.tsv"
    names.write_text("French\tDupont\nDutch\tJansen\n")
    others.write_text("Dutch\tSmit\nWelsh\tLloyd\n")
    options = StreamOptions(condition=True)
    found = prepare_language(PrepareRequest([str(names)], [str(others)], options, seed=1))
    assert "1 of 2 lines for validation have a label that the model lacks: 'Welsh'" in found.notes
    with pytest.raises(SeqloomError, match=r"others.tsv: .* has no label 'Welsh'; choose from: Dutch, French"):
        prepare_language(PrepareRequest([str(others)], 0.0, options, seed=1, vocabularies=found.vocabularies()))
    plain = prepare_language(PrepareRequest([str(names)], 0.0, StreamOptions(batches="lines"), seed=1))
    with pytest.raises(SeqloomError, match=r"names.tsv: .* has no label 'Dutch'; it was trained without labels"):
        prepare_language(PrepareRequest([str(names)], 0.0, options, seed=1, vocabularies=plain.vocabularies()))
    assert (
        prepare_language(
            PrepareRequest([str(names)], [str(others)], options, seed=1, vocabularies=found.vocabularies())
        ).labels
        == found.labels
    )


def test_limit_counts_lines(text):
    found = prepare_language(PrepareRequest([str(text)], 0.0, StreamOptions(tokens="words", limit=3), seed=1))
    assert len(found.train.ids) == 15
    assert "only the first 3 lines" in found.notes[0]


def test_the_second_time_comes_from_the_cache(text, tmp_path, monkeypatch):
    import seqloom.data.prepare.language as running

    first = prepare_language(PrepareRequest([str(text)], 0.1, StreamOptions(), seed=1, cache=tmp_path / "cache"))
    monkeypatch.setattr(running, "_build", None)
    other = prepare_language(
        PrepareRequest([str(text)], 0.1, StreamOptions(length=9, batches="blocks"), seed=2, cache=tmp_path / "cache")
    )
    assert np.array_equal(first.train.ids, other.train.ids)
    assert other.train.length == 9
    with pytest.raises(TypeError):
        prepare_language(PrepareRequest([str(text)], 0.2, StreamOptions(), seed=1, cache=tmp_path / "cache"))


def test_numbers_of_another_run_are_used_as_they_are(text, tmp_path):
    first = prepare_language(PrepareRequest([str(text)], 0.0, StreamOptions(), seed=1))
    other = tmp_path / "other.txt"
    other.write_text("words\nxyz\n")
    again = prepare_language(
        PrepareRequest([str(other)], 0.0, StreamOptions(), seed=1, vocabularies=first.vocabularies())
    )
    assert again.codec.tokens == first.codec.tokens
    stream, _ = encode_files([str(other)], StreamOptions(), first.codec, [])
    assert stream.ids.tolist() == again.train.ids.tolist()


def test_lines_can_be_recognised(tmp_path):
    file = tmp_path / "names.txt"
    file.write_text("ab\nba\n")
    found = prepare_language(PrepareRequest([str(file)], 0.0, StreamOptions(batches="lines"), seed=1))
    import base64

    hashes = base64.b64decode(line_hashes(found.train))
    assert line_hash(found.codec.encode("ab")) in hashes
    assert line_hash(found.codec.encode("aa")) not in hashes


def test_nothing_to_train_on_is_said(tmp_path):
    file = tmp_path / "empty.txt"
    file.touch()
    with pytest.raises(SeqloomError, match=r"empty.txt: holds no text"):
        prepare_language(PrepareRequest([str(file)], 0.0, StreamOptions(), seed=1))
    file.write_text("a")
    text = tmp_path / "text.txt"
    text.write_text("a text")
    for train, valid in ((file, 0.0), (text, [str(file)])):
        with pytest.raises(SeqloomError, match=r"empty.txt: the text is too short"):
            prepare_language(PrepareRequest([str(train)], valid, StreamOptions(), seed=1))
    with pytest.raises(SeqloomError, match=r"empty.txt: the text is too short"):
        encode_files(
            [str(file)],
            StreamOptions(),
            prepare_language(PrepareRequest([str(text)], 0.0, StreamOptions(), seed=1)).codec,
            [],
        )
    with pytest.raises(SeqloomError, match="no such file"):
        prepare_language(PrepareRequest([str(tmp_path / "missing.txt")], 0.0, StreamOptions(), seed=1))
