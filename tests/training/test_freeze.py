"""What is frozen stays as it was, bit for bit."""

from __future__ import annotations

import pytest
import torch

from seqloom.data.prepare.pairs import DataOptions, prepare_pairs
from seqloom.data.prepare.request import PrepareRequest
from seqloom.errors import SeqloomError
from seqloom.models.seq2seq import Seq2Seq
from seqloom.training import checkpoint
from seqloom.training.freeze import freeze
from seqloom.training.loop import Loop
from seqloom.training.objectives.teacher_forcing import TeacherForcing
from seqloom.training.settings import Training


@pytest.fixture(scope="module")
def corpus(pairs):
    return prepare_pairs(PrepareRequest([str(pairs)], 0.1, DataOptions(target_tokens="words"), seed=1))


def make(corpus, **more):
    torch.manual_seed(0)
    encoder, decoder = {"kind": "gru", "dim": 8}, {"kind": "attentive", "cell": "gru", "dim": 16}
    return Seq2Seq(corpus.source.size, corpus.target.size, encoder, decoder, embedding=16, **more)


@pytest.mark.parametrize("optimiser", ["adamw", "muon", "sgd"])
def test_frozen_parts_are_unchanged_and_the_others_are_not(corpus, optimiser, tmp_path):
    model = make(corpus)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    frozen = freeze(model, "encoder, source")
    assert frozen
    assert all(name.startswith(("encoder.", "source.")) for name in frozen)
    settings = Training.of({"max_steps": 5, "batch_rows": 32, "weight_decay": 0.5, "optimizer": optimiser})
    loop = Loop(TeacherForcing(model), corpus.train, settings, torch.device("cpu"))
    for update in loop:
        checkpoint.save(tmp_path, checkpoint.weights(model), *loop.state(), keep_last=3)
        assert torch.isfinite(update.grad_norm)
    averaged = checkpoint.average_weights(tmp_path, 3)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]) == (name in frozen), name
        assert torch.equal(averaged[name], before[name]) == (name in frozen), name


def test_a_frozen_run_is_resumed_exactly(corpus):
    def loop(steps):
        model = make(corpus)
        freeze(model, "source")
        settings = Training.of({"max_steps": steps, "batch_rows": 32, "schedule": "constant"})
        return Loop(TeacherForcing(model), corpus.train, settings, torch.device("cpu"))

    whole, first, second = loop(5), loop(2), loop(5)
    for one in (whole, first):
        torch.manual_seed(3)
        list(one)
    second.objective.load_state_dict(first.objective.state_dict())
    second.restore(*first.state())
    list(second)
    pairs = zip(whole.objective.parameters(), second.objective.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_one_parameter_and_a_shared_one(corpus):
    model = make(corpus, tie_embeddings=True)
    assert freeze(model, "output.bias") == ["output.bias"]
    assert set(freeze(model, "target")) == {"target.weight"}
    assert not model.output.weight.requires_grad  # the same matrix


def test_names_are_checked(corpus):
    with pytest.raises(SeqloomError, match="unknown part of the model to freeze 'encodr'; did you mean 'encoder'"):
        freeze(make(corpus), "encodr")
    with pytest.raises(SeqloomError, match="leaves nothing to train"):
        freeze(make(corpus), "source,encoder,decoder,target,output")
