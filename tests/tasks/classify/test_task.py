"""The task classify from file to answers: it learns, it says how sure it is, and its record can be drawn."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

import seqloom
from seqloom.data.formats.pairs import Example
from seqloom.data.prepare.request import PrepareRequest
from seqloom.decoding.batched import Answer
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError
from seqloom.models.classifier import Logistic, Mlp
from seqloom.reporting.pages.run_page import report
from seqloom.reporting.sections.labels import sections
from seqloom.runs.evaluate.report_files import run_facts
from seqloom.tasks.classify.evaluation import example_lists
from seqloom.tasks.classify.task import TASK
from seqloom.tasks.shared.predictor import LoadedRun
from seqloom.training.distributed.processes import ALONE
from seqloom.training.settings import Training

GOOD, BAD = ("good", "great", "fine", "lovely"), ("bad", "awful", "poor", "dull")
OTHERS = ("the", "film", "was", "a", "story", "and", "plot", "of", "it")


def sentences(count: int, seed: int = 0, labels=("pos", "neg")) -> list[tuple[str, str]]:
    """The label is that of the one word that says anything; where it stands is chance."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        side = draw.randrange(2)
        words = draw.choices(OTHERS, k=draw.randint(2, 9))
        words.insert(draw.randint(0, len(words)), draw.choice((GOOD, BAD)[side]))
        found.append((" ".join(words), labels[side]))
    return found


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{text}\t{label}\n" for text, label in rows), encoding="utf-8")
    return path


def trained(tmp_path: Path, rows, model="gru-attention", steps=120, data=None, valid="20%", **more):
    file = write(tmp_path / "train.tsv", rows)
    training = {"max_steps": steps, "batch_rows": 32, "learning_rate": 5e-3, "valid_every": steps, **more}
    run = seqloom.train(
        "classify",
        file,
        output=tmp_path / "run",
        model=model,
        size="tiny",
        valid=valid,
        data=data or {},
        training=training,
        device="cpu",
        quiet=True,
    )
    return seqloom.load(run.folder, "cpu")


@pytest.fixture(scope="module")
def labeller(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("classify"), sentences(400))


@pytest.mark.parametrize("model", ["rnn", "lstm", "gru-attention", "transformer", "bag", "mlp"])
def test_32_examples_are_learned_by_heart(model, tmp_path):
    """Labels by chance: only a model that remembers every text can know them."""
    draw = random.Random(3)
    texts = sorted({" ".join(draw.choices(OTHERS + GOOD, k=6)) for _ in range(40)})[:32]
    rows = [(text, draw.choice("abc")) for text in texts]
    settings = {"label_smoothing": 0.0, "learning_rate": 1e-2 if model in ("bag", "mlp") else 3e-3, "weight_decay": 0.0}
    file = write(tmp_path / "train.tsv", rows)
    run = seqloom.train(
        "classify",
        file,
        output=tmp_path / "run",
        model=model,
        size="tiny",
        valid=file,
        training={"max_steps": 200 if model != "bag" else 800, "batch_rows": 32, "valid_every": 100, **settings},
        settings={"dropout": 0.0, **({"encoder.dropout": 0.0} if model == "transformer" else {})},
        device="cpu",
        quiet=True,
    )
    assert run.best is not None
    assert run.best["scores"]["accuracy"] == 100


def test_it_finds_the_word_that_matters(labeller, tmp_path):
    test = write(tmp_path / "test.tsv", sentences(200, seed=9))
    result = labeller.evaluate(test)
    assert result.metrics["accuracy"] > 95
    assert set(result.metrics) == {"accuracy", "macro_f1", "calibration_error"}
    assert len(result.predictions) == result.count == 200
    weights = labeller.attention("the film was awful and a story")
    assert max(weights, key=lambda pair: pair[1])[0] == "awful"
    assert sum(weight for _, weight in weights) == pytest.approx(1, abs=1e-5)


def test_answers_with_probabilities(labeller):
    asked = ["the film was lovely", "", "dull plot"]
    found = list(labeller.answers(asked, Search(beam=3, n_best=3)))
    assert [answers[0].text for answers in found] == ["pos", "", "neg"]
    for answers in (found[0], found[2]):
        assert len(answers) == 2  # there are no more labels
        assert sum(answer.confidence for answer in answers) == pytest.approx(1, abs=1e-6)
        assert answers[0].confidence >= answers[1].confidence
        assert np.exp(answers[0].log_probability) == pytest.approx(answers[0].confidence)
    assert labeller.predict(asked) == ["pos", "", "neg"]
    assert labeller.predict(asked[0]) == "pos"
    assert labeller.predict(asked[0], n_best=2) == ["pos", "neg"]
    with pytest.raises(SeqloomError, match="--sample and --beam are for other tasks"):
        next(labeller.answers(asked, Search(sample=True)))


