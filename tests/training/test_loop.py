"""The loop: what adds up, what is skipped, what is repeated, and what never waits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from seqloom import hardware
from seqloom.build import build
from seqloom.data.prepare.pairs import DataOptions, prepare_pairs
from seqloom.data.prepare.request import PrepareRequest
from seqloom.metrics.metric_table import selectable
from seqloom.metrics.text.text_metrics import METRICS
from seqloom.models.seq2seq import MODELS, Seq2Seq
from seqloom.tasks.translate.presets import PRESETS, preset
from seqloom.training.checkpoint import load_weights, trained_tensors
from seqloom.training.distributed.sharding import saved_buffers
from seqloom.training.loop import Loop, NonFiniteError
from seqloom.training.objectives.objective import Loss
from seqloom.training.objectives.teacher_forcing import TeacherForcing
from seqloom.training.optim.optimizer import apply_gradients, make_optimizer
from seqloom.training.optim.schedule import Plateau, learning_rate_at
from seqloom.training.settings import Training, parse_seconds

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def corpus(pairs):
    return prepare_pairs(PrepareRequest([str(pairs)], 0.1, DataOptions(target_tokens="words"), seed=1))


def make_model(data, dropout=0.0):
    torch.manual_seed(0)
    encoder = {"kind": "gru", "dim": 16}
    decoder = {"kind": "attentive", "cell": "gru", "dim": 32}
    return Seq2Seq(data.source.size, data.target.size, encoder, decoder, embedding=16, dropout=dropout)


def make_loop(data, model=None, dropout=0.0, **settings):
    model = model or make_model(data, dropout)
    training = Training.of({"max_steps": 4, "batch_rows": 32, "warmup": 1, "schedule": "constant", **settings})
    return Loop(TeacherForcing(model, training.label_smoothing), data.train, training, CPU)


def weights(loop):
    return [p.detach().clone() for p in loop.objective.parameters()]


def close(one, other, atol=1e-6):
    return all(torch.allclose(a, b, atol=atol) for a, b in zip(one, other, strict=True))


def test_the_loss_is_over_real_tokens_only(corpus):
    batch = corpus.train.batch(np.arange(20))
    model = make_model(corpus).eval()
    loss = TeacherForcing(model)(batch)
    logits = model(batch.source, batch.target.tokens[:, :-1])
    labels = batch.target.tokens[:, 1:]
    by_hand = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=0, reduction="sum")
    assert math.isclose(loss.total.item(), by_hand.item(), rel_tol=1e-5)
    assert loss.count == int((labels != 0).sum()) == sum(batch.target.host) - 20


def test_smoothing_is_for_training_alone(corpus):
    batch = corpus.train.batch(np.arange(8))
    objective = TeacherForcing(make_model(corpus), label_smoothing=0.2)
    assert objective(batch).total > TeacherForcing(objective.model)(batch).total
    assert torch.equal(objective.eval()(batch).total, TeacherForcing(objective.model).eval()(batch).total)


def test_accumulated_ragged_batches_equal_one_large(corpus):
    """A mean of means would differ: the batches have unlike numbers of tokens."""
    small, large = make_loop(corpus, batch_rows=16, accumulate=4), make_loop(corpus, batch_rows=64)
    rows = np.concatenate([small.plan[i] for i in range(4)])
    batches = [corpus.train.batch(small.plan[i]) for i in range(4)]
    assert len({len(b.index) for b in batches}) > 1
    for loop, chosen in ((small, batches), (large, [corpus.train.batch(rows)])):
        loss = loop._accumulate(chosen)
        apply_gradients(loop.optimizer, loop.objective.parameters(), loss.count, 1.0)
    assert close(weights(small), weights(large))


def test_a_step_equals_torch_clip_and_adamw(corpus):
    ours, theirs = make_loop(corpus, clip=0.1), make_model(corpus)
    batch = corpus.train.batch(ours.plan[0])
    loss = ours._accumulate([batch])
    norm = apply_gradients(ours.optimizer, ours.objective.parameters(), loss.count, 0.1)
    total, count, _ = TeacherForcing(theirs)(batch)
    (total / count).backward()
    assert torch.allclose(nn.utils.clip_grad_norm_(theirs.parameters(), 0.1), norm)
    assert norm > 0.1  # else nothing was clipped
    matrices = {"params": [p for p in theirs.parameters() if p.dim() > 1], "weight_decay": 0.01}
    vectors = {"params": [p for p in theirs.parameters() if p.dim() <= 1], "weight_decay": 0.0}
    torch.optim.AdamW([matrices, vectors], lr=1e-3, betas=(0.9, 0.98), eps=1e-9).step()
    assert close(weights(ours), [p.detach() for p in theirs.parameters()])


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_both_betas_are_those_that_were_set(corpus, kind):
    usual, other = (make_loop(corpus, optimizer=kind, **more) for more in ({}, {"momentum": 0.8, "beta2": 0.999}))
    assert {group["betas"] for group in usual.optimizer.param_groups if "betas" in group} == {(0.9, 0.98)}
    assert {group["betas"] for group in other.optimizer.param_groups if "betas" in group} == {(0.8, 0.999)}
    for loop in (usual, other):
        for _ in zip(range(3), loop, strict=False):
            pass
    assert not close(weights(usual), weights(other))


@pytest.mark.parametrize("kind", ["adamw", "muon", "sgd", "asgd"])
def test_an_update_that_is_not_finite_changes_nothing(corpus, kind):
    loop = make_loop(corpus, optimizer=kind)
    next(iter(loop))
    before, state = weights(loop), {k: v.clone() for k, v in loop.state()[0].items() if k.startswith("optimiser")}
    for parameter in loop.objective.parameters():
        parameter.grad = torch.full_like(parameter, float("nan"))
    apply_gradients(loop.optimizer, loop.objective.parameters(), 10, 1.0)
    assert all(torch.equal(a, b) for a, b in zip(weights(loop), before, strict=True))
    assert all(torch.equal(loop.state()[0][k], v) for k, v in state.items())


@pytest.mark.parametrize("kind", ["adamw", "muon", "sgd", "asgd"])
def test_a_first_update_that_is_not_finite_leaves_no_trace(corpus, kind):
    bad, good = make_loop(corpus, optimizer=kind), make_loop(corpus, optimizer=kind)
    for parameter in bad.objective.parameters():
        parameter.grad = torch.full_like(parameter, float("nan"))
    apply_gradients(bad.optimizer, bad.objective.parameters(), 10, 1.0)
    batch = corpus.train.batch(bad.plan[0])
    for loop in (bad, good):
        loop.optimizer.zero_grad()
        loss = loop._accumulate([batch])
        apply_gradients(loop.optimizer, loop.objective.parameters(), loss.count, 1.0)
    assert all(torch.equal(a, b) for a, b in zip(weights(bad), weights(good), strict=True))


class Poisoned(nn.Module):
    """Gives NaN at chosen calls."""

    def __init__(self, inner, bad):
        super().__init__()
        self.inner, self.bad, self.calls = inner, bad, 0

    def forward(self, batch):
        self.calls += 1
        loss = self.inner(batch)
        return Loss(loss.total * float("nan"), loss.count) if self.calls in self.bad else loss


def test_a_bad_batch_is_skipped_and_named_a_step_late(corpus):
    loop = make_loop(corpus, max_steps=6)
    loop.objective = loop.forward_backward.objective = Poisoned(loop.objective, {3})
    updates = list(loop)
    assert [u.skipped["step"] if u.skipped else None for u in updates] == [None, None, None, 3, None, None]
    assert updates[3].skipped["rows"] == loop.plan[2].tolist()
    assert updates[2].loss == updates[2].count == 0
    assert updates[3].count > 0
    assert all(p.isfinite().all() for p in loop.objective.parameters())


def test_five_bad_batches_in_a_row_end_the_training_with_the_last_good_weights(corpus):
    loop = make_loop(corpus, max_steps=20)
    loop.objective = loop.forward_backward.objective = Poisoned(
        loop.objective, set(range(3, 8))
    )  # the eighth is good, but comes too late
    steps = iter(loop)
    assert [next(steps).step for _ in range(2)] == [1, 2]
    kept = weights(loop)
    with pytest.raises(NonFiniteError, match="step 7"):
        list(steps)
    assert all(torch.equal(a, b) for a, b in zip(weights(loop), kept, strict=True))


class Greedy(nn.Module):
    """Runs out of memory on more than `most` rows."""

    def __init__(self, inner, most):
        super().__init__()
        self.inner, self.most, self.seen = inner, most, []

    def forward(self, batch):
        self.seen.append(len(batch.rows))
        if len(batch.rows) > self.most:
            torch.rand(3)  # a failed attempt may already have drawn random numbers
            raise torch.OutOfMemoryError("no memory")
        return self.inner(batch)


def test_out_of_memory_halves_the_pieces_and_keeps_the_batch(corpus):
    calm, tight = make_loop(corpus), make_loop(corpus)
    tight.objective = tight.forward_backward.objective = Greedy(tight.objective, 8)
    torch.manual_seed(5)
    list(calm)
    after = torch.get_rng_state()
    torch.manual_seed(5)
    list(tight)
    assert torch.equal(after, torch.get_rng_state())
    assert tight.micro_batches == 4
    assert tight.objective.seen[:6] == [32, 16, 8, 8, 8, 8]
    assert close(weights(calm), [p.detach() for p in tight.objective.inner.parameters()])


def test_another_runtime_error_is_not_taken_for_memory(corpus):
    loop = make_loop(corpus)
    loop.objective.forward = lambda batch: (_ for _ in ()).throw(RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes"):
        list(loop)


def test_state_goes_out_and_comes_back(corpus):
    """Stop after any step, build everything anew, go on: bit-identical, dropout and all."""
    torch.manual_seed(3)
    whole = make_loop(corpus, dropout=0.3, max_steps=30, batch_rows=64)
    list(whole)
    torch.manual_seed(3)
    first = make_loop(corpus, dropout=0.3, max_steps=30, batch_rows=64)
    for update in first:
        if update.step == 13:  # in the second epoch
            break
    tensors, values = first.state()
    kept = [p.detach().clone() for p in first.objective.parameters()]
    torch.manual_seed(99)
    second = make_loop(corpus, dropout=0.3, max_steps=30, batch_rows=64)
    with torch.no_grad():
        for parameter, value in zip(second.objective.parameters(), kept, strict=True):
            parameter.copy_(value)
    second.restore({k: v.clone() for k, v in tensors.items()}, values)
    list(second)
    assert first.epoch == 1
    assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(second), strict=True))
    assert torch.equal(whole.state()[0]["order"], second.state()[0]["order"])


def test_schedules():
    s = Training.of({"learning_rate": 1.0, "warmup": 10, "schedule": "inverse-sqrt", "max_steps": 100})
    assert learning_rate_at(5, s, 0) == 0.5
    assert learning_rate_at(10, s, 0) == 1.0
    assert learning_rate_at(40, s, 0) == 0.5
    s = Training.of({"learning_rate": 1.0, "warmup": 10, "schedule": "cosine", "max_steps": 100})
    assert learning_rate_at(5, s, 0.0) == 0.5
    assert math.isclose(learning_rate_at(50, s, 0.5), 0.505)
    assert math.isclose(learning_rate_at(100, s, 1.0), 0.01)
    s = Training.of({"learning_rate": 1.0, "warmup": 0, "schedule": "plateau", "max_steps": 100})
    plateau = Plateau()
    for better in (True, False, False, False):
        plateau.update(better)
    assert learning_rate_at(50, s, 0.5, plateau.factor) == 0.5


def test_stops_by_steps_epochs_and_time(corpus):
    loop = make_loop(corpus, max_steps=3)
    assert [u.step for u in loop] == [1, 2, 3]
    loop = make_loop(corpus, max_steps=None, epochs=2, batch_rows=200)
    updates = list(loop)
    assert sum(u.ends_epoch for u in updates) == 2
    assert updates[-1].ends_epoch
    loop = make_loop(corpus, max_steps=None, time=0.2)
    list(loop)
    assert 0.2 <= loop.elapsed < 5


def test_bf16_trains_beside_fp32(corpus):
    curves = []
    for precision in ("fp32", "bf16"):
        loop = make_loop(corpus, precision=precision, max_steps=60, learning_rate=5e-3)
        losses = [(u.loss / u.count).item() for u in loop]
        curves.append((losses[0], sum(losses[-10:]) / 10))
        assert all(p.dtype == torch.float32 for p in loop.objective.parameters())
    assert curves[1][1] < 0.7 * curves[1][0]
    assert abs(curves[0][1] - curves[1][1]) < 0.15


def test_a_processor_without_bf16_trains_in_fp32(corpus, monkeypatch):
    monkeypatch.setattr(hardware, "_BF16", False)
    one, other = ([u.loss.item() for u in make_loop(corpus, precision=kind, max_steps=3)] for kind in ("fp32", "bf16"))
    assert one == other


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("model", PRESETS)
def test_every_preset_trains_in_bf16(corpus, model, device):
    torch.manual_seed(0)
    sizes = {"source_size": corpus.source.size, "target_size": corpus.target.size}
    built = build(MODELS, {"kind": "seq2seq", **preset(model, "tiny")}, **sizes).to(device)
    settings = Training.of({"precision": "bf16", "max_steps": 12, "batch_rows": 64, "learning_rate": 3e-3, "warmup": 1})
    losses = [
        (u.loss / u.count).item() for u in Loop(TeacherForcing(built), corpus.train, settings, torch.device(device))
    ]
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("kind", ["adamw", "muon", "sgd", "asgd"])
def test_no_step_waits_for_the_host(corpus, monkeypatch, kind):
    """On a GPU, .item(), .tolist() and bool() of a tensor make the host wait: none in a step, one late read aside."""
    loop = make_loop(corpus, max_steps=5, optimizer=kind, asgd_patience=1)
    assert any(loop.averaging.after_validation(score) for score in (1, 2, 3)) == (kind == "asgd")
    reads = []
    for name in ("item", "tolist", "__bool__", "__float__", "__int__", "nonzero", "numpy"):
        plain = getattr(torch.Tensor, name)
        monkeypatch.setattr(torch.Tensor, name, lambda *a, _n=name, _p=plain: (reads.append(_n), _p(*a))[1])
    steps = iter(loop)
    next(steps)
    reads.clear()
    next(steps)
    assert reads == ["__float__"], "only the flag of the step before"


def test_settings_are_checked():
    from seqloom.errors import SeqloomError

    assert Training.of({}).epochs == 20
    assert Training.of({"patience": 3}).epochs == 100
    assert Training.of({"learning_rate": "1e-3"}).learning_rate == 1e-3  # as YAML reads it
    assert set(selectable()) >= {"loss", "perplexity", *METRICS}
    assert Training.of({"average_checkpoints": 5}).keep_checkpoints == 5
    for wrong, told in (
        ({"max_step": 3}, "did you mean 'max_steps'"),
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
        ({"optimizer": "adam"}, "did you mean 'adamw'"),
        ({"max_steps": -1}, "max_steps must be above 0"),
        ({"batch_rows": 3, "batch_tokens": 5}, "not both"),
        ({"label_smoothing": 1.0}, "label_smoothing"),
        ({"epochs": 0}, "epochs must be above 0"),
        ({"batch_rows": 0}, "batch_rows must be above 0"),
        ({"learning_rate": -1.0}, "learning_rate must be above 0"),
        ({"learning_rate": "fast"}, "takes a number, here 'fast'"),
        ({"epochs": 1.5}, "takes a whole number"),
        ({"select": "blue"}, "did you mean 'bleu'"),
    ):
        with pytest.raises(SeqloomError, match=told):
            Training.of(wrong)
    assert (parse_seconds("90"), parse_seconds("5m"), parse_seconds("1.5h")) == (90, 300, 5400)
    with pytest.raises(SeqloomError, match="5 parsecs"):
        parse_seconds("5 parsecs")


def test_the_optimiser_spares_biases(corpus):
    groups = make_optimizer(make_model(corpus), Training.of({"weight_decay": 0.3})).param_groups
    assert [group["weight_decay"] for group in groups] == [0.3, 0.0]
    assert all(p.dim() > 1 for p in groups[0]["params"])
    assert all(p.dim() <= 1 for p in groups[1]["params"])


def counting(data, name):
    """A Transformer whose norms count."""
    torch.manual_seed(0)
    side = {"kind": "transformer", "dim": 16, "heads": 2, "hidden": 24, "layers": 1, "norm_kind": name, "dropout": 0.1}
    return Seq2Seq(data.source.size, data.target.size, side, side, embedding=16, dropout=0.1)


@pytest.mark.parametrize("name", ["batch", "power"])
def test_what_norms_count_goes_out_and_comes_back(corpus, name):
    """Stop, save, build anew, load, go on: the same statistics to the last bit, and they are more than their start."""
    torch.manual_seed(3)
    whole = make_loop(corpus, counting(corpus, name), max_steps=8)
    list(whole)
    torch.manual_seed(3)
    first = make_loop(corpus, counting(corpus, name), max_steps=8)
    for update in first:
        if update.step == 5:
            break
    (tensors, values), kept = first.state(), {k: v.clone() for k, v in trained_tensors(first.objective).items()}
    torch.manual_seed(99)
    second = make_loop(corpus, counting(corpus, name), max_steps=8)
    load_weights(second.objective, kept, "kept")
    second.restore({k: v.clone() for k, v in tensors.items()}, values)
    list(second)
    assert dict(saved_buffers(whole.objective)).keys() == {
        k for k in kept if k.split(".")[-1] in ("mean", "variance", "power")
    }
    fresh = dict(saved_buffers(make_loop(corpus, counting(corpus, name)).objective))
    for key, statistic in saved_buffers(whole.objective):
        assert torch.equal(statistic, dict(saved_buffers(second.objective))[key])
        assert not torch.equal(statistic, fresh[key])
    assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(second), strict=True))


def test_what_norms_count_is_undone_with_the_step(corpus):
    """Of a batch that is skipped nothing is left, and of one that was tried again in pieces only the last try."""
    loop = make_loop(corpus, counting(corpus, "batch"), max_steps=20)
    loop.objective = loop.forward_backward.objective = Poisoned(loop.objective, {3})
    steps = iter(loop)
    found = []
    for _ in range(4):
        next(steps)
        found.append([statistic.clone() for _, statistic in saved_buffers(loop.objective)])
    assert all(torch.equal(a, b) for a, b in zip(found[1], found[2], strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(found[2], found[3], strict=True))
    torch.manual_seed(5)
    calm, tight = (make_loop(corpus, counting(corpus, "batch"), max_steps=1) for _ in range(2))
    calm.micro_batches = 4
    tight.forward_backward.objective = Late(tight.objective, 8)
    torch.manual_seed(5)
    list(calm)
    torch.manual_seed(5)
    list(tight)
    assert tight.micro_batches == 4
    for (_, a), (_, b) in zip(saved_buffers(calm.objective), saved_buffers(tight.objective), strict=True):
        assert torch.equal(a, b)


class Late(nn.Module):
    """Runs out of memory on more than `most` rows, when it has already read them."""

    def __init__(self, inner, most):
        super().__init__()
        self.inner, self.most = inner, most

    def forward(self, batch):
        loss = self.inner(batch)
        if len(batch.rows) > self.most:
            raise torch.OutOfMemoryError("no memory")
        return loss
