"""What somebody adds to a table is used by its name from the command line: an objective, a decoding, a schedule, an
optimizer, a metric. Each is one function or class and one entry."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import yaml

from seqloom.decoding.decoding_table import DECODINGS
from seqloom.decoding.greedy import decode_stepwise
from seqloom.metrics.metric import CorpusScore
from seqloom.metrics.metric_table import HIGHER, METRICS, Metric
from seqloom.training.objectives.labels import LabelObjective
from seqloom.training.objectives.objective import Loss, Objective
from seqloom.training.objectives.objective_table import OBJECTIVES
from seqloom.training.objectives.teacher_forcing import TeacherForcing
from seqloom.training.optim.optimizer_table import OPTIMIZERS, Optimizer
from seqloom.training.optim.schedule import SCHEDULES, Point
from tests.cli.conftest import one_line
from tests.conftest import pronounce, words

SHORT = [
    "--size",
    "tiny",
    "--max-steps",
    "2",
    "--quiet",
    "--set",
    "training.log_every=1",
    "--set",
    "training.valid_every=1",
]


@pytest.fixture
def pairs(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{word}\t{pronounce(word)}\n" for word in words(40, seed=1)), encoding="utf-8")
    return file


@pytest.fixture
def train(seqloom, pairs, tmp_path):
    """Two steps of a translation with more options; returns the run's folder."""

    def run(*options: str):
        folder = tmp_path / "run"
        status, _, err = seqloom("train", "translate", pairs, "-o", folder, "--valid", "20%", *SHORT, *options)
        assert status == 0, err
        return folder

    return run


def config(folder) -> dict:
    return yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))["training"]


def losses(folder) -> list[float]:
    lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["loss"] for line in lines if "norm" in line]


class Weighted(Objective):
    """Teacher forcing times `weight` in training."""

    tasks = ("translate",)

    def __init__(self, model, label_smoothing: float = 0.0, weight: float = 2.0) -> None:
        super().__init__(model)
        self.smoothing, self.weight = label_smoothing, weight

    def forward(self, batch) -> Loss:
        total, count, _ = TeacherForcing(self.model, self.smoothing).train(self.training)(batch)
        return Loss(total * (self.weight if self.training else 1.0), count)


class Hinge(LabelObjective):
    """Σ max(0, 1 − the right score + the best other)."""

    targets = ("label",)

    def loss(self, logits, batch) -> Loss:
        right = logits.gather(1, batch.target[:, None])
        return Loss(
            (1 + logits.scatter(1, batch.target[:, None], -1e4).amax(1) - right[:, 0]).relu().sum(), batch.count
        )


def test_an_objective(monkeypatch, seqloom, train, pairs, tmp_path):
    plain = losses(train())
    monkeypatch.setitem(OBJECTIVES, "weighted", Weighted)
    (tmp_path / "run").rename(tmp_path / "plain")
    settings = ("--set", "training.objective=weighted", "--set", "training.objective.weight=3")
    folder = train(*settings)
    assert config(folder)["objective"] == {"kind": "weighted", "weight": 3.0}
    assert losses(folder)[0] == pytest.approx(3 * plain[0], rel=1e-5)
    resume = ("train", "translate", pairs, "-o", folder, "--resume", "--quiet", "--max-steps")
    assert seqloom(*resume, 3)[0] == 0
    one_line(seqloom(*resume, 4, "--set", "training.objective.weight=1"), "cannot resume", "objective.weight")
    older = yaml.safe_load((tmp_path / "plain" / "config.yaml").read_text(encoding="utf-8"))
    assert older["training"].pop("objective") == "auto"
    (tmp_path / "plain" / "config.yaml").write_text(yaml.safe_dump(older), encoding="utf-8")
    again = ("train", "translate", pairs, "-o", tmp_path / "plain", "--resume", "--quiet", "--max-steps", 3)
    assert seqloom(*again)[0] == 0, "a config of an earlier version has no objective"


