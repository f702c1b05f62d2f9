"""Norms beside their formulas and torch's, over real places alone, and what they count."""

import pytest
import torch
from torch import nn

from seqloom.build import build
from seqloom.data.batches.collate import Batch, pad
from seqloom.data.tokenizers.tokenizers import BOS, EOS
from seqloom.errors import SeqloomError
from seqloom.models.seq2seq import Seq2Seq
from seqloom.parts.layers.norm import EPS, NORMS, BatchNorm, PowerNorm, looks_across
from seqloom.parts.transformer.block import Block
from seqloom.parts.transformer.residual import Residual
from seqloom.parts.visibility import Visibility, keep
from seqloom.training.distributed.sharding import saved_buffers
from seqloom.training.objectives.teacher_forcing import TeacherForcing
from tests.laws import COMPILED, LENGTHS, close, drawn, shake, source_rows, tiny_model

X = torch.tensor([[1.0, 2.0, 6.0], [3.0, -2.0, 2.0]], dtype=torch.float64)
REAL = torch.tensor(LENGTHS)


def made(name, dim=8, training=True):
    torch.manual_seed(0)
    return shake(build(NORMS, name, dim=dim).double(), 1).train(training)


def rows():
    """[3, 6, 8], junk where nothing is."""
    return torch.where(keep(REAL, 6)[:, :, None], drawn(3, 6, 8), 1e3)


def test_by_hand():
    """Of (1, 2, 6): mean 3, variance 14/3, mean square 41/3. Of the first column: mean 2, variance 1, mean square 5."""
    wanted = {
        "layer": [-2 / (14 / 3 + EPS) ** 0.5, -1 / (14 / 3 + EPS) ** 0.5, 3 / (14 / 3 + EPS) ** 0.5],
        "rms": [1 / (41 / 3 + EPS) ** 0.5, 2 / (41 / 3 + EPS) ** 0.5, 6 / (41 / 3 + EPS) ** 0.5],
        "batch": [-1 / (1 + EPS) ** 0.5, 2 / (4 + EPS) ** 0.5, 2 / (4 + EPS) ** 0.5],
        "power": [1 / (5 + EPS) ** 0.5, 2 / (4 + EPS) ** 0.5, 6 / (20 + EPS) ** 0.5],
        "none": [1.0, 2.0, 6.0],
    }
    assert wanted.keys() == NORMS.keys()
    for name, row in wanted.items():
        norm = build(NORMS, name, dim=3).double()
        assert norm(X)[0].tolist() == pytest.approx(row, abs=1e-12), name


@pytest.mark.parametrize(("name", "theirs"), [("layer", nn.LayerNorm(8)), ("rms", nn.RMSNorm(8, eps=EPS))])
def test_over_features_equals_torchs(name, theirs):
    ours, theirs = made(name), theirs.double()
    theirs.load_state_dict(ours.state_dict())
    close(ours(drawn(3, 6, 8)), theirs(drawn(3, 6, 8)))


@pytest.mark.parametrize("lengths", [None, REAL], ids=["full", "padded"])
def test_over_the_batch_equals_torchs(lengths):
    """Values, gradients, what is counted over three batches, and evaluation after them."""
    ours, theirs = BatchNorm(8).double(), nn.BatchNorm1d(8, eps=EPS).double()
    for seed in range(3):
        x = drawn(3, 6, 8, seed=seed) * (seed + 1) + seed
        real = torch.ones(3, 6, dtype=torch.bool) if lengths is None else keep(lengths, 6)
        mine, other = x.clone().requires_grad_(), x[real].clone().requires_grad_()
        y, z = ours(mine, lengths)[real], theirs(other)
        close(y, z)
        weigh = drawn(*z.shape, seed=9)
        (slope,), (wanted,) = (
            torch.autograd.grad((y * weigh).sum(), [mine]),
            torch.autograd.grad((z * weigh).sum(), [other]),
        )
        close(slope[real], wanted, 1e-9)
        assert not slope[~real].any()
    close([ours.mean, ours.variance], [theirs.running_mean, theirs.running_var])
    close(ours.eval()(x, lengths)[real], theirs.eval()(x[real]))


