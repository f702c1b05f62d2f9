"""Averaged SGD: when it begins, what is in the mean, and that the training itself does not notice."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from seqloom.build import build
from seqloom.data.batches.language import StreamOptions
from seqloom.data.prepare.language import prepare_language
from seqloom.data.prepare.pairs import DataOptions, prepare_pairs
from seqloom.data.prepare.request import PrepareRequest
from seqloom.errors import SeqloomError
from seqloom.models.language_model import LANGUAGE_MODELS
from seqloom.models.seq2seq import Seq2Seq
from seqloom.training.freeze import freeze
from seqloom.training.loop import Loop
from seqloom.training.objectives.next_token import NextToken
from seqloom.training.objectives.objective import Loss
from seqloom.training.objectives.teacher_forcing import TeacherForcing
from seqloom.training.optim.weight_averaging import Averaging
from seqloom.training.settings import Training

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def corpus(pairs):
    return prepare_pairs(PrepareRequest([str(pairs)], 0.1, DataOptions(target_tokens="words"), seed=1))


def make_loop(corpus, frozen=None, **settings):
    torch.manual_seed(0)
    encoder, decoder = {"kind": "gru", "dim": 8}, {"kind": "attentive", "cell": "gru", "dim": 16}
    model = Seq2Seq(
        corpus.source.size, corpus.target.size, encoder, decoder, embedding=16, tie_embeddings=True, dropout=0.2
    )
    if frozen:
        freeze(model, frozen)
    common = {
        "max_steps": 12,
        "batch_rows": 32,
        "warmup": 1,
        "learning_rate": 0.5,
        "optimizer": "asgd",
        "asgd_patience": 1,
    }
    training = Training.of({**common, "schedule": "constant", **settings})
    return Loop(TeacherForcing(model), corpus.train, training, CPU)


def weights(loop) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in loop.objective.named_parameters()}


def begin(loop) -> None:
    assert [loop.averaging.after_validation(score) for score in (1, 2, 3, 4)] == [False, False, True, False]


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def mean(points: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {name: torch.stack([point[name].double() for point in points]).mean(0) for name in points[0]}


def by_hand(scores: list[float], n: int) -> int | None:
    """Algorithm 1, word for word: t validations are in the log when v comes."""
    logs: list[float] = []
    for t, v in enumerate(scores):
        if t > n and v > min(logs[i] for i in range(t - n)):
            return t
        logs.append(v)
    return None


@pytest.mark.parametrize(
    ("trigger", "scores", "fires"),
    [
        (1, [5, 6], None),  # worse than the one before, which is not more than one ago
        (1, [5, 6, 6], 2),
        (1, [5, 6, 5], None),  # as good is not worse
        (1, [5, 4, 4.5, 4.2], 3),  # 4.5 is still better than the only one more than one ago
        (2, [5, 4, 3, 2, 1, 0], None),
        (2, [5, 4, 3, 6], 3),  # against 5 alone
        (2, [5, 4, 3, 4.5, 3.5, 3.2], 5),
        (5, [3, 1, 2, 2, 2, 2, 2, 2], 7),
        (5, [3, 1, 2, 2, 2, 2, 1, 0.5, 1, 1], None),
        (5, [1, 2, 3, 4, 5, 6], None),  # five in the log are too few
        (5, [1, 2, 3, 4, 5, 6, 7], 6),
        (1, [5, math.inf, math.inf], 2),  # what is not a number is worst
        (1, [math.inf, math.inf, math.inf], None),
    ],
)
def test_fires_when_algorithm_1_says(trigger, scores, fires):
    averaging = Averaging(nn.Linear(2, 2), Training.of({"optimizer": "asgd", "asgd_patience": trigger}), CPU)
    found = [averaging.after_validation(score) for score in scores]
    assert [at for at, fired in enumerate(found) if fired] == ([] if fires is None else [fires])
    assert by_hand(scores, trigger) == fires
    assert averaging.started == (fires is not None)


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_others_never_average(corpus, optimiser):
    loop = make_loop(corpus, optimizer=optimiser)
    assert not any(loop.averaging.after_validation(score) for score in range(20))
    assert not loop.averaging.started
    assert not any(name.startswith("mean.") for name in loop.state()[0])


def test_the_mean_is_that_of_all_weights_since_the_trigger(corpus):
    loop = make_loop(corpus)
    points, names = [], {name for name, _ in loop.objective.named_parameters()}
    for update in loop:
        if update.step == 4:
            begin(loop)
        if update.step >= 4:
            points.append(weights(loop))
    assert loop.averaging.count == len(points) == 9
    assert loop.averaging.means.keys() == names  # a tied matrix once
    for name, wanted in mean(points).items():
        assert torch.allclose(loop.averaging.means[name].double(), wanted, atol=1e-6), name
        assert loop.averaging.means[name].dtype == torch.float32
    assert not same(loop.averaging.means, weights(loop))


def test_a_running_mean_forgets_by_its_decay(corpus):
    """d mean + (1 − d) weights, and the plain mean while that has more of the last weights."""
    loop = make_loop(corpus, optimizer="adamw", learning_rate=1e-2, ema=0.75)
    wanted: dict[str, torch.Tensor] = {}
    for update in loop:
        share = max(1 / update.step, 0.25)
        for name, now in weights(loop).items():
            wanted[name] = now.double() if update.step == 1 else (1 - share) * wanted[name] + share * now.double()
    assert loop.averaging.started
    assert loop.averaging.count == 12
    for name, value in wanted.items():
        assert torch.allclose(loop.averaging.means[name].double(), value, atol=1e-6), name


def test_a_running_mean_goes_on_exactly(corpus):
    settings = {"optimizer": "adamw", "learning_rate": 1e-2, "ema": 0.9}
    whole, first, second = (make_loop(corpus, **settings) for _ in range(3))
    for loop, until in ((whole, 12), (first, 5)):
        torch.manual_seed(3)
        next(update for update in loop if update.step == until)
    tensors, values = first.state()
    second.objective.load_state_dict(first.objective.state_dict())
    second.restore({name: tensor.clone() for name, tensor in tensors.items()}, values)
    next(update for update in second if update.step == 12)
    assert same(weights(whole), weights(second))
    assert same(whole.averaging.means, second.averaging.means)


class Poisoned(nn.Module):
    """Gives NaN at chosen calls."""

    def __init__(self, inner, bad):
        super().__init__()
        self.inner, self.bad, self.calls = inner, bad, 0

    def forward(self, batch):
        self.calls += 1
        loss = self.inner(batch)
        return Loss(loss.total * float("nan"), loss.count) if self.calls in self.bad else loss


def test_an_update_that_is_skipped_does_not_count(corpus):
    loop = make_loop(corpus, max_steps=6)
    loop.objective = loop.forward_backward.objective = Poisoned(loop.objective, {4})
    begin(loop)
    points = [weights(loop)]
    points += [weights(loop) for update in loop if update.step != 4]
    assert loop.averaging.count == len(points) == 6
    for name, wanted in mean(points).items():
        name = name.removeprefix("inner.")
        assert torch.allclose(loop.averaging.means[name].double(), wanted, atol=1e-6), name


def test_the_mean_is_shown_and_the_weights_come_back(corpus):
    loop = make_loop(corpus)
    with loop.averaging.applied():
        first = weights(loop)
    assert same(first, weights(loop))  # nothing to show yet
    begin(loop)
    list(loop)
    plain, means = weights(loop), {name: mean.clone() for name, mean in loop.averaging.means.items()}
    with loop.averaging.applied():
        assert same(weights(loop), means)
        assert not same(weights(loop), plain)
    assert same(weights(loop), plain)
    assert same(loop.averaging.means, means)
    with pytest.raises(ZeroDivisionError), loop.averaging.applied():
        _ = 1 / 0
    assert same(weights(loop), plain)


def test_the_training_does_not_notice(corpus):
    """Bit for bit the course of sgd without momentum, with validations in between."""
    courses = []
    for settings in ({"optimizer": "asgd"}, {"optimizer": "sgd", "momentum": 0.0}):
        loop = make_loop(corpus, **settings)
        torch.manual_seed(3)
        for update in loop:
            with loop.averaging.applied():
                loop.averaging.after_validation(update.step)
        courses.append(weights(loop))
    assert same(*courses)


def test_frozen_parts_are_not_in_the_mean(corpus):
    loop = make_loop(corpus, frozen="encoder,source")
    before = weights(loop)
    begin(loop)
    list(loop)
    assert loop.averaging.means
    assert not any(name.startswith(("model.encoder", "model.source")) for name in loop.averaging.means)
    with loop.averaging.applied():
        shown = weights(loop)
    assert {name for name in before if torch.equal(shown[name], before[name])} == (
        before.keys() - loop.averaging.means.keys()
    )


def test_dropped_weights_are_averaged_whole(tmp_path):
    """Of an AWD-LSTM the mean is that of the weights as they are trained, not of what a mask left of them."""
    file = tmp_path / "text.txt"
    file.write_text("the cat sat on the mat.\n" * 30)
    ready = prepare_language(PrepareRequest([str(file)], 0.0, StreamOptions(length=10), seed=1))
    torch.manual_seed(0)
    encoder = {"kind": "lstm", "dim": 16, "layers": 2, "weight_drop": 0.5}
    choice = {"kind": "language", "encoder": encoder, "embedding": 16, "tie_embeddings": True}
    model = build(LANGUAGE_MODELS, choice, source_size=ready.codec.size, labels=0)
    training = Training.of(
        {"optimizer": "asgd", "asgd_patience": 1, "max_steps": 6, "batch_rows": 4, "learning_rate": 1.0}
    )
    loop = Loop(NextToken(model), ready.train, training, CPU)
    begin(loop)
    points = [weights(loop)]
    points += [weights(loop) for _ in loop]
    assert loop.averaging.means.keys() == points[0].keys()
    for name, wanted in mean(points).items():
        assert torch.allclose(loop.averaging.means[name].double(), wanted, atol=1e-6), name
        assert not (loop.averaging.means[name] == 0).any() or "bias" in name


@pytest.mark.parametrize("stop", [3, 8])
def test_goes_on_exactly_before_and_after_the_trigger(corpus, stop):
    def course(loop, until):
        for update in loop:
            loop.averaging.after_validation(update.step)  # each worse than the one before: fires at the sixth
            if update.step == until:
                return

    whole, first = make_loop(corpus, asgd_patience=4), make_loop(corpus, asgd_patience=4)
    for loop, until in ((whole, 12), (first, stop)):
        torch.manual_seed(3)
        course(loop, until)
    assert first.averaging.started == (stop == 8)
    tensors, values = first.state()
    second = make_loop(corpus, asgd_patience=4)
    second.objective.load_state_dict(first.objective.state_dict())
    second.restore({name: tensor.clone() for name, tensor in tensors.items()}, values)
    course(second, 12)
    assert whole.averaging.started
    assert same(weights(whole), weights(second))
    assert same(whole.averaging.means, second.averaging.means)
    assert whole.state()[1]["averaging"] == second.state()[1]["averaging"]


def test_a_checkpoint_from_before_averaging_is_read(corpus):
    first, second = make_loop(corpus, optimizer="sgd"), make_loop(corpus, optimizer="sgd")
    tensors, values = first.state()
    del values["averaging"]
    second.restore(tensors, values)
    assert not second.averaging.started


def test_settings_are_checked():
    asgd = Training.of({"optimizer": "asgd"})
    assert (asgd.asgd_patience, asgd.momentum) == (5, 0.0)
    assert Training.of({"optimizer": "sgd"}).momentum == 0.9
    for wrong, told in (
        ({"asgd_patience": 0}, "asgd_patience must be above 0"),
        ({"asgd_patience": 1.5}, "takes a whole number"),
        ({"momentum": 0.9}, "asgd has no momentum, here 0.9: leave training.momentum out"),
        ({"average_checkpoints": 3}, "leave --average-checkpoints out"),
        (
            {"patience": 5},
            "patience 5 would end the training before asgd averages: set it above training.asgd_patience",
        ),
    ):
        with pytest.raises(SeqloomError, match=told):
            Training.of({"optimizer": "asgd", **wrong})
    assert Training.of({"optimizer": "asgd", "patience": 6}).patience == 6
    with pytest.raises(SeqloomError, match="ema and asgd are two ways to average"):
        Training.of({"optimizer": "asgd", "ema": 0.9})
    with pytest.raises(SeqloomError, match="ema and --average-checkpoints are two ways to average"):
        Training.of({"average_checkpoints": 3, "ema": 0.9})
    with pytest.raises(SeqloomError, match=r"training.ema is at least 0 and below 1"):
        Training.of({"ema": 1.0})