def test_answers_are_the_same_in_any_batch(labeller):
    asked = [text for text, _ in sentences(30, seed=4)]
    alone = [answers[0] for answers in labeller.answers(asked, rows=1, ahead=1)]
    together = [answers[0] for answers in labeller.answers(asked, rows=16)]
    assert [one.text for one in alone] == [one.text for one in together]
    np.testing.assert_allclose([one.confidence for one in alone], [one.confidence for one in together], atol=1e-5)


def test_the_record_is_json_and_is_drawn(labeller):
    rows = [*sentences(60, seed=5), ("good <script>", "<b>odd</b>")]
    examples = [Example(text, (label,), "t", 1) for text, label in rows]
    record = json.loads(json.dumps(labeller.evaluation_details(examples)))
    assert record["count"] == record["available"] == 61
    assert record["label_confusion"]["unknown"] == 1
    assert sum(map(sum, record["label_confusion"]["table"])) == 60
    assert {one["label"] for one in record["by_label"]} == {"pos", "neg"}
    assert sum(one["count"] for one in record["calibration"]) == 61
    assert sum(one["count"] for one in record["error_by_length"]) == 61
    assert record["examples"]["worst"][0]["references"] == ["<b>odd</b>"]
    assert record["examples"]["worst"][0]["wrong"] == 1
    assert len(record["looked"]) == 6
    drawn = "".join(sections(record))
    for title in ("By label", "Confusion of labels", "Calibration", "By length of the text", "Attention to words"):
        assert title in drawn
    assert "<script>" not in drawn
    assert labeller.evaluation_details(examples, most=10)["count"] == 10
    assert sections({}) == ["", "", "", ""]


def test_among_the_best_the_worst_mistakes_come_last():
    confidence, errors = [0.6, 0.9, 0.8, 0.99], np.array([0.0, 1.0, 1.0, 0.0])
    asked = [Example(text, ("x",), "t", 1) for text in "abcd"]
    answers = [Answer("x", (), 0.0, 0.0, sure) for sure in confidence]
    picked = example_lists(asked, answers, errors, np.ones(4))
    assert [one["source"] for one in picked["best"]] == ["d", "a", "c", "b"]  # right ones, the surest first; then wrong
    assert [one["source"] for one in picked["worst"]] == ["b", "c"]


def test_the_report_of_the_run_shows_them(labeller):
    page = report(run_facts(labeller.folder))
    assert "Confusion of labels" in page
    assert "accuracy" in page
    assert (labeller.folder / "report.html").exists()


def test_several_labels(tmp_path):
    rows = []
    for text, label in sentences(300):
        also = "film" if "film" in text.split() else ""
        rows.append((text, "|".join(filter(None, [label, also])) or "|"))
    labeller = trained(tmp_path, rows, data={"target": "labels", "class_weights": "balanced"}, steps=200)
    found = next(labeller.answers(["a lovely film", "x"], Search(beam=2, n_best=2)))
    assert [answer.text for answer in found] == ["film|pos"]
    assert 0.5 < found[0].confidence <= 1
    result = labeller.evaluate(tmp_path / "train.tsv")
    assert list(result.metrics) == ["micro_f1", "macro_f1", "accuracy", "calibration_error"]
    assert result.metrics["micro_f1"] > 90
    assert "By label" in "".join(sections(json.loads((labeller.folder / "evaluation-valid.json").read_text())))


def test_numbers(tmp_path):
    rows = [(text, str(1000 + 50 * len(text.split()) + 100 * (label == "pos"))) for text, label in sentences(300)]
    labeller = trained(tmp_path, rows, "lstm", data={"target": "number"}, steps=200)
    result = labeller.evaluate(tmp_path / "train.tsv")
    assert list(result.metrics) == ["mae", "mse", "r2"]
    assert result.metrics["r2"] > 0.8
    assert float(labeller.predict(["a good film"])[0]) == pytest.approx(1250, abs=150)
    record = json.loads((labeller.folder / "evaluation-valid.json").read_text())
    assert "mean absolute error" in "".join(sections(record))
    assert all(one["off"] >= 0 and "wrong" not in one for one in record["examples"]["random"])