def test_power_norm_and_its_gradient_by_the_paper():
    """Shen et al. 2020: x̂ = x / ψ, ∂L/∂x = (g − mean(g x̂) x̂) / ψ with g = γ ∂L/∂y; ψ² ← α ψ² + (1 − α) ψ_B²."""
    norm, x = made("power"), drawn(3, 6, 8).requires_grad_()
    before, flat = norm.power.clone(), x.detach().flatten(0, 1)
    y = norm(x)
    psi = (flat.square().mean(0) + EPS).sqrt()
    close(y.flatten(0, 1), norm.weight * flat / psi + norm.bias)
    close(norm.power, 0.9 * before + 0.1 * flat.square().mean(0))
    slope = drawn(3, 6, 8, seed=5)
    (found,) = torch.autograd.grad(y, [x], slope)
    hat, g = flat / psi, norm.weight.detach() * slope.flatten(0, 1)
    close(found.flatten(0, 1), (g - (g * hat).mean(0) * hat) / psi)
    close(norm.eval()(x), norm.weight * x / (norm.power + EPS).sqrt() + norm.bias)


@pytest.mark.parametrize("name", NORMS)
def test_padding_counts_for_nothing_in_training(name):
    """Neither in what is said of real places nor in what is counted: it is as if only those were there."""
    one, other, alone = made(name), made(name), made(name)
    x, real = rows(), keep(REAL, 6)
    said = one(x, REAL)[real]
    close(other(torch.where(real[:, :, None], x, -7.0), REAL)[real], said)
    close(alone(x[real]), said)
    for norm in (other, alone):
        close([t for _, t in saved_buffers(norm)], [t for _, t in saved_buffers(one)])


@pytest.mark.parametrize("name", ["batch", "power"])
def test_what_is_counted_is_kept_out_of_evaluation(name):
    norm = made(name, training=False)
    before = [t.clone() for _, t in saved_buffers(norm)]
    assert before
    together = norm(rows(), REAL)
    close(norm(rows()[1:2, :3]), together[1:2, :3])
    close([t for _, t in saved_buffers(norm)], before)
    norm.train().requires_grad_(False)  # frozen
    close(norm(rows()), together)
    close([t for _, t in saved_buffers(norm)], before)


def test_a_single_place_leaves_finite_numbers():
    for name in ("batch", "power"):
        norm = made(name)
        assert norm(drawn(1, 1, 8)).isfinite().all()
        assert norm(drawn(2, 3, 8), torch.tensor([1, 0])).isfinite().all()
        assert all(t.isfinite().all() for _, t in saved_buffers(norm))


@pytest.mark.parametrize("lengths", [None, REAL], ids=["full", "padded"])
@pytest.mark.parametrize("name", NORMS)
def test_gradients_in_training(name, lengths):
    norm = made(name)
    real = torch.ones(3, 6, dtype=torch.bool) if lengths is None else keep(lengths, 6)
    names = [f"{n}" for n, _ in norm.named_parameters()]

    def call(x, *values):
        fresh = {n: t.clone() for n, t in saved_buffers(norm)}
        return torch.func.functional_call(norm, {**dict(zip(names, values, strict=True)), **fresh}, (x, lengths))[real]

    values = [p.detach().clone().requires_grad_() for p in norm.parameters()]
    assert torch.autograd.gradcheck(call, (drawn(3, 6, 8).requires_grad_(), *values))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lengths", [None, REAL], ids=["full", "padded"])
@pytest.mark.parametrize("name", NORMS)
def test_types_in_training(name, lengths, dtype):
    exact, norm = made(name), made(name).to(dtype)
    y, z = norm(drawn(3, 6, 8).to(dtype), lengths), exact(drawn(3, 6, 8), lengths)
    assert y.dtype == dtype
    assert all(t.dtype == dtype for _, t in saved_buffers(norm))
    assert (y.double() - z).abs().max() < (1e-5 if dtype == torch.float32 else 0.15)


@pytest.mark.parametrize("lengths", [None, REAL], ids=["full", "padded"])
@pytest.mark.parametrize("name", ["batch", "power"])
def test_statistics_are_exact_in_bfloat16(name, lengths):
    """As training in half precision has it, weights in float32: far from zero, a mean that was rounded would be wrong
    by as much as the values differ."""
    x, real = (100 + 2 * drawn(3, 6, 8)).bfloat16(), keep(REAL if lengths is not None else torch.tensor([6] * 3), 6)
    norm = build(NORMS, name, dim=8)
    found, wanted = norm(x, lengths)[real], norm.double()(x.double(), lengths)[real]
    assert ((found.double() - wanted).abs() <= 2**-8 * wanted.abs() + 1e-4).all(), "rounded more than once"