def test_a_wrong_objective_is_refused_in_a_line(monkeypatch, seqloom, pairs, tmp_path):
    monkeypatch.setitem(OBJECTIVES, "weighted", Weighted)
    monkeypatch.setitem(OBJECTIVES, "hinge", Hinge)
    start = ("train", "translate", pairs, "-o", tmp_path / "run", *SHORT, "--set")
    one_line(seqloom(*start, "training.objective=wieghted"), "did you mean 'weighted'")
    one_line(seqloom(*start, "training.objective=hinge"), "hinge is not for translate; choose from: teacher-forcing")
    choice = ("training.objective=weighted", "--set")
    one_line(seqloom(*start, *choice, "training.objective.wieght=1"), "did you mean 'weight'")
    one_line(seqloom(*start, *choice, "training.objective.label_smoothing=0.1"), "set training.label_smoothing")
    one_line(seqloom(*start, *choice, "training.r_drop=1"), "training.r_drop goes with")
    labels = tmp_path / "numbers.tsv"
    labels.write_text("".join(f"{word}\t{len(word)}\n" for word in words(40, seed=1)), encoding="utf-8")
    number = ("train", "classify", labels, "-o", tmp_path / "number", *SHORT, "--target", "number", "--set")
    one_line(seqloom(*number, "training.objective=hinge"), "classify with the target number", "squared-error")


def test_an_objective_of_labels(monkeypatch, seqloom, tmp_path):
    monkeypatch.setitem(OBJECTIVES, "hinge", Hinge)
    file, folder = tmp_path / "labels.tsv", tmp_path / "run"
    file.write_text("".join(f"{word} x\t{len(word) % 2}\n" for word in words(40, seed=1)), encoding="utf-8")
    how = ("--valid", "20%", *SHORT, "--set", "training.objective=hinge")
    assert seqloom("train", "classify", file, "-o", folder, *how)[0] == 0
    assert config(folder)["objective"] == "hinge"


def second_best(stepper, source, limits, search, indices, rank: int = 1):
    """The token of this rank at every step."""
    return decode_stepwise(stepper, source, limits, lambda logits, *_: logits.topk(rank + 1).indices[:, -1], 1, search)


def test_a_decoding(monkeypatch, seqloom, train, pairs):
    folder = train()
    predict = ("predict", folder, "--text", "cab", "--text", "bad")
    greedy = seqloom(*predict)[1]
    assert seqloom(*predict, "--decoding", "greedy")[1] == greedy
    assert seqloom(*predict, "--decoding", "beam", "--beam", 2)[1] == seqloom(*predict, "--beam", 2)[1]
    drawn = seqloom(*predict, "--sample", "--n-best", 2)[1]
    assert seqloom(*predict, "--decoding", "sample", "--n-best", 2)[1] == drawn != greedy
    monkeypatch.setitem(DECODINGS, "second", second_best)
    assert seqloom(*predict, "--decoding", "second:rank=0")[1] == greedy
    assert seqloom(*predict, "--decoding", "second")[1] != greedy
    status, out, _ = seqloom("evaluate", folder, pairs, "--decoding", "second:rank=0")
    assert status == 0
    assert ", second" in out
    one_line(seqloom(*predict, "--decoding", "secnd"), "--decoding: ", "did you mean 'second'")
    one_line(seqloom(*predict, "--decoding", "second:rnak=1"), "did you mean 'rank'")
    one_line(seqloom(*predict, "--decoding", "second:rank"), "name:setting=value")
    one_line(seqloom(*predict, "--decoding", "greedy", "--beam", 3), "the decoding greedy has no beam")
    one_line(seqloom(*predict, "--decoding", "beam", "--sample"), "no sampling")


def test_a_decoding_is_for_targets_alone(monkeypatch, seqloom, tmp_path):
    monkeypatch.setitem(DECODINGS, "second", second_best)
    file, folder = tmp_path / "book.txt", tmp_path / "run"
    file.write_text(" ".join(words(400, seed=1)), encoding="utf-8")
    assert seqloom("train", "generate", file, "-o", folder, "--valid", "20%", *SHORT)[0] == 0
    predict = ("predict", folder, "--text", "a", "--decoding")
    one_line(seqloom(*predict, "second"), "greedy search or by sampling; there is no second here")
    one_line(seqloom("evaluate", folder, file, "--decoding", "second"), "--decoding is for translations")


