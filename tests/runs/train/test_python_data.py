"""Training on examples given in Python, with plain keywords and models as dictionaries."""

from __future__ import annotations

import itertools
import shutil
from types import UnionType
from typing import get_args, get_type_hints

import pytest
import torch

import seqloom
import seqloom.runs.train.train as module
from seqloom import SeqloomError
from seqloom.files import default_cache
from seqloom.options import hints_of
from seqloom.runs.config import compose
from seqloom.runs.settings.train_keywords import DataKeywords, Keywords, TrainingKeywords, checked_model
from seqloom.tasks.registry import TASKS, task
from seqloom.training.checkpoint import read_tensors
from seqloom.training.settings import Training
from tests.conftest import pronounce, words

PAIRS = [(word, pronounce(word)) for word in words(120)]
KEYWORDS = {"size": "tiny", "quiet": True, "device": "cpu", "batch_rows": 16}
EXAMPLES = {
    "translate": PAIRS,
    "classify": [(f"{word} is here", word[0]) for word, _ in PAIRS],
    "tag": [([word, "runs"], [word[0], "VERB"]) for word, _ in PAIRS],
    "table": [{"length": len(word), "first": word[0], "sounds": len(said)} for word, said in PAIRS],
    "generate": [f"{word} {said}" for word, said in PAIRS],
    "mask": [f"{word} {said}" for word, said in PAIRS],
    "vectors": [f"{word} {said}" for word, said in PAIRS],
}


@pytest.fixture
def asked(monkeypatch):
    """`seqloom.train` up to the job it makes."""
    monkeypatch.setattr(module, "run_job", lambda job, progress: job)
    return seqloom.train


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_task_learns_from_a_list_and_from_a_generator_alike(name, tmp_path, monkeypatch):
    more = {"min_count": 1} if name == "vectors" else {}
    settings = {"valid": "20%", "output": tmp_path / "run", "max_steps": 1, **more, **KEYWORDS}
    run = seqloom.train(name, (example for example in EXAMPLES[name]), **settings)
    assert (run.folder / "model.safetensors").exists()
    monkeypatch.setattr(module, "run_job", lambda job, progress: job)
    assert run.config["inputs"]["train"] == seqloom.train(name, EXAMPLES[name], **settings).files


def test_the_same_examples_go_on_bit_by_bit_and_others_are_refused(tmp_path):
    def train(examples, steps, folder, **more):
        settings = {"schedule": "constant", "valid_every": 3, "save_every": 3, **KEYWORDS}
        return seqloom.train(
            "translate", examples, valid=PAIRS[:20], output=folder, max_steps=steps, **settings, **more
        )

    whole, parted = train(PAIRS[20:], 6, tmp_path / "whole"), tmp_path / "parted"
    train(PAIRS[20:], 3, parted)
    shutil.rmtree(default_cache() / "examples")
    with pytest.raises(SeqloomError, match="the training data or its options have changed"):
        train(PAIRS[21:], 6, parted, resume=True)
    again = train((pair for pair in PAIRS[20:]), 6, parted, resume=True)
    assert again.step == whole.step == 6
    one, other = (read_tensors(run.folder / "model.safetensors") for run in (whole, again))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_examples_are_evaluated_and_validated_on(tmp_path, monkeypatch):
    run = seqloom.train("translate", PAIRS, valid=iter(PAIRS[:9]), output=tmp_path / "run", max_steps=1, **KEYWORDS)
    assert run.load("cpu").evaluate(PAIRS[:7], metrics=["per"]).count == 7
    rows = [{"word": word, "sounds": said, "id": 1} for word, said in PAIRS]
    chosen = {"columns": "word,sounds", "output": tmp_path / "rows", "max_steps": 1, **KEYWORDS}
    with monkeypatch.context() as patch:
        patch.setattr(module, "run_job", lambda job, progress: job)
        assert seqloom.train("translate", rows, **chosen).data == {}, "the file that was written has its own columns"
    file = tmp_path / "x.tsv"
    file.write_text("a\tb\n")
    for beside in ({"valid": [file]}, {"test": file}):
        with pytest.raises(SeqloomError, match="columns= cannot be for files and for examples at once"):
            seqloom.train("translate", rows, **beside, **chosen)
    with pytest.raises(SeqloomError, match="columns= cannot be for files and for examples at once"):
        seqloom.train("translate", file, test=rows, **{**chosen, "columns": "1,2"})