def test_logistic_regression_is_for_one_of_two_labels():
    for target in ("labels", "number"):
        with pytest.raises(SeqloomError, match=f"logistic predicts one of two labels, not {target}; choose softmax"):
            TASK.objective(Logistic(9, 2), Training(), {"data": {"target": target}})


def test_majority_counts(tmp_path):
    rows = [("x", "a"), ("y", "b"), ("z", "b"), ("u", "b")] * 5
    labeller = trained(tmp_path, rows, "majority", valid=0.0)
    best, other = next(labeller.answers(["anything"], Search(beam=2, n_best=2)))
    assert (best.text, other.text) == ("b", "a")
    assert best.confidence == pytest.approx(0.75)


def test_training_on_balanced_weights_differs(tmp_path):
    rows = [("good film", "a"), ("dull film", "b"), ("film", "b")] * 4
    heads = []
    for way in ("none", "balanced"):
        (tmp_path / way).mkdir()
        model = trained(tmp_path / way, rows, "bag", steps=3, valid=0.0, data={"class_weights": way}).model
        heads.append(model.head.layers[0].weight)
    assert not torch.equal(*heads)


def validated(tmp_path: Path, train, valid, **data):
    """The scores of an untrained model as training sees them, and as an evaluation of the same file."""
    files = write(tmp_path / "a.tsv", train), write(tmp_path / "v.tsv", valid)
    ready = TASK.prepare(PrepareRequest([str(files[0])], [str(files[1])], TASK.options(**data), seed=1))
    torch.manual_seed(1)
    model, settings = Mlp(**TASK.sizes(ready.vocabularies())), Training(batch_rows=8)
    config = {"task": "classify", "data": asdict(TASK.options(**data))}
    cpu = torch.device("cpu")
    scores = TASK.validator(model, ready, config, cpu)(TASK.objective(model, settings, config), settings, ALONE)
    return scores, TASK.runner(LoadedRun(tmp_path, config, model, ready.vocabularies(), cpu)).evaluate(files[1])


def test_validation_and_evaluation_agree_on_labels_that_the_training_data_lacks(tmp_path):
    rows = [(text, f"{label}|film" if "film" in text.split() else label) for text, label in sentences(100)]
    valid = [(text, f"{label}|odd|new") for text, label in rows[:20]] + rows[20:40]
    scores, found = validated(tmp_path, rows, valid, target="labels")
    assert {name: value for name, value in scores.items() if name != "loss"} == pytest.approx(found.metrics)
    assert scores["micro_f1"] > 0
    assert found.notes == ("20 of 40 examples have labels that the training data lacks",)


def test_where_no_validation_label_is_known_there_is_no_loss(tmp_path):
    scores, found = validated(tmp_path, [("good film", "a"), ("dull film", "b")], [("good", "c"), ("film", "d")])
    assert np.isnan(scores.pop("loss"))
    assert scores == pytest.approx(found.metrics)
    assert scores["accuracy"] == 0


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"shorten_repeats": True}, "shorten_repeats stays False"),
        ({"stop_words": "english"}, "stop_words stays none"),
        ({"separator": ","}, r"separator stays \|"),
        ({"target": "number"}, "target stays label"),
    ],
)
def test_what_the_vocabularies_depend_on_cannot_be_chosen_again(labeller, tmp_path, data, told):
    file = write(tmp_path / "more.tsv", sentences(20, seed=2))
    with pytest.raises(SeqloomError, match=f"brings its vocabularies: {told}"):
        seqloom.train("classify", file, output=tmp_path / "run", start=labeller.folder, data=data, quiet=True)
    assert not (tmp_path / "run").exists()


def test_other_columns_have_a_header_of_their_own(tmp_path):
    made = trained(tmp_path, sentences(60), steps=1, data={"header": False, "detect": False})
    (tmp_path / "other.csv").write_text("id,text,label\n1,good,pos\n2,bad,neg\n")
    assert made.evaluate(str(tmp_path / "other.csv"), reading=made.reading("text,label")).count == 2
    assert made.evaluate(str(tmp_path / "train.tsv")).count == 60
    assert (made.reading().header, made.reading().detect) == (False, False)
