"""Numbered sentences: words and characters, batches and their pieces, splits, and tags that are repaired."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqloom.data.batches.tags import TagOptions
from seqloom.data.batches.words import MAX_CHARACTERS
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.prepare.tags import prepare_tags
from seqloom.data.splits.split import Fold
from seqloom.data.tokenizers.tokenizers import BOS, EOS, UNK
from seqloom.errors import SeqloomError
from tests.tagging import names, sentences, write_tags


@pytest.fixture
def file(tmp_path):
    return str(write_tags(tmp_path / "train.tsv", sentences(200)))


def ready(files, valid=0.0, kept=None, **options):
    return prepare_tags(
        PrepareRequest(
            [files] if isinstance(files, str) else files, valid, TagOptions(**options), seed=7, vocabularies=kept
        )
    )


def test_a_batch_holds_words_characters_and_tags(file):
    data = ready(file)
    batch = data.train.batch(np.array([3, 0, 11]))
    rows = [sentences(200)[row] for row in (3, 0, 11)]
    codec, spelt = data.lexicon.words, data.lexicon.characters
    assert batch.count == sum(map(len, rows)) == data.train.count(np.array([3, 0, 11]))
    for row, sentence in enumerate(rows):
        assert batch.source.tokens.host[row] == len(sentence)
        for place, (word, tag) in enumerate(sentence):
            assert codec.token(int(batch.source.tokens.tokens[row, place])) == word
            assert data.tags.names[batch.tags[row, place]] == tag
            own = batch.source.characters.tokens[batch.source.index[row, place]].tolist()
            assert own[0] == BOS
            assert spelt.decode(own[1 : own.index(EOS)]) == word
    assert len(batch.source.characters.host) == len({word for sentence in rows for word, _ in sentence})


def test_pieces_hold_what_the_batch_holds(file):
    batch = ready(file).train.batch(np.arange(7))
    for n in (1, 2, 3, 7, 9):
        pieces = batch.micro_batches(n)
        assert len(pieces) == min(n, 7)
        assert [row for piece in pieces for row in piece.rows] == list(range(7))
        assert sum(piece.count for piece in pieces) == batch.count
        for piece in pieces:
            for row, number in enumerate(piece.rows):
                length = batch.source.tokens.host[number]
                spelt = [
                    one.source.characters.tokens[one.source.index[at, :length]][:, : min(widths)]
                    for one, at in ((piece, row), (batch, number))
                    for widths in [(piece.source.characters.tokens.size(1), batch.source.characters.tokens.size(1))]
                ]
                assert torch.equal(*spelt)
                assert torch.equal(piece.tags[row, :length], batch.tags[number, :length])
    empty = batch.zero_weight_row()
    assert (empty.rows, empty.count) == ((), 0)
    assert empty.source.tokens.tokens.shape[0] == 1


def test_words_are_folded_but_their_characters_are_not(tmp_path):
    file = write_tags(tmp_path / "x.tsv", [[("The", "D"), ("the", "D")], [("THE", "D"), ("rare", "N")]])
    data = ready(str(file), lowercase="casefold")
    words = data.lexicon.words_of([["The", "the", "THE", "new"]])
    assert len(set(words.tokens.tokens[0, :3].tolist())) == 1
    assert words.tokens.tokens[0, 3] == UNK
    assert len(set(words.index[0].tolist())) == 4
    assert data.rare == data.lexicon.words.size - 1  # `rare` alone was seen once
    assert data.lexicon.words.token(data.rare) == "rare"


def test_rare_words_and_small_vocabularies(file):
    data, small, common = ready(file), ready(file, max_vocab=10), ready(file, min_count=2)
    counts = np.bincount(data.train.numbers, minlength=data.lexicon.words.size)
    assert (counts[data.rare :] == 1).all()
    assert (counts[4 : data.rare] > 1).all()
    assert small.lexicon.words.size == 10
    assert common.rare == common.lexicon.words.size == data.rare
    assert (common.train.numbers == UNK).sum() == data.lexicon.words.size - data.rare


def test_very_long_words_keep_both_ends(file):
    data = ready(file)
    spelt = data.lexicon.spell("t" + 500 * "h" + "o")
    assert len(spelt) == MAX_CHARACTERS + 2
    assert spelt[1] == data.lexicon.spell("t")[1]
    assert spelt[-2] == data.lexicon.spell("o")[1]


def test_shares_and_folds_go_by_the_sentence(file, tmp_path):
    data = ready(file, 0.2)
    assert 20 <= len(data.valid) <= 60
    assert any(note.startswith(f"held out {len(data.valid)} of 200 sentences") for note in data.notes)
    held = {sentence.text for sentence in data.validation_examples()}
    twice = str(write_tags(tmp_path / "twice.tsv", sentences(200)[::-1] * 2))
    assert {sentence.text for sentence in ready(twice, 0.2).validation_examples()} == held
    folds = [{s.text for s in ready(file, Fold(number, 3)).validation_examples()} for number in (1, 2, 3)]
    assert set.union(*folds) == {" ".join(word for word, _ in row) for row in sentences(200)}
    assert not folds[0] & folds[1]


def test_validation_files_and_what_is_said_of_them(file, tmp_path):
    rows = [*sentences(200)[:3], [("neu", "FOREIGN")]]
    data = ready(file, [str(write_tags(tmp_path / "dev.tsv", rows))])
    assert any(note.startswith("3 of 4 validation sentences stand in the training data too") for note in data.notes)
    assert "tags that only the validation data has: FOREIGN" in data.notes
    assert "FOREIGN" in data.tags.names
    assert len(data.validation_examples()) == 4
    with pytest.raises(SeqloomError, match="holds no tagged sentences"):
        ready(file, [str(write_tags(tmp_path / "none.tsv", []))])


def test_broken_tags_are_reported_or_repaired(tmp_path):
    rows = [*names(30), [("x", "O"), ("Lan", "I-PER"), ("Lan", "I-PER")]]
    file = str(write_tags(tmp_path / "x.tsv", rows))
    line = sum(len(row) + 1 for row in rows[:-1]) + 2
    told = next(note for note in ready(file).notes if "break" in note)
    assert (
        told
        == f"1 tags break the scheme BIO, the first at {file}:{line}: I-PER after O; data.repair_tags=true repairs them"
    )
    data = ready(file, repair_tags=True)
    assert "1 tags were repaired: they broke the scheme BIO" in data.notes
    assert data.train.tags.take(np.array([30])).ids.tolist() == [data.tags.numbers[t] for t in ("O", "B-PER", "I-PER")]
    assert data.tags.scheme == "bio"
    iob1 = ready(str(write_tags(tmp_path / "y.tsv", [[("a", "I-X"), ("b", "B-X"), ("c", "O")]])), repair_tags=True)
    assert iob1.tags.names == ("B-X", "O")
    assert "1 tags were repaired: IOB1 became BIO" in iob1.notes


def test_long_sentences_are_cut_and_the_limit_holds(file):
    data = ready(file, max_length=4, limit=50)
    assert len(data.train) == 50
    assert data.train.words.lengths.max() == 4
    assert any("cut to 4 words" in note for note in data.notes)


def test_vocabularies_of_another_run_are_kept(file, tmp_path):
    first = ready(file)
    kept = first.vocabularies()
    second = ready(str(write_tags(tmp_path / "more.tsv", sentences(30, seed=9))), kept=kept)
    assert second.vocabularies() == kept
    with pytest.raises(SeqloomError, match=r"new.tsv:1: tag 'B-PER' is unknown to the run"):
        ready(str(write_tags(tmp_path / "new.tsv", [[("Lan", "B-PER")]])), kept=kept)
    other = ready(file, kept={"source": {name: v for name, v in kept["source"].items() if name != "rare"}})
    assert other.rare == other.lexicon.words.size  # a run of another task does not know which words are rare


def test_the_fingerprint_tells_data_apart(file, tmp_path):
    assert ready(file).train.fingerprint == ready(file).train.fingerprint
    other = sentences(200)
    other[5][0] = ("the", "ADJ")
    assert ready(str(write_tags(tmp_path / "other.tsv", other))).train.fingerprint != ready(file).train.fingerprint


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"min_count": 0}, "min_count must be a whole number of 1 or more"),
        ({"max_vocab": 3}, "max_vocab must be"),
        ({"max_length": True}, "max_length must be"),
        ({"limit": 0}, "limit must be"),
    ],
)
def test_wrong_options(options, reason):
    with pytest.raises(SeqloomError, match=reason):
        TagOptions(**options)


def odd_file(path):
    rows = [[("Ann", "B-PER"), ("Lee", "I-PER"), ("is", "O"), ("in", "O"), ("Rome", "B-LOC")] for _ in range(6)]
    rows[2][4] = ("Rome", "B_LOC")
    rows[4][2] = ("is", "0")
    return write_tags(path, rows)


def test_a_mistyped_tag_is_named_and_the_scheme_stays(tmp_path):
    file = str(odd_file(tmp_path / "a.conll"))
    data = prepare_tags(PrepareRequest([file], 0.0, TagOptions(), seed=1))
    assert data.tags.scheme == "bio"
    [told] = [note for note in data.notes if "not of the scheme" in note]
    assert told == (
        f"2 tags not of the scheme BIO: '0' at {file}:27 (did you mean 'O'?); 'B_LOC' at {file}:17 (did you mean "
        "'B-LOC'?); data.repair_tags=true repairs those that are clear"
    )
    repaired = prepare_tags(PrepareRequest([file], 0.0, TagOptions(repair_tags=True), seed=1))
    assert set(repaired.tags.names) == {"O", "B-PER", "I-PER", "B-LOC"}
    assert prepare_tags(PrepareRequest([file], 0.0, TagOptions(detect=False), seed=1)).tags.scheme is None, "as before"


def test_check_names_odd_tags_by_line(tmp_path):
    from seqloom.data.checks.tags import check

    file = str(odd_file(tmp_path / "a.conll"))
    report = check([file])
    assert [str(problem) for problem in report if problem.code == "tag"] == [
        f"{file}:17: the tag 'B_LOC' is none of the scheme BIO; did you mean 'B-LOC'?",
        f"{file}:27: the tag '0' is none of the scheme BIO; did you mean 'O'?",
    ]
    assert report.statistics[0].scheme == "bio"