@pytest.mark.parametrize("sign", ["\t", ";"])
def test_how_the_training_files_were_written_is_nothing_to_examples(sign, tmp_path):
    (tmp_path / "a.tsv").write_text("".join(f"ä{word}{sign}{said}\n" for word, said in PAIRS), encoding="latin-1")
    told = {"encoding": "latin-1", "header": False, "delimiter": None if sign == "\t" else sign}
    how = {"source_tokens": "chars", "output": tmp_path / "run", "max_steps": 1, **told, **KEYWORDS}
    found = seqloom.train("translate", tmp_path / "a.tsv", **how).load("cpu").evaluate([("ä", "AH"), *PAIRS[:6]])
    assert (found.count, found.notes) == (7, ()), "the ä is none that the model never saw"


@pytest.mark.parametrize(("name", "value"), [("header", False), ("delimiter", ";"), ("encoding", "latin-1")])
def test_how_files_are_written_goes_not_for_examples_beside_them(name, value, tmp_path, asked):
    file = tmp_path / "x.tsv"
    file.write_text("a\tb\n")
    for files, other in (([file], PAIRS), (PAIRS, [file])):
        for part in ("valid", "test"):
            with pytest.raises(SeqloomError, match=f"{name}= cannot be for files and for examples at once"):
                asked("translate", files, output=tmp_path / "run", **{part: other, name: value})
            assert asked("translate", files, output=tmp_path / "run", **{part: other}).data == {}
    job = asked("translate", PAIRS, output=tmp_path / "run", settings={f"data.{name}": value})
    assert (job.data, job.settings) == ({}, {}), "examples alone: it says nothing"


def test_test_data_is_read_as_the_training_data_and_whole(tmp_path):
    rows = [{"id": 1, "word": word, "sounds": said} for word, said in PAIRS]
    chosen = {"columns": "word,sounds", "limit": 30, "output": tmp_path / "run", "max_steps": 1, **KEYWORDS}
    assert seqloom.train("translate", rows, test=rows[:50], **chosen).scores["count"] == 50


@pytest.mark.parametrize(
    ("keywords", "told"),
    [
        ({"max_step": 2}, "unknown keyword of seqloom.train for translate 'max_step'; did you mean 'max_steps'"),
        ({"batch_size": 2}, "did you mean 'batch_rows'"),
        ({"lr": 1e-3}, "did you mean 'learning_rate'"),
        ({"outputs": 1, "masked": 0.1}, "unknown keyword"),
        ({"masked": 0.1}, "'masked', which is a setting of mask"),
        ({"decoder.score": "additive"}, r"parts of the model go by settings=\{'decoder.score'"),
        ({"learning_rate": "quick"}, "training.learning_rate takes a number"),
        (
            {"learning_rate": 1e-3, "training": {"learning_rate": 2e-3}},
            "rate is given twice: 0.001, and 0.002 in training=",
        ),
        ({"training": [1]}, "training= takes a dictionary of settings, here list"),
        ({"model": torch.nn.Linear(1, 1)}, "model= takes the name of a preset, .* here Linear; a module of your own"),
        ({"model": torch.nn.GRU}, "model= takes the name"),
        ({"model": 7}, "model= takes the name of a preset, a YAML file or a dictionary of settings, here int"),
        ({"model": {"preset": "gru-attentoin"}}, "unknown preset 'gru-attentoin'; did you mean 'gru-attention'"),
        ({"model": {"decoder": {"score": {1, 2}}}}, "takes a dictionary of names, numbers and texts"),
        ({"model": "gru", "size": "tiny", "time": "soon"}, "cannot read the time 'soon'"),
        ({"valid": torch.nn.Linear(1, 1)}, "valid: .*Linear is no data"),
        ({"valid": itertools.count(), "limit": 5}, r"valid: count never ends; use itertools.islice\(…, N\)"),
        ({"test": [("a", "b"), 7]}, "test: example 2: expected"),
        ({"columns": ["a", "b"]}, r"columns takes names or numbers with commas between, .* not \['a', 'b'\]"),
    ],
)
def test_wrong_keywords_say_what_was_meant_and_nothing_is_written(keywords, told, tmp_path):
    with pytest.raises(SeqloomError, match=told):
        seqloom.train("translate", PAIRS, output=tmp_path / "run", quiet=True, **keywords)
    assert not (tmp_path / "run").exists()