def steps_down(at: Point, every: int = 1) -> float:
    """Halved after so many updates."""
    return at.peak * 0.5 ** ((at.step - 1) // every)


def test_a_schedule(monkeypatch, seqloom, train, pairs, tmp_path):
    monkeypatch.setitem(SCHEDULES, "steps", steps_down)
    folder = train("--schedule", "steps", "--learning-rate", "0.4")
    assert config(folder)["schedule"] == {"kind": "steps", "every": 1}
    lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    assert [line["learning_rate"] for line in lines if "norm" in line] == [0.4, 0.2]
    assert seqloom("train", "translate", pairs, "-o", folder, "--resume", "--quiet", "--max-steps", 3)[0] == 0
    start = ("train", "translate", pairs, "-o", tmp_path / "other", *SHORT, "--schedule")
    one_line(seqloom(*start, "stpes"), "unknown schedule 'stpes'; did you mean 'steps'")
    one_line(seqloom(*start, "steps", "--set", "training.schedule.evry=2"), "did you mean 'every'")
    one_line(seqloom(*start, "steps", "--set", "training.schedule.every=x"), "takes a whole number")


def adagrad(model, groups, settings, eps: float = 1e-10) -> torch.optim.Optimizer:
    """Adagrad (Duchi et al. 2011), not fused."""
    return torch.optim.Adagrad(groups, lr=settings.learning_rate, eps=eps)


def test_an_optimizer(monkeypatch, seqloom, train, pairs, tmp_path):
    monkeypatch.setitem(OPTIMIZERS, "adagrad", Optimizer(adagrad, momentum=False))
    how = ("--set", "training.optimizer.eps=1e-8", "--schedule", "constant")
    folder = train("--optimizer", "adagrad", *how)
    assert config(folder)["optimizer"] == {"kind": "adagrad", "eps": 1e-8}
    assert config(folder)["momentum"] == 0.0
    assert seqloom("train", "translate", pairs, "-o", folder, "--resume", "--quiet", "--max-steps", 4)[0] == 0
    folder.rename(tmp_path / "resumed")
    train("--optimizer", "adagrad", *how, "--max-steps", "4")
    assert losses(folder) == losses(tmp_path / "resumed")
    start = ("train", "translate", pairs, "-o", tmp_path / "other", *SHORT, "--optimizer")
    one_line(seqloom(*start, "adagard"), "unknown optimizer 'adagard'; did you mean 'adagrad'")
    one_line(seqloom(*start, "adagrad", "--set", "training.momentum=0.5"), "adagrad has no momentum")
    one_line(seqloom(*start, "sgd", "--set", "training.optimizer.eps=1"), "unknown setting of sgd 'eps'")


def length_match(examples) -> CorpusScore:
    """Share of predictions that are as long as a reference."""
    pairs = zip(examples.predictions, examples.references, strict=True)
    table = [[len(text) in {len(line) for line in several}, 1] for text, several in pairs]
    return CorpusScore(np.array(table, np.float64).reshape(-1, 2), lambda sums: 100 * sums[0] / max(sums[1], 1), "mine")


def first_tags(tagged) -> CorpusScore:
    """Share of sentences whose first tag is right."""
    pairs = zip(tagged.predictions, tagged.references, strict=True)
    table = [[ours[:1] == theirs[:1], 1] for ours, theirs in pairs]
    return CorpusScore(np.array(table, np.float64).reshape(-1, 2), lambda sums: 100 * sums[0] / max(sums[1], 1), "mine")


def validations(folder) -> list[dict]:
    lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["valid"] for line in lines if "valid" in line]


def test_a_metric(monkeypatch, seqloom, train, pairs, tmp_path):
    mine = Metric("equally long", "%", HIGHER, "as long as a reference", {"texts": length_match}, selects=True)
    monkeypatch.setitem(METRICS, "length_match", mine)
    folder = train("--set", "training.select=length_match")
    assert config(folder)["select"] == "length_match"
    assert all("length_match" in scores for scores in validations(folder))
    assert "length_match" in seqloom("evaluate", folder, pairs, "--metrics", "length_match")[1]
    one_line(seqloom("evaluate", folder, pairs, "--metrics", "lenght_match"), "did you mean 'length_match'")
    assert seqloom("report", folder)[0] == 0
    assert "equally long" in (folder / "report.html").read_text(encoding="utf-8").casefold()
    start = ("train", "tag", pairs, "-o", tmp_path / "other", *SHORT, "--set")
    one_line(seqloom(*start, "training.select=length_match"), "score to select by in tag")


def test_a_metric_of_tags(monkeypatch, seqloom, tmp_path):
    mine = Metric("first tags", "%", HIGHER, "sentences whose first tag is right", {"tags": first_tags}, selects=True)
    monkeypatch.setitem(METRICS, "first_tags", mine)
    file, folder = tmp_path / "tags.tsv", tmp_path / "run"
    file.write_text("".join(f"{word}\t{word[0]}\nx\ty\n\n" for word in words(40, seed=1)), encoding="utf-8")
    how = ("--valid", "20%", *SHORT, "--set", "training.select=first_tags")
    status, _, err = seqloom("train", "tag", file, "-o", folder, *how)
    assert status == 0, err
    assert all(scores["first_tags"] <= 100 for scores in validations(folder))
    assert "first_tags" in seqloom("evaluate", folder, file)[1]
