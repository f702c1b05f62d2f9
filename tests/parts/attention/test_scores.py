"""Scores against their formulas."""

import inspect
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.build import build
from seqloom.errors import SeqloomError
from seqloom.parts.attention.attend import attend
from seqloom.parts.attention.normalizers import relu, softmax
from seqloom.parts.attention.scores import SCORES, Additive, Cosine, Dot, Gaussian, General, Network, Scaled
from seqloom.parts.visibility import Visibility
from tests import laws
from tests.laws import SCORE_CHOICES, close, drawn, named, shake

Q, K = drawn(2, 3, 4), drawn(2, 5, 4, seed=12)


def scored(score, q=Q, k=K):
    return score(q, score.keys(k))


def test_dot_by_hand():
    q, k = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -1.0], [0.5, 0.25]])
    assert scored(Dot(2, 2), q, k).tolist() == [[1.0, 1.0]]


def test_scaled_by_hand():
    q, k = torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.tensor([[4.0, 3.0, 2.0, 1.0]])
    assert scored(Scaled(4, 4), q, k).item() == pytest.approx((4 + 6 + 6 + 4) / math.sqrt(4))


def test_general_by_hand():
    score = General(4, 3).double()
    k = drawn(2, 5, 3, seed=12)
    close(scored(score, Q, k), torch.einsum("btq,qk,bsk->bts", Q, score.project.weight, k))


@pytest.mark.parametrize("hidden", [0, 6])
def test_additive_by_hand(hidden):
    score = shake(Additive(4, 3, hidden).double(), 1)
    k, found = drawn(2, 5, 3, seed=12), torch.empty(2, 3, 5, dtype=torch.float64)
    W, b, U, v = score.query.weight, score.query.bias, score.key.weight, score.weight
    assert v.shape == (hidden or 4,)
    with torch.no_grad():
        for i, t, s in torch.cartesian_prod(torch.arange(2), torch.arange(3), torch.arange(5)):
            found[i, t, s] = v @ torch.tanh(W @ Q[i, t] + b + U @ k[i, s])
        close(scored(score, Q, k), found)


def test_scaled_scores_of_unit_vectors_have_variance_one():
    torch.manual_seed(0)
    for dim in (4, 64, 512):
        q, k = torch.randn(300, dim), torch.randn(300, dim)
        assert scored(Scaled(dim, dim), q, k).var().item() == pytest.approx(1.0, abs=0.1)
        assert scored(Dot(dim, dim), q, k).var().item() == pytest.approx(dim, rel=0.1)


@pytest.mark.parametrize("choice", SCORE_CHOICES, ids=named)
def test_as_dot_is_the_same_score(choice):
    score = build(SCORES, choice, query_dim=4, key_dim=4).double()
    keys = score.keys(K)
    pair = score.as_dot(Q, keys)
    if pair is None:
        assert isinstance(score, Additive | Network)  # the only ones that are no products
    else:
        close(pair[0] @ pair[1].mT, score(Q, keys))


@pytest.mark.parametrize("choice", SCORE_CHOICES, ids=named)
def test_a_score_works_with_and_without_heads(choice):
    score = build(SCORES, choice, query_dim=4, key_dim=4).double()
    heads = scored(score, drawn(2, 3, 6, 4), drawn(2, 3, 5, 4, seed=12))
    assert heads.shape == (2, 3, 6, 5)
    close(heads[1, 2], scored(score, drawn(2, 3, 6, 4)[1, 2], drawn(2, 3, 5, 4, seed=12)[1, 2]))


@pytest.mark.parametrize("name", ["dot", "scaled", "cosine", "gaussian"])
def test_widths_that_differ_are_refused_and_a_way_out_is_named(name):
    with pytest.raises(SeqloomError, match=f"'{name}' needs queries and keys of one width, here 4 and 5; .*'general'"):
        build(SCORES, name, query_dim=4, key_dim=5)


@pytest.mark.parametrize("name", ["general", "additive", "network"])
def test_widths_may_differ(name):
    assert scored(build(SCORES, name, query_dim=4, key_dim=7).double(), Q, drawn(2, 5, 7)).shape == (2, 3, 5)


def test_cosine_by_hand():
    q, k = torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([[4.0, 3.0], [-7.0, 0.0], [0.0, 0.0]])
    wanted = torch.tensor([[24 / 25, -3 / 5, 0.0], [3 / 5, 0.0, 0.0]])
    for temperature in (1.0, 0.5, 0.1):
        close(scored(Cosine(2, 2, temperature), q, k), wanted / temperature, 1e-6)


def test_cosine_knows_no_lengths_and_a_fixed_temperature_stays():
    score = Cosine(4, 4, learned=False).double()
    close(scored(score, 7 * Q, 0.01 * K), scored(score))
    assert not any(parameter.requires_grad for parameter in score.parameters())
    assert all(parameter.requires_grad for parameter in Cosine(4, 4).parameters())
    with pytest.raises(SeqloomError, match="temperature of score 'cosine' is more than 0, here 0"):
        Cosine(4, 4, temperature=0)


