"""What all trained models share: plain keywords, one source or many, a repr, types that a checker knows."""

from __future__ import annotations

import json
import os
from typing import get_type_hints

import pytest

import seqloom
from seqloom import Search, SeqloomError
from seqloom.options import hints_of
from seqloom.tasks.shared.predictor import PredictKeywords, Predictor, describe_run, search_of
from tests.conftest import words


class Frame:
    """As a DataFrame: going through it gives the names of its columns."""

    columns = ("source", "target")

    def __iter__(self):
        return iter(self.columns)


@pytest.fixture(scope="module")
def model(run):
    return seqloom.load(run, "cpu")


def test_one_source_or_many_by_keywords_or_a_search(model):
    asked = words(6, seed=4)
    best = model.predict(asked, beam=3)
    assert best == model.predict(asked, Search(beam=3)) == model.predict(iter(asked), beam=3, rows=2)
    assert [model.predict(word, beam=3) for word in asked] == best
    several = model.predict(asked, beam=3, n_best=3)
    assert [found[0] for found in several] == best
    assert {len(found) for found in several} == {3}
    assert model.predict(asked[0], n_best=3) == several[0], "the beam is as wide as it must be"
    drawn = model.predict(asked, sample=True, temperature=2.0, seed=3)
    assert drawn == model.predict(asked, Search(sample=True, temperature=2.0, seed=3)) != best
    assert model.predict([]) == []
    assert model.predict("") == ""


@pytest.mark.parametrize(
    ("keywords", "told"),
    [
        ({"beem": 5}, "unknown keyword of predict 'beem'; did you mean 'beam'"),
        ({"num_beams": 5}, "did you mean 'beam'"),
        ({"batch_size": 5}, "did you mean 'rows'"),
        ({"zzzzzz": 5}, "Choose from: alpha, beam"),
        ({"beam": "5"}, "predict.beam takes a whole number, here '5'"),
        ({"beam": 0}, "at least 1"),
        ({"rows": 0}, "a whole number of 1 or more"),
        ({"beam": 2, "n_best": 3}, "needs a beam at least as wide"),
        ({"temperature": 2.0}, "add sample=True"),
        ({"search": Search(), "beam": 2}, "give a Search or keywords, not both"),
    ],
)
def test_wrong_keywords_say_what_was_meant(model, keywords, told):
    with pytest.raises(SeqloomError, match=told):
        model.predict(["ab"], **keywords)


@pytest.mark.parametrize("sources", [None, 5, [5], ["ab", None], [["ab"]], {"ab": 1}, Frame()])
def test_what_is_no_text_is_refused(model, sources):
    with pytest.raises(SeqloomError, match="predict takes"):
        model.predict(sources)


def test_the_typed_keywords_are_those_of_a_search():
    assert set(get_type_hints(PredictKeywords)) == {*hints_of(Search), "rows"} - {"n_best"}
    assert search_of(None, None, {}) == (Search(), 64)


def test_reprs_say_what_they_are(model, run):
    told = repr(model)
    assert told.startswith("Translator(translate, gru-attention tiny, ")
    assert " parameters, per " in told
    assert told.endswith(f"folder {str(run)!r})")
    both = seqloom.load(run, _copy(run), device="cpu")
    assert "2 models together" in repr(both)
    trained = seqloom.train("translate", [("a", "b")] * 3, valid=0, output=f"{run}-again", max_steps=1, quiet=True)
    assert repr(trained).startswith("Run(translate, lstm-attention small, ")
    assert repr(trained).endswith(", 1 step)")


def _copy(run):
    import shutil

    return shutil.copytree(run, f"{run}-copy", dirs_exist_ok=True)


@pytest.mark.parametrize("journal", [b"", b"[1]\n{", b'{"best": 1, "valid": {"per": "x"}}\n', b"\xff\n", None])
def test_a_repr_never_fails(journal, tmp_path):
    if journal is None:
        os.mkfifo(tmp_path / "metrics.jsonl")
    else:
        (tmp_path / "metrics.jsonl").write_bytes(journal)
    assert (
        describe_run(tmp_path, {"task": "tag", "training": {"select": "per"}})
        == f"tag, model, folder {str(tmp_path)!r}"
    )
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"best": True, "step": 7, "valid": {"loss": 0.51234}}) + "\n")
    assert "loss 0.5123 at step 7" in describe_run(tmp_path, {})


def test_every_runner_predicts_alike():
    from importlib import import_module

    homes = {"translate": "Translator", "classify": "ClassifyModel", "tag": "TagModel", "generate": "GenerateModel"}
    homes |= {"table": "TableModel", "mask": "MaskModel", "vectors": "VectorModel"}
    for home, name in homes.items():
        runner = getattr(import_module(f"seqloom.tasks.{home}.model"), name)
        assert issubclass(runner, Predictor)
        assert "predict" not in vars(runner), f"{name} has a predict of its own"


def test_what_looks_inside_is_imported_by_name():
    import seqloom.inspection.gates
    import seqloom.inspection.memory_reach
    from seqloom.inspection import gates, gradients, reach

    assert all(callable(one) and one.__module__.startswith("seqloom.inspection.") for one in (gates, gradients, reach))
    assert all(callable(getattr(seqloom.inspection, name)) for name in seqloom.inspection.__all__)
