"""Scores against their formulas."""

import math

import pytest
import torch

from seqloom.errors import SeqloomError
from seqloom.parts.choose import build
from seqloom.parts.score import SCORES, Additive, Cosine, Dot, Gaussian, General, Network, Scaled
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
