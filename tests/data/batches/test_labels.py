"""Labels, several labels and numbers through the pipeline of pairs; folders; cleaning; broken lines by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from seqloom.data.batches.class_weights import class_weights
from seqloom.data.batches.labels import Target
from seqloom.data.checks.pairs import check
from seqloom.data.prepare.labels import LabelOptions
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.tokenizers.base_tokenizer import CleanedTokenizer, Labels, Terms
from seqloom.data.tokenizers.tokenizer_json import tokenizer_json
from seqloom.data.tokenizers.tokenizers import Words, make_tokenizer
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.errors import SeqloomError
from seqloom.tasks.classify.task import TASK

LINES = [
    ("The film was GOOD", "pos"),
    ("a bad , bad film", "neg"),
    ("gooood film", "pos"),
    ("so bad", "neg"),
    ("the best", "pos"),
]


def write(path: Path, lines: list[tuple[str, str]]) -> str:
    path.write_text("".join(f"{text}\t{label}\n" for text, label in lines), encoding="utf-8")
    return str(path)


def prepare(file: str | list[str], tmp_path: Path, valid=0.0, kept=None, **options):
    files = [file] if isinstance(file, str) else file
    return TASK.prepare(
        PrepareRequest(files, valid, LabelOptions(**options), seed=1, cache=tmp_path / "cache", vocabularies=kept)
    )


def texts(ready) -> list[str]:
    batch = ready.train.batch(np.arange(len(ready.train)))
    return [ready.source.decode(row.tolist()) for row in batch.source.tokens]


def test_one_label_each(tmp_path):
    ready = prepare(write(tmp_path / "a.tsv", LINES), tmp_path)
    assert ready.target.names == ("pos", "neg")  # the commonest first
    assert ready.train.values.tolist() == [0, 1, 0, 1, 0]
    assert ready.train.counts().tolist() == [3, 2]
    assert ready.facts["labels"] == {"pos": 3, "neg": 2}
    assert TASK.sizes(ready.vocabularies()) == {"source_size": ready.source.size, "label_count": 2}
    batch = ready.train.batch(np.array([1, 3]))
    assert batch.target.tolist() == [1, 1]
    assert (batch.count, batch.rows, batch.weight) == (2, (1, 3), None)
    assert Target.from_json(json.loads(json.dumps(ready.target.to_json()))) == ready.target


def test_folding_and_rare_words_touch_the_text_and_never_the_label(tmp_path):
    file = write(tmp_path / "a.tsv", [("Ａ One", "POS"), ("a one", "Pos"), ("b", "POS")])
    ready = prepare(file, tmp_path, lowercase="casefold", half_width=True, min_count=2, max_length=1)
    assert ready.target.names == ("POS", "Pos")
    assert texts(ready) == ["a", "a", "<unk>"]


def test_several_labels(tmp_path):
    file = write(tmp_path / "a.tsv", [("x", "b| a"), ("y", "|"), ("z", "c|a")])
    ready = prepare(file, tmp_path, target="labels")
    assert ready.target.names == ("a", "b", "c")
    assert ready.train.values.tolist() == [[True, True, False], [False] * 3, [True, False, True]]
    assert ready.train.batch(np.array([0])).target.tolist() == [[1.0, 1.0, 0.0]]
    comma = prepare(write(tmp_path / "b.tsv", [("x", "b,a"), ("y", "a")]), tmp_path, target="labels", separator=",")
    assert comma.target.names == ("a", "b")
    with pytest.raises(SeqloomError, match="no example has a label"):
        prepare(write(tmp_path / "c.tsv", [("x", "|"), ("y", "|")]), tmp_path, target="labels")


def test_numbers_are_seen_as_deviations(tmp_path):
    file = write(tmp_path / "a.tsv", [("x", "100"), ("y", "3e2"), ("z", "-100"), ("u", "100.0")])
    ready = prepare(file, tmp_path, target="number")
    assert (ready.target.mean, ready.target.deviation) == (100.0, pytest.approx(np.std([100, 300, -100, 100])))
    numbers = ready.train.values * ready.target.deviation + ready.target.mean
    np.testing.assert_allclose(numbers, [100, 300, -100, 100], rtol=1e-6)
    assert ready.train.prior() == pytest.approx([0], abs=1e-6)
    assert Target.from_json(ready.target.to_json()) == ready.target
    # A sign that only the validation data has is no unknown token.
    valid = write(tmp_path / "v.tsv", [("x", "-5.25E1")])
    held = prepare(write(tmp_path / "t.tsv", [("x", "1"), ("y", "2")]), tmp_path, [valid], target="number").valid
    assert held.values * held.target.deviation + held.target.mean == pytest.approx([-52.5])


@pytest.mark.parametrize("bad", ["four", "nan", "inf", "1e999", "1,5", "१", "1_000", "0x10"])
def test_what_is_no_number_is_named(bad, tmp_path):
    file = write(tmp_path / "a.tsv", [("x", "1"), ("y", bad), ("z", "2")])
    with pytest.raises(SeqloomError, match=r"a\.tsv:2: the target .* is no number"):
        prepare(file, tmp_path, target="number")
    ready = prepare(file, tmp_path, target="number", skip_bad=True)
    assert len(ready.train) == 2
    assert any("left out 1 broken line (1 number)" in note for note in ready.notes)
    assert [problem.code for problem in check([file], reading=LabelOptions(target="number"))] == ["number"]


def test_csv_and_json_by_columns(tmp_path):
    csv = tmp_path / "a.csv"
    csv.write_text('id,label,text\n1,pos,"good, really"\n2,neg,bad\n')
    ready = prepare(str(csv), tmp_path, columns="text,label")
    assert (ready.target.names, ready.train.values.tolist()) == (("neg", "pos"), [1, 0])
    assert texts(ready) == ["good, really", "bad"]
    lines = tmp_path / "a.jsonl"
    rows = [{"text": "x", "label": 1}, {"text": "y", "label": 0}, {"text": "z", "label": 1}]
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert prepare(str(lines), tmp_path).target.names == ("1", "0")
    assert prepare(str(lines), tmp_path, target="number").target.mean == pytest.approx(2 / 3)
    lists = tmp_path / "b.jsonl"
    lists.write_text('{"text": "x", "label": ["b", "a"]}\n{"text": "y", "label": ["a"]}\n')
    assert prepare(str(lists), tmp_path, target="labels").train.values.tolist() == [[True, True], [True, False]]
    with pytest.raises(SeqloomError, match=r"b\.jsonl:1: 2 targets where one label is expected"):
        prepare(str(lists), tmp_path)


def test_a_third_column_is_no_second_label(tmp_path):
    file = tmp_path / "a.tsv"
    file.write_text("x\tpos\nx\tneg\textra\n")
    with pytest.raises(SeqloomError, match=r"a\.tsv:2: 2 targets where one label is expected; --columns chooses"):
        prepare(str(file), tmp_path)
    file.write_text("x\tpos\textra\ny\tneg\textra\n")
    with pytest.raises(SeqloomError, match=r"a\.tsv:1: 2 targets"):
        prepare(str(file), tmp_path)
    assert len(prepare(str(file), tmp_path, columns="1,2").train) == 2


def folder_of(path: Path, files: dict[str, bytes]) -> str:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return str(path)


def test_a_folder_for_each_label(tmp_path):
    files = {"pos/1.txt": b"good\nfilm\n", "pos/2.txt": b"best", "neg/1.txt": b"bad\r\n", "neg/.hidden": b"\xff"}
    folder = folder_of(tmp_path / "train", {**files, "readme.txt": b"not a label"})
    ready = prepare(folder, tmp_path)
    assert texts(ready) == ["bad", "good film", "best"]
    assert [ready.target.names[value] for value in ready.train.values] == ["neg", "pos", "pos"]
    assert ready.notes[0].endswith("with the name of its folder as label: neg, pos")
    before = ready.train.fingerprint
    folder_of(tmp_path / "train", {"neg/1.txt": b"worse"})
    assert prepare(folder, tmp_path).train.fingerprint != before
    held = prepare(folder, tmp_path, valid=[folder])
    assert next((one.source, one.targets) for one in held.validation_examples()) == ("worse", ("neg",))


def test_broken_files_of_a_folder_are_named_line_by_line(tmp_path):
    files = {"pos/1.txt": b"good", "pos/2.txt": b"a\nb\xff\n", "neg/1.txt": b"bad", "neg/2.txt": b" \n"}
    folder = folder_of(tmp_path / "train", files)
    reading = LabelOptions()
    problems = [str(problem) for problem in check([folder], reading=reading) if problem.kind == "error"]
    assert problems[0].endswith("neg/2.txt:1: the source is empty")
    assert "pos/2.txt:2: not UTF-8: byte 0xff" in problems[1]
    with pytest.raises(SeqloomError, match=r"neg/2\.txt:1: the source is empty"):
        prepare(folder, tmp_path)
    ready = prepare(folder, tmp_path, skip_bad=True)
    assert len(ready.train) == 2
    assert any("left out 2 broken lines" in note and "pos/2.txt:2" in note for note in ready.notes)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SeqloomError, match="holds no texts: expected a folder for each label"):
        prepare(str(tmp_path / "empty"), tmp_path)
    with pytest.raises(SeqloomError, match="--columns '1,2' goes with TSV"):
        prepare(folder, tmp_path, columns="1,2")


def test_stop_words_and_repaired_letters_are_those_of_training(tmp_path):
    words = tmp_path / "stop.txt"
    words.write_text("film\nsø\n", encoding="utf-8")
    file = write(tmp_path / "a.tsv", LINES)
    ready = prepare(file, tmp_path, stop_words=str(words), shorten_repeats=True)
    assert texts(ready) == ["The was GOOD", "a bad , bad", "good", "so bad", "the best"]
    again = Codec.from_json(json.loads(json.dumps(ready.source.to_json())))
    words.unlink()  # what predictions need lies in the run
    for text in ("Film gooooood FILM", "sø bad"):
        assert again.encode(text) == ready.source.encode(text)
    assert again.display_tokens("Film gooooood FILM") == ["good"]
    english = prepare(file, tmp_path, stop_words="english", lowercase="casefold")
    assert texts(english)[0] == "film good"
    assert english.train.fingerprint != ready.train.fingerprint
    with pytest.raises(SeqloomError, match="stop_words 'englsh': no such file; choose none, english, or a file"):
        prepare(file, tmp_path, stop_words="englsh")
    with pytest.raises(SeqloomError, match="stop_words and shorten_repeats go with tokens words"):
        LabelOptions(tokens="bpe:300", shorten_repeats=True)
    with pytest.raises(SeqloomError, match="cannot be written as a tokenizer"):
        tokenizer_json(ready.source)


def test_a_file_of_stop_words_counts_by_its_content(tmp_path):
    file, words = write(tmp_path / "a.tsv", LINES), tmp_path / "stop.txt"
    words.write_text("film\n")
    before = prepare(file, tmp_path, stop_words=str(words)).train.fingerprint
    words.write_text("bad\n")
    assert prepare(file, tmp_path, stop_words=str(words)).train.fingerprint != before


def test_repair_leaves_two():
    cleaned = CleanedTokenizer(Words(), repair=True)
    assert cleaned.split("gooood soooo see 1000 ... ééé") == ["good", "soo", "see", "1000", "...", "éé"]


def test_terms():
    text = "It's well-made.<br />Don't miss (2 of 3)… 我爱"
    assert Terms().split(text) == [
        *("It's", "well-made", ".", "<br />", "Don't", "miss", "(", "2", "of", "3", ")", "…", "我爱")
    ]
    assert make_tokenizer("terms").join(["a", "."]) == "a ."


def test_labels_are_nobodys_tokens():
    assert Labels(",").split(" b c , a,,b c") == ["a", "b c"]
    with pytest.raises(SeqloomError, match="kind of target 'lable'; did you mean 'label'"):
        LabelOptions(target="lable")
    with pytest.raises(SeqloomError, match="unknown kind of tokens 'word'; did you mean 'words'"):
        LabelOptions(tokens="word")
    with pytest.raises(SeqloomError, match="separator, the sign between several labels"):
        LabelOptions(separator=" ")


def test_weights():
    target = Target("label", ("ham", "spam"))
    counts = np.array([90, 10])
    assert class_weights("none", target, counts) is None
    np.testing.assert_allclose(class_weights("balanced", target, counts), [100 / 180, 100 / 20])
    np.testing.assert_allclose(class_weights("spam=3", target, counts), [1, 3])
    for way, message in {
        "balancd": "unknown way to weigh labels 'balancd'; did you mean 'balanced'",
        "spam=x": "'x' is no number",
        "span=2": "did you mean 'spam'",
        "spam=-1": "a weight is a finite number of 0 or more, not -1",
        "ham=1,spam=nan": "a weight is a finite number of 0 or more, not nan",
        "spam=1e39": "a weight is a finite number of 0 or more, not 1e39",
    }.items():
        with pytest.raises(SeqloomError, match=message):
            class_weights(way, target, counts)
    with pytest.raises(SeqloomError, match="a number has none"):
        class_weights("balanced", Target("number"), counts)


def test_weights_reach_the_training_batches_alone(tmp_path):
    file = write(tmp_path / "a.tsv", LINES)
    ready = prepare(file, tmp_path, valid=[file], class_weights="balanced")
    np.testing.assert_allclose(ready.train.batch(np.array([0, 1])).weight, [5 / 6, 5 / 4], rtol=1e-6)
    assert ready.valid.batch(np.array([0])).weight is None


def test_unknown_labels(tmp_path):
    train = write(tmp_path / "a.tsv", LINES)
    valid = write(tmp_path / "v.tsv", [("good", "pos"), ("odd", "neutral")])
    ready = prepare(train, tmp_path, valid=[valid])
    assert ready.valid.values.tolist() == [0, -1]
    assert ready.valid.count(np.array([0, 1])) == 1
    with pytest.raises(
        SeqloomError, match=r"all examples have the label 'pos': there is nothing to tell apart; .*second column"
    ):
        prepare(write(tmp_path / "one.tsv", [("a", "pos"), ("b", "pos")]), tmp_path)
    kept = ready.vocabularies()
    again = prepare(write(tmp_path / "b.tsv", [("good", "neg"), ("new", "pos")]), tmp_path, kept=kept)
    assert again.target == ready.target
    assert again.source.tokens == ready.source.tokens
    with pytest.raises(
        SeqloomError, match="1 of 2 examples have labels that the run it starts from lacks; it has pos, neg"
    ):
        prepare(valid, tmp_path, kept=kept)
    other = prepare(write(tmp_path / "c.tsv", [("new", "x"), ("bad", "y")]), tmp_path, kept={"source": kept["source"]})
    assert other.target.names == ("x", "y")
    assert other.source.tokens == ready.source.tokens