@pytest.mark.parametrize(("hidden", "depth"), [(0, 2), (6, 3)])
def test_network_by_hand(hidden, depth):
    score = shake(Network(4, 3, hidden, depth).double(), 1)
    k, found = drawn(2, 5, 3, seed=12), torch.empty(2, 3, 5, dtype=torch.float64)
    W, b, U, v = (score.first.query.weight, score.first.query.bias, score.first.key.weight, score.first.weight)
    with torch.no_grad():
        for i, t, s in torch.cartesian_prod(torch.arange(2), torch.arange(3), torch.arange(5)):
            x = torch.tanh(torch.cat([W, U], 1) @ torch.cat([Q[i, t], k[i, s]]) + b)
            for layer in score.deeper:
                x = torch.tanh(layer.weight @ x + layer.bias)
            found[i, t, s] = v @ x
        close(scored(score, Q, k), found)
    assert len(score.deeper) == depth - 1
    with pytest.raises(SeqloomError, match="depth of 2 hidden layers at least, here 1; see 'additive'"):
        Network(4, 3, depth=1)


def test_gaussian_by_hand():
    q, k = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 2.0], [4.0, -2.0]])
    assert scored(Gaussian(2, 2, width=1.0), q, k).tolist() == [[0.0, -12.5]]
    assert scored(Gaussian(2, 2, width=5.0), q, k)[0, 1].item() == pytest.approx(-0.5)
    score = Gaussian(4, 4).double()
    close(scored(score), -torch.cdist(Q, K).square() / 2 / math.sqrt(4), 1e-6)  # q·k enters as in `scaled`
    with pytest.raises(SeqloomError, match="width of score 'gaussian'"):
        Gaussian(4, 4, width=-1.0)


def regression():
    """y = 2 sin x + x^0.8 with noise, at random places, and the truth at even ones."""
    generator = np.random.default_rng(0)
    x = np.sort(generator.uniform(0, 5, 50))
    places = np.linspace(0, 5, 40)
    return x, 2 * np.sin(x) + x**0.8 + generator.normal(0, 0.3, 50), places, 2 * np.sin(places) + places**0.8


def pooled(score, places, x, y, normalize=softmax):
    q, k, v = (torch.as_tensor(part)[None, :, None] for part in (places, x, y))
    return attend(q, score.keys(k), v, score, Visibility(), None, normalize)[0, :, 0]


@pytest.mark.parametrize("width", [1.0, 0.3])
def test_attention_with_the_gaussian_score_is_kernel_regression(width):
    """Nadaraya's and Watson's estimator, Σ K((x − x_i)/h) y_i / Σ K((x − x_i)/h), worked out in numpy."""
    x, y, places, _ = regression()
    kernel = np.exp(-(((places[:, None] - x) / width) ** 2) / 2)
    close(pooled(Gaussian(1, 1, width).double(), places, x, y), torch.as_tensor(kernel @ y / kernel.sum(1)), 1e-8)


def test_training_the_width_lowers_the_error():
    """Each place is told by all others, as leaving one out says which width is right."""
    x, y, places, truth = regression()
    score, told = Gaussian(1, 1, width=1.0).double(), torch.as_tensor(y)
    others = Visibility(bias=torch.zeros(50, 50, dtype=torch.float64).fill_diagonal_(-torch.inf))
    q = torch.as_tensor(x)[None, :, None]
    optimiser = torch.optim.Adam(score.parameters(), 0.1)
    before, losses = pooled(score, places, x, y), []
    for _ in range(60):
        loss = (attend(q, score.keys(q), told[None, :, None], score, others)[0, :, 0] - told).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    after = pooled(score, places, x, y)
    assert losses[-1] < 0.5 * losses[0]
    assert 1 / score.weight.item() < 0.5
    assert (after - torch.as_tensor(truth)).square().mean() < 0.5 * (before - torch.as_tensor(truth)).square().mean()


def test_weights_by_relu_need_the_whole_distance():
    """What a softmax does not see, |q|² in each score, a ReLU does."""
    score, q, k = Gaussian(2, 2, width=1.0).double(), drawn(1, 3, 2), drawn(1, 4, 2, seed=5)
    found = attend(
        q, score.keys(k), torch.eye(4).double()[None], score, Visibility(bias=torch.ones(3, 4).double()), None, relu
    )
    close(found, (1 - torch.cdist(q, k).square() / 2).relu() / 4, 1e-8)


class Biaffine(nn.Module):
    """qᵀ W k + wᵀ k (Dozat & Manning 2017, section 2.2). `keys` gives [W k, wᵀ k]."""

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        self.project = nn.Linear(key_dim, query_dim + 1, bias=False)

    def keys(self, k: Tensor) -> Tensor:
        return self.project(k)

    def as_dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return F.pad(q, (0, 1), value=1.0), k

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return F.pad(q, (0, 1), value=1.0) @ k.mT


def test_the_score_that_contributors_are_shown_is_one():
    """The diff in CONTRIBUTING.md is this class, and a class is all it takes."""
    shown = re.search(r"```diff\n(.*?)```", (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text(), re.S).group(1)
    added = [line[3:] for line in shown.splitlines() if re.match(r"  \+(?!\+)", line)]
    source = inspect.getsource(Biaffine).splitlines()
    assert added == [*source, "", "", '    "biaffine": Biaffine,']
    for law in (laws.prefix, laws.picking, laws.twin, laws.dtypes, laws.gradient_check):
        law(laws.cached(score=Biaffine))
    for law in (laws.padding, laws.twin, laws.dtypes):
        law(laws.reads_memory(Biaffine))
