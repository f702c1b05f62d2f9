"""The cache of prepared data: what was just built is what the next run reads."""

from dataclasses import fields

import numpy as np
import pytest

from seqloom.data.batches.language import StreamOptions
from seqloom.data.formats.table import TableOptions
from seqloom.data.prepare.cache import cached, fingerprint, tokenizer_versions
from seqloom.data.prepare.labels import LabelOptions
from seqloom.data.prepare.language import prepare_language
from seqloom.data.prepare.pairs import DataOptions, prepare_pairs
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.prepare.texts import PlainTextOptions, prepare_texts
from seqloom.errors import SeqloomError

TEXTS = ["the cat sat", "the dog sät", "a caaat sat on the mat", "Das Haus", "ein goood Hund"]


def side(codec) -> tuple:
    return codec.to_json(), [codec.encode(text) for text in [*TEXTS, "unseen wörds"]]


@pytest.mark.parametrize(
    "options",
    [
        DataOptions(source_tokens="words", lowercase="casefold"),
        DataOptions(source_tokens="bpe:270", target_tokens="chars"),
        LabelOptions(shorten_repeats=True, split_version=2),
        LabelOptions(stop_words="english", tokens="chars"),
    ],
)
def test_vocabularies_of_pairs_are_those_in_the_cache(tmp_path, options):
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{text}\tlabel {i % 2}\n" for i, text in enumerate(TEXTS * 3)), encoding="utf-8")
    request = PrepareRequest([str(file)], 0.0, options, seed=1, cache=tmp_path / "cache")
    built, read = prepare_pairs(request), prepare_pairs(request)
    assert side(built.source) == side(read.source)
    assert side(built.target) == side(read.target)
    assert built.notes == read.notes
    assert built.facts == read.facts


@pytest.mark.parametrize("tokens", ["words", "chars", "bytes", "bpe:270"])
def test_vocabularies_of_texts_are_those_in_the_cache(tmp_path, tokens):
    file = tmp_path / "texts.txt"
    file.write_text("".join(f"{text}\n" for text in TEXTS * 3), encoding="utf-8")
    for prepare, options in ((prepare_texts, PlainTextOptions), (prepare_language, StreamOptions)):
        request = PrepareRequest([str(file)], 0.0, options(tokens=tokens), seed=1, cache=tmp_path / "cache")
        built, read = prepare(request), prepare(request)
        assert side(built.codec) == side(read.codec)
        assert np.array_equal(built.train.ids, read.train.ids)


def test_a_folder_is_built_once_and_anew_if_it_is_damaged(tmp_path):
    def build(folder):
        (folder / "file").write_text("whole")
        return "built"

    folder, made = cached("name", tmp_path / "cache", build)
    assert (made, cached("name", tmp_path / "cache", build)) == ("built", (folder, None))
    (folder / "file").write_text("other")
    assert cached("name", tmp_path / "cache", build) == (folder, "built")
    assert (folder / "file").read_text() == "whole"
    (tmp_path / "file").write_text("")
    with pytest.raises(SeqloomError, match="the cache of data cannot be written"):
        cached("name", tmp_path / "file", build)


def test_a_fingerprint_does_not_depend_on_the_order_of_its_parts():
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1}) != fingerprint({"a": 1, "b": 3})
    assert list(tokenizer_versions(["chars", "bpe:300"])) == ["tokenizers"]


def test_settings_of_tables_come_in_the_order_of_their_config():
    names = [field.name for field in fields(TableOptions)]
    assert names[names.index("tokens") - 1 :] == [
        *("class_weights", "tokens", "lowercase", "half_width", "max_vocab", "min_count", "max_length", "truncate")
    ]
    assert (TableOptions().header, TableOptions().max_length) == (True, 200)
