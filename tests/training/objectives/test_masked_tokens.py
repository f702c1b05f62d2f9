"""Masked-token prediction: what is chosen, what is shown in its place, what is counted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from seqloom.data.batches.chunks import ChunkedTexts
from seqloom.data.encoding.encode import Rows
from seqloom.data.tokenizers.tokenizers import EOS, SPECIALS
from seqloom.models.pretraining.masked_language_model import MASK, MaskedLanguageModel
from seqloom.training.loop import Loop
from seqloom.training.objectives.masked_tokens import MaskedPrediction, MaskedTexts, corrupt, predict_masked
from seqloom.training.settings import Training

CPU = torch.device("cpu")
SIZE = 50


def texts(count: int = 64, longest: int = 40, seed: int = 3) -> ChunkedTexts:
    random = np.random.default_rng(seed)
    lengths = random.integers(1, longest + 1, count)
    return ChunkedTexts.of(Rows(random.integers(len(SPECIALS), SIZE, int(lengths.sum())), lengths))


def model(kind: str = "gru", dropout: float = 0.0, dim: int = 24) -> MaskedLanguageModel:
    torch.manual_seed(0)
    sizes = {"dim": dim, "layers": 2, "heads": 4, "hidden": 2 * dim} if kind == "transformer" else {"dim": dim}
    return MaskedLanguageModel(SIZE, {"kind": kind, "dropout": 0.0, **sizes}, embedding=dim, dropout=dropout)


def test_as_many_places_of_every_row_are_chosen_as_were_promised():
    supply = MaskedTexts(texts(), 0.15)
    rows = np.arange(len(supply))
    batch = supply.batch(rows)
    places = batch.positions()
    row, column = places // batch.source.tokens.size(1), places % batch.source.tokens.size(1)
    assert torch.bincount(row, minlength=len(rows)).tolist() == list(batch.counts)
    assert list(batch.counts) == [max(1, round(0.15 * (n - 1))) for n in batch.source.host]
    assert supply.count(rows) == len(places) == len(places.unique())
    assert (column < batch.source.lengths[row] - 1).all()  # neither padding nor <eos>
    assert not (batch.source.tokens.flatten()[places] == EOS).any()


def test_other_places_are_chosen_every_time_unless_they_are_fixed():
    batch = MaskedTexts(texts(), 0.15).batch(np.arange(20))
    assert not torch.equal(batch.positions(), batch.positions())
    fixed = MaskedTexts(texts(), 0.15, seed=5)
    assert torch.equal(fixed.batch(np.arange(20)).positions(), fixed.batch(np.arange(20)).positions())


def test_fixed_places_do_not_depend_on_the_batch():
    fixed = MaskedTexts(texts(), 0.15, seed=5)
    whole = fixed.batch(np.arange(20))
    parts = whole.micro_batches(3)
    assert [row for part in parts for row in part.rows] == list(whole.rows)

    def chosen(batch):
        width = batch.source.tokens.size(1)
        return {(batch.rows[place // width], place % width) for place in batch.positions().tolist()}

    assert chosen(whole) == set().union(*map(chosen, parts))
    alone = [fixed.batch(np.array([row])) for row in range(20)]
    assert chosen(whole) == set().union(*map(chosen, alone))


def test_eighty_of_a_hundred_are_hidden_ten_replaced_and_ten_left():
    labels = torch.randint(len(SPECIALS), 1000, (40_000,))
    shown = corrupt(labels, 1000)
    hidden, same = (shown == MASK).double().mean(), (shown == labels).double().mean()
    others = (shown != MASK) & (shown != labels)
    assert abs(hidden - 0.8) < 0.01
    assert abs(same - 0.1) < 0.01
    assert abs(others.double().mean() - 0.1) < 0.01
    assert shown[others].min() >= len(SPECIALS)
    assert len(shown[others].unique()) > 900  # from all of the vocabulary


def test_held_out_tokens_are_all_hidden():
    batch = MaskedTexts(texts(), 0.3, seed=5).batch(np.arange(10))
    seen = []

    class Spy(MaskedLanguageModel):
        def forward(self, source, places):
            seen.append(source.tokens.flatten()[places])
            return super().forward(source, places)

    predict_masked(Spy(SIZE, {"kind": "gru", "dim": 8}, embedding=8), batch)
    assert (seen[0] == MASK).all()


def test_the_loss_is_of_the_chosen_tokens_alone():
    batch = MaskedTexts(texts(), 0.15, seed=5).batch(np.arange(16))
    net = model().eval()
    loss = MaskedPrediction(net)(batch)
    places = batch.positions()
    labels = batch.source.tokens.flatten()[places]
    source = batch.with_tokens(places, torch.full_like(labels, MASK))
    every = net.output(net.project(net.read(source).states)).flatten(0, 1)
    torch.testing.assert_close(loss.total, F.cross_entropy(every[places], labels, reduction="sum"))
    assert loss.count == len(labels)


@pytest.mark.parametrize("kind", ["gru", "transformer"])
def test_a_hidden_token_is_not_seen(kind):
    """Whatever stood at a hidden place, the guesses are the same."""
    batch = MaskedTexts(texts(), 0.3, seed=5).batch(np.arange(8))
    net = model(kind).eval()
    places, labels, logits = predict_masked(net, batch)
    others = (labels - len(SPECIALS) + 7) % (SIZE - len(SPECIALS)) + len(SPECIALS)
    changed = type(batch)(batch.with_tokens(places, others), batch.counts, batch.index, batch.rows, batch.draws)
    assert not torch.equal(predict_masked(net, changed)[1], labels)
    torch.testing.assert_close(predict_masked(net, changed)[2], logits)


def test_an_empty_piece_counts_for_nothing_and_gives_every_parameter_a_gradient():
    net = model()
    loss = MaskedPrediction(net)(MaskedTexts(texts(), 0.15).batch(np.arange(4)).zero_weight_row())
    loss.total.backward()
    assert (loss.count, loss.total.item()) == (0, 0.0)
    assert all(p.grad is not None and not p.grad.any() for p in net.parameters())


def loop(steps: int) -> Loop:
    training = Training.of(
        {"max_steps": steps, "batch_rows": 16, "warmup": 1, "schedule": "constant", "select": "loss"}
    )
    return Loop(MaskedPrediction(model(dropout=0.1)), MaskedTexts(texts(), 0.15), training, CPU)


def test_a_resumed_loop_draws_the_same_masks():
    torch.manual_seed(1)
    whole = loop(7)
    list(whole)
    torch.manual_seed(1)
    first = loop(3)
    list(first)
    tensors, values = first.state()
    torch.manual_seed(99)
    second = loop(7)
    second.objective.load_state_dict(first.objective.state_dict())
    second.restore(tensors, values)
    list(second)
    for one, other in zip(whole.objective.parameters(), second.objective.parameters(), strict=True):
        assert torch.equal(one, other)


def test_pieces_add_up_to_the_batch():
    net = model().eval()
    batch = MaskedTexts(texts(), 0.15, seed=2).batch(np.arange(30))
    objective = MaskedPrediction(net)
    parts = [objective(part) for part in batch.micro_batches(4)]
    torch.testing.assert_close(sum(part.total for part in parts), objective(batch).total)
    assert sum(part.count for part in parts) == objective(batch).count


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_thirty_two_texts_are_learned_by_heart(kind):
    """Hidden tokens of texts that were seen often are known from what is left of them."""
    random = np.random.default_rng(0)
    lengths = np.full(32, 12)
    supply = ChunkedTexts.of(Rows(random.integers(len(SPECIALS), SIZE, int(lengths.sum())), lengths))
    net = model(kind, dim=64)
    training = Training.of({"max_steps": 500, "batch_rows": 32, "learning_rate": 5e-3, "warmup": 20, "select": "loss"})
    list(Loop(MaskedPrediction(net), MaskedTexts(supply, 0.15), training, CPU))
    _, labels, logits = predict_masked(net.eval(), MaskedTexts(supply, 0.15, seed=3).batch(np.arange(32)))
    assert (logits.argmax(-1) == labels).double().mean() > 0.9
