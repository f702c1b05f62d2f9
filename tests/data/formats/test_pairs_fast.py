"""The quick way of reading and numbering gives exactly what the plain way gives."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqloom.data.encoding.encode import PairEncoder, Rows, encode_texts, normalize_all
from seqloom.data.files.file_groups import group_files
from seqloom.data.formats.pairs import Example, Problem, read_entries
from seqloom.data.formats.pairs_fast import Pairs, read_bulk
from seqloom.data.prepare import count_tokens
from seqloom.data.prepare.count_tokens import TokenCounts
from seqloom.data.prepare.pairs import DataOptions, prepare_pairs
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.splits.split import Split
from seqloom.data.tokenizers.tokenizers import BOS, EOS, SPECIALS, UNK, make_tokenizer, normalize
from seqloom.data.tokenizers.vocabulary import Codec

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
tricky = st.text(
    st.sampled_from([*"aé1각\r\n\t ,", *"e\u0301👨\u200d👩🏽🇩🇪\ufe0fन\u094d\u1100\u1161Ａ\ufeffßİ"]), max_size=12
)
broken = [b"b", b"", b"\t", b" \tx", b"\xff\tx", b"a\tx\0", b"\xef\xbb\xbfa\tx"]
pieces = st.sampled_from([b"a\tx", b"a\tx\ty", *broken, "é\t中".encode(), b"a\tb\r"])
ends = st.sampled_from([b"\n", b"\r\n", b"\n", b"\n"])


def same(files: list[str]) -> None:
    """Examples and problems, in order, from both ways."""
    for one in group_files(files):
        quick: list[Example | Problem] = []
        for found in read_bulk(one):
            quick += found.examples(one.files[0]) if isinstance(found, Pairs) else [found]
        assert quick == list(read_entries(one))


@given(st.lists(st.tuples(pieces, ends), max_size=30), st.booleans(), st.sampled_from([8, 64, 1 << 20]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
def test_blocks_are_read_as_lines_are(tmp_path_factory, lines, closed, size):
    raw = b"".join(piece + end for piece, end in lines)
    raw = raw if closed else raw.rstrip(b"\n")
    folder = tmp_path_factory.mktemp("bulk")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seqloom.data.files.lines.BLOCK", size)
        (folder / "a.tsv").write_bytes(raw)
        (folder / "a.tsv.gz").write_bytes(gzip.compress(raw)[: None if closed else -5])
        (folder / "a.en").write_bytes(raw.replace(b"\t", b" "))
        (folder / "a.de").write_bytes(raw.replace(b"\t", b" ")[::-1] if closed else b"x\n" * len(lines))
        for files in (["a.tsv"], ["a.tsv.gz"], ["a.en", "a.de"]):
            same([str(folder / name) for name in files])


@pytest.mark.parametrize(
    "raw", [b"", b"a\tx", b"a\tx\rb\ty\r", b"a\tx\r", b"a\tx\n" * 3 + b"q" * 99, b"q" * 99 + b"\na\tb\n"]
)
def test_odd_ends_of_files(tmp_path, monkeypatch, raw):
    monkeypatch.setattr("seqloom.data.files.lines.BLOCK", 16)
    monkeypatch.setattr("seqloom.data.files.lines.LONGEST", 64)
    (tmp_path / "a.tsv").write_bytes(raw)
    same([str(tmp_path / "a.tsv")])


def test_columns_and_headers_in_blocks(tmp_path, monkeypatch):
    from seqloom.data.files.columns import ReadOptions

    monkeypatch.setattr("seqloom.data.files.lines.BLOCK", 32)
    (tmp_path / "a.tsv").write_text("id\ttext\tlabel\n" + "".join(f"{i}\tsource {i}\ttarget {i}\n" for i in range(50)))
    for columns in ("text,label", "label,id", "2,3", "2,3,1"):
        [one] = group_files([str(tmp_path / "a.tsv")], ReadOptions(columns=columns))
        quick = [e for found in read_bulk(one) if isinstance(found, Pairs) for e in found.examples(one.files[0])]
        assert quick == list(read_entries(one))
        assert len(quick) == 50, "its first line is known as a header"


KINDS = ("chars", "words", "bytes")


@given(st.lists(texts | tricky, min_size=1, max_size=8), st.booleans(), st.booleans())
@settings(max_examples=150)
def test_numbering_many_is_numbering_each(many, fold, half_width):
    ways = {"fold": fold, "half_width": half_width}
    plain = [normalize(text, **ways) for text in many]
    assert normalize_all(many, ways) == plain
    for kind in KINDS:
        codec = Codec.build(kind, many, **ways)
        vocabulary = TokenCounts()
        side = encode_texts(make_tokenizer(kind), plain)
        table = vocabulary.add_tokens(side)
        vocabulary.count(side.rows, table)
        assert Codec.from_counts(kind, vocabulary.counts(), **ways).tokens == codec.tokens
        ids = vocabulary.final_ids(codec)[table[side.rows.ids]]
        expected = [codec.encode(text) for text in many]
        assert ids.tolist() == [number for row in expected for number in row]
        assert side.rows.lengths.tolist() == [len(row) for row in expected]


def test_bpe_many_is_bpe_each():
    many = ["the cat", "", "über 中文 the", "<eos> 👨\u200d👩"] * 3
    codec = Codec.build("bpe:300", many)
    side = encode_texts(codec.splitter, many)
    rows = np.split(side.rows.ids + len(SPECIALS), np.cumsum(side.rows.lengths)[:-1])
    assert [row.tolist() for row in rows] == [codec.encode(text) for text in many]


@given(st.lists(texts | tricky, max_size=5), st.booleans())
def test_hashes_of_many_are_those_of_each(sources, fold):
    ways = {"fold": fold, "half_width": False}
    settings = {"source": "chars", "target": "words", "normalization": ways, "key": "7"}
    found = PairEncoder.of(settings)(sources, sources).hashes
    number = Split([], [], normalization=ways)._number
    assert found.tolist() == [number(source, b"7") for source in sources]


rows = st.lists(st.lists(st.integers(4, 99), max_size=5), max_size=6)


@given(rows, st.integers(0, 6), st.sampled_from(["head", "tail"]), st.randoms())
def test_rows(lists, limit, drop, draw):
    from seqloom.data.batches.collate import cut

    def flat(values):
        ids = np.array([number for row in values for number in row], np.int32)
        return Rows(ids, np.array([len(row) for row in values], np.int64))

    def back(rows):
        return [part.tolist() for part in np.split(rows.ids, np.cumsum(rows.lengths)[:-1])] if len(rows.lengths) else []

    many = flat(lists)
    assert back(many.cut(limit, drop)) == [cut(row, limit, drop) for row in lists]
    assert back(many.with_specials((1,), (2, 3))) == [[1, *row, 2, 3] for row in lists]
    mask = np.array([draw.random() < 0.5 for _ in lists], bool)
    assert back(many.select(mask)) == [row for row, kept in zip(lists, mask, strict=True) if kept]
    order = np.array([draw.randrange(len(lists)) for _ in lists], np.int64)
    assert back(many.take(order)) == [lists[i] for i in order]


def plain_corpus(file: Path, options: DataOptions, share: float, seed: int) -> list[list[list[list[int]]]]:
    """Training and held-out rows, made line by line with the single-text functions."""
    examples = [entry for entry in read_entries(group_files([str(file)])[0]) if isinstance(entry, Example)]
    number, key = Split([], [], normalization=options.normalization)._number, str(seed).encode()
    held = [number(example.source, key) < int(share * 2**64) for example in examples]
    training = [example for example, out in zip(examples, held, strict=True) if not out]
    source = Codec.build(options.source_tokens, (e.source for e in training), **options.vocabulary_of("source"))
    target = Codec.build(
        options.target_tokens, (t for e in training for t in e.targets), **options.vocabulary_of("target")
    )
    made: list[list[list[list[int]]]] = [[], []]
    for example, out in zip(examples, held, strict=True):
        for text in example.targets:
            left, right = source.encode(example.source), target.encode(text)
            made[out].append([[*left[: options.max_length], EOS], [BOS, *right[: options.max_length], EOS]])
    return made


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kinds", [("chars", "words"), ("bytes", "chars"), ("bpe:300", "words")])
def test_a_corpus_is_what_the_plain_way_makes(tmp_path, monkeypatch, kinds, workers):
    """The same numbers with any number of workers, small blocks, further targets, rare tokens and cut rows."""
    monkeypatch.setattr("seqloom.data.files.lines.BLOCK", 1 << 10)
    monkeypatch.setattr(count_tokens, "workers", lambda split: workers)
    file = tmp_path / "a.tsv"
    lines = [f"Wort {i % 70} e\u0301\t{i % 9} ü {i % 149}" + ("\tzwei 中" if i % 5 == 0 else "") for i in range(300)]
    file.write_text("\n".join(lines))
    options = DataOptions(
        source_tokens=kinds[0], target_tokens=kinds[1], lowercase="casefold", min_count=3, max_length=6
    )
    data = prepare_pairs(PrepareRequest([str(file)], 0.2, options, seed=3, cache=tmp_path / f"cache{workers}"))
    expected = plain_corpus(file, options, 0.2, 3)
    assert data.valid is not None
    for corpus, rows in zip((data.train, data.valid), expected, strict=True):
        batch = corpus.batch(np.arange(len(corpus)))
        for side in ("source", "target"):
            padded = getattr(batch, side)
            found = [row[:length].tolist() for row, length in zip(padded.tokens, padded.host, strict=True)]
            assert found == [row[side == "target"] for row in rows]
    if kinds[1] == "words":
        assert any(UNK in right for _, right in expected[1])


def test_a_worker_that_dies_is_one_line(tmp_path, monkeypatch):
    from seqloom.data.encoding.encode_workers import Worker
    from seqloom.errors import SeqloomError

    monkeypatch.setattr(count_tokens, "workers", lambda split: 1)
    monkeypatch.setattr(Worker, "submit", lambda self, pairs: (self._process.kill(), self._process.wait()))
    (tmp_path / "a.tsv").write_text("a\tx\n")
    with pytest.raises(SeqloomError, match="a process that encodes the data has ended"):
        prepare_pairs(PrepareRequest([str(tmp_path / "a.tsv")], 0.0, DataOptions(), seed=1, cache=tmp_path / "cache"))
    assert list((tmp_path / "cache").iterdir()) == []