def test_a_task_that_is_unknown_is_said_before_its_keywords(tmp_path):
    with pytest.raises(SeqloomError, match="unknown task 'transalte'; did you mean 'translate'"):
        seqloom.train("transalte", PAIRS, output=tmp_path / "run", learning_rate=1.0)


def test_keywords_and_sections_are_the_same_thing(tmp_path, asked):
    plain = asked("translate", PAIRS, output=tmp_path / "a", max_steps=1, rate=2e-3, time="5m", fold=True)
    sections = {"data": {"fold": True}, "training": {"max_steps": 1, "learning_rate": 2e-3, "time": 300}}
    assert plain == asked("translate", PAIRS, output=tmp_path / "a", **sections)


def test_a_model_is_a_dictionary_a_file_or_a_name(tmp_path):
    model = {"preset": "gru-attention", "size": "tiny", "decoder": {"score": "additive"}}
    (tmp_path / "own.yaml").write_text("preset: gru-attention\nsize: tiny\ndecoder:\n  score: additive\n")
    forms = [compose("translate", form, None, {}, {}, {})["model"] for form in (model, str(tmp_path / "own.yaml"))]
    assert forms[0] == forms[1]
    settings = {"max_steps": 1, "quiet": True, "device": "cpu"}
    run = seqloom.train("translate", PAIRS, output=tmp_path / "0", model=model, **settings)
    assert run.config["model"]["decoder"]["score"]["kind"] == "additive"
    again = {**settings, "max_steps": 2}
    assert seqloom.train("translate", PAIRS, output=tmp_path / "0", model=model, resume=True, **again).step == 2
    other = {**model, "size": "small"}
    assert checked_model(tmp_path / "own.yaml") == str(tmp_path / "own.yaml")
    with pytest.raises(SeqloomError, match="cannot resume with other settings: model: given-"):
        seqloom.train("translate", PAIRS, output=tmp_path / "0", model=other, resume=True, **again)


def test_the_typed_keywords_are_all_settings_there_are():
    """Completion and type checkers know what the sections take; no name stands in both."""
    data = {name for one in TASKS for name in hints_of(task(one).options)}
    training = set(hints_of(Training))
    assert set(get_type_hints(DataKeywords)) == data, (
        "seqloom/runs/settings/train_keywords.py lists every setting of data"
    )
    assert set(get_type_hints(TrainingKeywords)) == training, (
        "seqloom/runs/settings/train_keywords.py lists every setting of training"
    )
    assert not data & training
    takes = {name: _kinds(hint) for name, hint in get_type_hints(Keywords).items()}
    for options in (Training, *(task(one).options for one in TASKS)):
        for name, hint in hints_of(options).items():
            assert _kinds(hint) <= takes[name], f"{name} may be {hint} in {options.__name__}"


def _kinds(hint):
    return set(get_args(hint)) if isinstance(hint, UnionType) else {hint}
