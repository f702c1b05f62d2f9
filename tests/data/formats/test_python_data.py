"""Examples given in Python: every form becomes the same file; what has no end or no examples is refused at once."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from seqloom import SeqloomError
from seqloom.data.formats import python_data as module
from seqloom.data.formats.python_data import write_examples

PAIRS = [("ab", "A B"), ("cd", "C D"), ("ba", "B A")]


class Frame:
    """As a DataFrame of pandas is read."""

    def __init__(self, **columns):
        self.columns, self._values = list(columns), list(zip(*columns.values(), strict=True))

    def __len__(self):
        return len(self._values)

    def itertuples(self, index=True, name="Pandas"):
        assert not index
        assert name is None
        return iter(self._values)


class Hub:
    """As a dataset of Hugging Face is read."""

    def __init__(self, rows, features=None, names=None):
        self.rows, self.features = rows, features
        self.column_names = names or (list(rows[0]) if rows else [])

    def __iter__(self):
        return iter(self.rows)


def written(examples, task="translate", **data):
    (file,), is_new = write_examples(examples, task, data)
    assert is_new
    return Path(file).read_text(encoding="utf-8")


def test_every_form_of_the_same_pairs_is_the_same_file():
    columns = dict(zip(("source", "target"), zip(*PAIRS, strict=True), strict=True))
    forms = [
        PAIRS,
        tuple(PAIRS),
        list(map(list, PAIRS)),
        (pair for pair in PAIRS),
        [{"source": source, "target": target} for source, target in PAIRS],
        [{"id": i, "tgt": target, "src": source} for i, (source, target) in enumerate(PAIRS)],
        Frame(**columns),
        Frame(number=[1, 2, 3], **columns),
        Hub([{"source": source, "target": target} for source, target in PAIRS]),
        Hub([{"id": 7, "translation": {"en": source, "de": target}} for source, target in PAIRS]),
        np.array(PAIRS),
    ]
    files = {write_examples(form, "translate", {})[0][0] for form in forms}
    assert len(files) == 1
    assert json.loads(written(PAIRS).splitlines()[0]) == {"source": "ab", "target": "A B"}


def test_columns_are_chosen_by_name_or_number_and_asked_for_where_they_are_doubtful():
    frame = Frame(id=[1, 2], de=["a", "b"], en=["x", "y"])
    assert '"source": "x", "target": "a"' in written(frame, columns="en,de")
    assert '"source": "x", "target": "a"' in written(frame, columns="3,2")
    with pytest.raises(SeqloomError, match="its columns are id, de, en; say which are source and target, as in"):
        written(frame)
    with pytest.raises(SeqloomError, match="unknown column 'dee'; did you mean 'de'"):
        written(frame, columns="en,dee")
    hub = Hub([{"translation": {"en": "x", "de": "a"}}])
    assert '"source": "a", "target": "x"' in written(hub, columns="de,en")


def test_labels_of_hugging_face_get_their_names():
    names = SimpleNamespace(names=["neg", "pos"])
    assert '"label": "pos"' in written(Hub([{"text": "good", "label": 1}], {"label": names}), "classify")
    tags = SimpleNamespace(feature=SimpleNamespace(names=["O", "B-PER"]))
    rows = [{"id": "0", "tokens": ["I", "Ann"], "ner_tags": [0, 1], "pos_tags": [5, 6]}]
    assert written(Hub(rows, {"ner_tags": tags}), "tag", columns="tokens,ner_tags").split("\n") == [
        "1\tI\t_\tO" + 6 * "\t_",
        "2\tAnn\t_\tB-PER" + 6 * "\t_",
        "",
        "",
    ]
    with pytest.raises(SeqloomError, match="its columns are id, tokens, ner_tags, pos_tags; say which are words"):
        written(Hub(rows, {"ner_tags": tags}), "tag")
    with pytest.raises(SeqloomError, match="example 1: the label is empty"):
        written(Hub([{"text": "good", "label": -1}], {"label": names}), "classify")


def test_each_task_has_its_own_form():
    assert written([("a", ["x", "y"]), ("b", "z", "w")]).count('["') == 2, "further right answers"
    assert json.loads(written([("a", np.int64(3))], "classify")) == {"text": "a", "label": "3"}
    assert json.loads(written([("a", {"y", "x"})], "classify", target="labels"))["label"] == ["x", "y"]
    sentences = [(["a", "b"], ["X", "Y"]), [("a", "X"), ("b", "Y")], ("a b", "X Y"), [["a", "b"], ["X", "Y"]]]
    assert len({written([one], "tag") for one in sentences}) == 1
    assert written(["one two", "three four"], "generate") == "one two\nthree four\n"
    assert json.loads(written(["one two", "three four"], "mask").splitlines()[1]) == {"source": "three four"}
    assert json.loads(written([("pos", "fine")], "generate", condition=True)) == {"source": "pos", "target": "fine"}
    rows = Frame(x=[1.5, float("nan")], n=np.array([1, 2]), y=["a", "b"])
    assert json.loads(written(rows, "table").splitlines()[1]) == {"x": None, "n": 2, "y": "b"}
    assert json.loads(written([(1, "a")], "table")) == {"1": 1, "2": "a"}


def test_names_of_files_stay_names_and_texts_are_told_apart(tmp_path):
    file = tmp_path / "my corpus"
    file.write_text("x")
    for task in ("translate", "mask"):
        for names in (["a.tsv", "b.tsv"], ["pinyin"], "a.tsv", file, [file], [str(file), "two words"], ["one"]):
            expected = [str(names)] if not isinstance(names, list) else list(map(str, names))
            assert write_examples(names, task, {}) == (expected, False)
    assert write_examples(["two words", "are texts"], "translate", {}) == (["two words", "are texts"], False)
    assert write_examples(["two words", "are texts"], "vectors", {})[1]
    assert write_examples(iter(["word"]), "generate", {})[1]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (torch.nn.Linear(1, 1), "is no data"),
        (torch.zeros(2, 2), "is no data"),
        (torch.utils.data.TensorDataset(torch.zeros(2)), r"is a torch dataset, .*dataset\[i\] for i in range"),
        ("", "'' names no file"),
        (torch.utils.data.DataLoader([1, 2]), "is a torch dataset"),
        (itertools.count(), "count never ends; set limit=N"),
        (itertools.cycle(PAIRS), "cycle never ends"),
        (itertools.repeat(PAIRS[0]), "repeat never ends"),
        ({"source": ["a"], "target": ["b"]}, r"columns is not taken; give rows: list\(zip"),
        ({"train": Hub([{"a": 1}]), "test": Hub([{"a": 1}])}, r"choose one, as in dataset\['train'\]"),
        (7, "int holds no examples"),
        (None, "NoneType holds no examples"),
        (b"ab\tc", "bytes are no text"),
        (print, "print is a function or a class: call it"),
        ([], "no examples were given"),
        (iter([]), "no examples were given"),
        ([7], "example 1: expected .source, target. or a dict, here int '7'"),
        (["ab", ("a", "b")], "example 1: expected .source, target. or a dict, here str 'ab'"),
        ([("a",)], "example 1: 1 value where source and target are expected"),
        ([("a", "b"), ("c", None)], "example 2: the target is empty; skip_bad=True"),
        ([("a", "b"), ("c", object())], "example 2: the target must be text, here object"),
        ([("a", "\ud800")], "example 1: holds half a surrogate pair"),
        ([{"source": "a", "target": "b"}, {"source": "a"}], "example 2: has no 'target'"),
    ],
)
def test_what_gives_no_examples_is_refused(value, told):
    with pytest.raises(SeqloomError, match=told):
        write_examples(value, "translate", {})


def test_an_open_file_is_told_by_its_name(tmp_path):
    (tmp_path / "x.tsv").write_text("a\tb\n")
    with (
        (tmp_path / "x.tsv").open() as file,
        pytest.raises(SeqloomError, match=r"an open file: give its name, .*x\.tsv"),
    ):
        write_examples(file, "translate", {})


def test_an_endless_generator_stops_at_a_bound_and_leaves_nothing_behind(monkeypatch, tmp_path):
    seen = itertools.count()
    endless = (("a", str(next(seen))) for _ in iter(int, 1))
    monkeypatch.setattr(module, "MAX_EXAMPLES", 500)
    with pytest.raises(SeqloomError, match="more than 500 examples and does not say how many it has; set limit=N"):
        write_examples(endless, "translate", {}, tmp_path)
    assert next(seen) == 501
    monkeypatch.setattr(module, "MAX_BYTES", 1 << 20)
    with pytest.raises(SeqloomError, match="more than 1 MiB"):
        write_examples((("a", "b" * 10_000) for _ in iter(int, 1)), "translate", {}, tmp_path)
    assert list((tmp_path / "examples").iterdir()) == []
    (file,), _ = write_examples(endless, "translate", {"limit": 1000}, tmp_path)
    assert Path(file).read_text().count("\n") == 1000
    assert write_examples([PAIRS[0]] * 501, "translate", {}, tmp_path)[1], "a list says how many it has"


def test_skip_bad_leaves_broken_examples_to_the_reader():
    from seqloom.data.files.columns import ReadOptions
    from seqloom.data.formats.bad_lines import read_examples
    from seqloom.data.formats.conll import read

    pairs, _ = write_examples([*PAIRS, ("", "x"), ("x", None)], "translate", {"skip_bad": True})
    found, notes = read_examples(pairs, ReadOptions(skip_bad=True))
    assert [one.source for one in found] == ["ab", "cd", "ba"]
    assert notes[0].startswith("left out 2 broken lines (2 empty)")
    tagged, _ = write_examples([(["a", "b\tc"], ["X", "Y"]), (["a"], ["X"])], "tag", {"skip_bad": True})
    assert len(read(tagged, ReadOptions(skip_bad=True)).sentences) == 1
    with pytest.raises(SeqloomError, match=r"example 1: the word .* holds a TAB"):
        write_examples([(["a", "b\tc"], ["X", "Y"])], "tag", {})
    with pytest.raises(SeqloomError, match="example 1: 2 words but 1 tag"):
        write_examples([(["a", "b"], ["X"])], "tag", {})
