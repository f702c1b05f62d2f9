"""Kneser-Ney: equal to the formulas worked out slowly, and a distribution everywhere."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch

from seqloom.data.batches.collate import pad
from seqloom.data.batches.language import Stream, StreamOptions
from seqloom.data.tokenizers.tokenizers import BOS, EOS
from seqloom.errors import SeqloomError
from seqloom.models.baselines.ngram import Ngram, _discounts

SIZE = 9


def text(length=400, seed=0):
    draw = np.random.default_rng(seed)
    return np.minimum(draw.geometric(0.35, length) + 3, SIZE - 1)


def fitted(order, ids=None, offsets=None, **more) -> Ngram:
    model = Ngram(SIZE, 0, order, **more)
    options = StreamOptions(batches="lines" if offsets is not None else "stream")
    model.fit(Stream(text() if ids is None else ids, offsets, options))
    return model


def by_hand(rows: list[list[int]], order: int, modified: bool):
    """Chen & Goodman 1999, the long way round."""
    raw = {
        n: Counter(tuple(row[i : i + n]) for row in rows for i in range(len(row) - n + 1)) for n in range(1, order + 1)
    }
    counts = {order: dict(raw[order])}
    for n in range(1, order):
        before = defaultdict(set)
        for gram in raw[n + 1]:
            before[gram[1:]].add(gram[0])
        counts[n] = {gram: len(before[gram]) or (raw[n][gram] if n > 1 else 0) for gram in raw[n]}
    if order == 1:
        counts[1] = Counter((token,) for row in rows for token in row[1:])
    tables = {n: _discounts(np.array(list(counts[n].values())), modified) for n in counts}

    def p(word, context):
        if len(context) + 1 > order:
            context = context[len(context) - order + 1 :]
        lower = 1 / SIZE if not context else p(word, context[1:])
        n = len(context) + 1
        children = {gram: count for gram, count in counts[n].items() if gram[:-1] == context and count}
        total = sum(children.values())
        if not total:
            return lower
        taken = {gram: min(tables[n][min(count, 3)], count) for gram, count in children.items()}
        gram = (*context, word)
        own = children.get(gram, 0) - taken.get(gram, 0)
        return own / total + sum(taken.values()) / total * lower

    return p


@pytest.mark.parametrize("modified", [True, False])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_equal_to_the_formula(order, modified):
    ids = text(120)
    model, p = fitted(order, ids, modified=modified), by_hand([ids.tolist()], order, modified)
    test = text(40, seed=5).tolist()
    x = torch.tensor([test])
    found = model(x[:, :-1], x[:, 1:]).nats
    wanted = [-np.log(p(test[i], tuple(test[max(0, i - order + 1) : i]))) for i in range(1, len(test))]
    assert np.allclose(found.numpy(), wanted, atol=1e-5)


def test_equal_to_the_formula_on_lines():
    draw = np.random.default_rng(2)
    rows = [[BOS, *text(int(draw.integers(1, 9)), seed).tolist(), EOS] for seed in range(30)]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    model, p = fitted(3, np.concatenate(rows), offsets), by_hand(rows, 3, True)
    test = [BOS, 4, 5, 4, 8, EOS]
    x = torch.tensor([test])
    wanted = [-np.log(p(test[i], tuple(test[max(0, i - 2) : i]))) for i in range(1, len(test))]
    assert np.allclose(model(x[:, :-1], x[:, 1:]).nats.numpy(), wanted, atol=1e-5)


@pytest.mark.parametrize("order", [1, 2, 5])
def test_probabilities_sum_to_one_and_are_those_of_the_labels(order):
    model = fitted(order)
    x = torch.tensor([text(30, seed=3).tolist(), [0] * 10 + [8] * 20])
    logits, _ = model.step(x, model.start(pad([[], []])))
    assert torch.allclose(logits.exp().sum(-1), torch.ones(2, 30), atol=1e-5)
    nats = model(x[:, :-1], x[:, 1:]).nats
    assert torch.allclose(nats, -logits[:, :-1].gather(2, x[:, 1:, None]).flatten(), atol=1e-5)


def test_all_strings_of_each_length_sum_to_one():
    model = fitted(3)
    for length in (1, 2, 3):
        strings = torch.tensor(list(itertools.product(range(SIZE), repeat=length)))
        x = torch.cat([torch.full((len(strings), 1), 5), strings], 1)
        nats = model(x[:, :-1], x[:, 1:]).nats.view(len(strings), length)
        assert torch.allclose((-nats.sum(1)).exp().sum(), torch.tensor(1.0), atol=1e-5)


def test_steps_in_any_pieces_and_rows_picked():
    model, x = fitted(4), torch.tensor([text(20, seed=8).tolist(), text(20, seed=9).tolist()])
    whole, _ = model.step(x, model.start(pad([[], []])))
    for pieces in ([1] * 20, [7, 13]):
        state, found = model.start(pad([[], []])), []
        for part in x.split(pieces, 1):
            logits, state = model.step(part, state)
            found.append(logits)
        assert torch.allclose(torch.cat(found, 1), whole, atol=1e-6)
    state = model.start(pad(x[:, :10].tolist())).pick(torch.tensor([1, 1, 0]))
    logits, _ = model.step(x[[1, 1, 0], 10:11], state)
    assert torch.allclose(logits[:, 0], whole[[1, 1, 0], 10], atol=1e-6)


def test_more_context_helps_where_there_is_some():
    ids = np.tile([4, 5, 6, 4, 7, 8], 50)
    x = torch.tensor([ids[:60].tolist()])
    losses = [float(fitted(order, ids)(x[:, :-1], x[:, 1:]).nats.mean()) for order in (1, 2, 3)]
    assert losses[0] > 2 * losses[1]
    assert losses[1] > 2 * losses[2]


def test_weights_fit_after_resizing(tmp_path):
    from seqloom.training.checkpoint import load_weights, read_tensors, save_weights, weights

    model, other = fitted(3), Ngram(SIZE, 0, 3)
    save_weights(tmp_path / "model.safetensors", weights(model))
    tensors = read_tensors(tmp_path / "model.safetensors")
    other.resize({name: tuple(tensor.shape) for name, tensor in tensors.items()})
    load_weights(other, tensors, "here")
    x = torch.tensor([text(30, seed=3).tolist()])
    assert torch.equal(model(x[:, :-1], x[:, 1:]).nats, other(x[:, :-1], x[:, 1:]).nats)


def test_a_wrong_order_is_named():
    with pytest.raises(SeqloomError, match="order of Ngram is at least 1, here 0"):
        Ngram(SIZE, 0, 0)