@pytest.mark.parametrize("name", NORMS)
def test_under_autocast(name):
    """Weights in float32 and what comes in bfloat16, as in training with half precision."""
    norm = made(name).float()
    for lengths in (None, REAL):
        with torch.autocast("cpu", torch.bfloat16):
            y = norm(drawn(3, 6, 8).bfloat16(), lengths)
        assert y.isfinite().all()
        assert all(t.dtype == torch.float32 for _, t in saved_buffers(norm))


BATCH = Batch.of(source_rows(), pad([[BOS, 4, 5, 6, EOS], [BOS, 7, EOS], [BOS, 8, 8, 4, 5, EOS]]))


def transformer(name, norm="before", **more) -> Seq2Seq:
    torch.manual_seed(0)
    side = {"kind": "transformer", "norm": norm, "norm_kind": name, "layers": 2, **more}
    return tiny_model(side, side)


TRAINED = [
    *((name, "before") for name in NORMS),
    *(pytest.param(name, "after", marks=() if name == "batch" else pytest.mark.slow) for name in NORMS),
]


@pytest.mark.parametrize(("name", "norm"), TRAINED)
def test_two_layers_train_eager_and_compiled(name, norm):
    """The same losses and statistics either way; in evaluation a row says the same in any company."""
    torch._dynamo.reset()
    found = []
    for compiled in (False, True):
        model = shake(transformer(name, norm).double(), 1).train()
        objective = TeacherForcing(model)
        call = torch.compile(objective, backend=COMPILED, fullgraph=True) if compiled else objective
        optimiser = torch.optim.SGD(model.parameters(), 1e-3)
        losses = []
        for _ in range(2):
            loss = call(BATCH)
            optimiser.zero_grad()
            (loss.total / loss.count).backward()
            optimiser.step()
            losses.append(loss.total.detach())
        assert losses[1] < losses[0]
        found.append([torch.stack(losses), *(t.clone() for _, t in saved_buffers(model))])
    close(*found, 1e-5)
    assert looks_across(model) == (name in ("batch", "power"))
    together = model.eval()(BATCH.source, BATCH.target.tokens[:, :-1])
    close(model(BATCH.source.part(2, 3), BATCH.target.tokens[2:, :-1]), together[2:])


@pytest.mark.parametrize("name", ["batch", "power"])
def test_padding_of_the_target_counts_for_nothing(name):
    """More of it changes neither the loss nor what a decoder counts."""
    wider = Batch.of(BATCH.source.pad_to(9), BATCH.target.pad_to(11), BATCH.rows)
    results = []
    for batch in (BATCH, wider):
        model = shake(transformer(name).double(), 1).train()
        results.append([TeacherForcing(model)(batch).total, *(t for _, t in saved_buffers(model))])
    close(*results, 1e-6)


def test_the_default_is_as_it_always_was():
    names = {name for name, _ in tiny_model("transformer", "transformer").named_parameters()}
    assert "encoder.blocks.0.mix_around.norm.weight" in names
    assert not [name for name in names if "ways" in name]
    assert isinstance(Residual(8, "before", 0.0).norm, nn.LayerNorm)


def test_wrong_names_are_guessed():
    with pytest.raises(SeqloomError, match="unknown kind 'rsm'; did you mean 'rms'"):
        Block(8, 2, 12, norm_kind="rsm")
    with pytest.raises(SeqloomError, match="unknown residual 'dens'; did you mean 'dense'"):
        Block(8, 2, 12, residual="dens")
    with pytest.raises(SeqloomError, match="unknown setting of LayerNorm 'momentum'"):
        Block(8, 2, 12, norm_kind={"kind": "layer", "momentum": 0.2})
    with pytest.raises(SeqloomError, match="momentum of a norm is above 0 and at most 1, here 2"):
        Block(8, 2, 12, norm_kind={"kind": "batch", "momentum": 2})
    block = Block(8, 2, 12, norm_kind={"kind": "power", "momentum": 0.5})
    assert isinstance(block.feed_around.norm, PowerNorm)
    assert block.feed_around.norm.momentum == 0.5
    assert block(drawn(2, 3, 8).float(), Visibility())[0].shape == (2, 3, 8)
