"""How embeddings enter a Transformer, and which matrices are one."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from seqloom.data.batches.collate import Batch, pad
from seqloom.errors import SeqloomError
from seqloom.models.encoders.transformer import TransformerInput
from seqloom.models.seq2seq import Seq2Seq
from seqloom.parts.positions.absolute import sinusoids
from seqloom.runs.interop.huggingface_weights import FAMILIES, deinterleaved, name_map
from seqloom.training.checkpoint import load_weights, weights
from seqloom.training.objectives.teacher_forcing import TeacherForcing
from tests.laws import shake

STACK = {"kind": "transformer", "dim": 8, "layers": 2, "heads": 2, "hidden": 12, "dropout": 0.0}
SOURCE, TARGET = pad([[4, 5, 6, 2], [7, 2]]), pad([[1, 4, 8, 2], [1, 9, 5, 6, 2]])


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("scale", [False, True])
def test_scale_and_norm_by_hand(scale, norm):
    x = torch.randn(2, 5, 8)
    wanted = x * (8**0.5 if scale else 1.0) + sinusoids(5, 8)
    wanted = F.layer_norm(wanted, (8,)) if norm else wanted
    assert torch.allclose(TransformerInput(8, 8, "sinusoidal", 4, 0.0, scale, norm)(x), wanted, atol=1e-6)


def made(**keywords):
    stack = {**STACK, **keywords}
    return shake(Seq2Seq(10, 10, stack, stack, embedding=8, dropout=0.0, tie_embeddings=True, share_embeddings=True), 1)


def test_one_matrix_for_all():
    model = made()
    assert model.source.weight is model.target.weight is model.output.weight
    stored = weights(model)
    assert sum(name in ("source.weight", "target.weight", "output.weight") for name in stored) == 1
    other = Seq2Seq(10, 10, STACK, STACK, embedding=8, dropout=0.0, tie_embeddings=True, share_embeddings=True)
    load_weights(other, stored, "memory")
    assert torch.equal(other.eval()(SOURCE, TARGET.tokens), model(SOURCE, TARGET.tokens))
    TeacherForcing(model)(Batch.of(SOURCE, TARGET)).total.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert model.source.weight is model.target.weight is model.output.weight


def test_one_matrix_needs_one_vocabulary():
    with pytest.raises(SeqloomError, match="share_embeddings needs one vocabulary for both sides, here 10 and 11 ids"):
        Seq2Seq(10, 11, STACK, STACK, embedding=8, share_embeddings=True)


@pytest.mark.parametrize("norm", ["before", "after"])
def test_features_in_another_order_are_the_same_function(norm):
    model = made(norm=norm, embedding_norm=True).double()
    other = made(norm=norm, embedding_norm=True, position={"kind": "sinusoidal", "layout": "halves"}).double()
    different = other(SOURCE, TARGET.tokens)
    load_weights(other, deinterleaved(weights(model)), "memory")
    wanted = model(SOURCE, TARGET.tokens)
    assert torch.allclose(other(SOURCE, TARGET.tokens), wanted, atol=1e-12)
    assert not torch.allclose(different, wanted, atol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_has_a_name_on_their_side(family):
    chosen = FAMILIES[family]
    found = made(norm=chosen.norm, embedding_norm=chosen.enter_norm)
    own = {"source.weight", "output.bias"}
    assert name_map(chosen, (2, 2)).keys() == weights(found).keys() - own
