"""What several ranks do, as far as one process can show it: who is who, who gets which rows, and that shares add up."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from seqloom.build import build
from seqloom.data.prepare.pairs import DataOptions, prepare_pairs
from seqloom.data.prepare.request import PrepareRequest
from seqloom.errors import SeqloomError
from seqloom.models.seq2seq import MODELS
from seqloom.runs.folder.environment import choose_device
from seqloom.tasks.translate.presets import PRESETS, preset
from seqloom.training.distributed.processes import ALONE, Launch
from seqloom.training.distributed.sharding import _units, exact_micro_batches, rank_batch, seed_rank
from seqloom.training.objectives.teacher_forcing import TeacherForcing


@pytest.fixture(scope="module")
def data(pairs):
    return prepare_pairs(PrepareRequest([str(pairs)], 0.1, DataOptions(target_tokens="words"), seed=1))


def make_objective(data, model):
    torch.manual_seed(0)
    sizes = {"source_size": data.source.size, "target_size": data.target.size}
    model = build(MODELS, {"kind": "seq2seq", **preset(model, "tiny")}, **sizes)
    return TeacherForcing(model, label_smoothing=0.1).eval()


def ranks(world):
    return [SimpleNamespace(rank=rank, world=world) for rank in range(world)]


TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}


def test_the_environment_says_who_we_are():
    assert Launch.of({}) == Launch(0, 1, 0, 0, None)
    assert Launch.of({"RANK": "1", "WORLD_SIZE": "2"}) == Launch()  # somebody else's variables
    more = {"TORCHELASTIC_RESTART_COUNT": "2", "TORCHELASTIC_RUN_ID": "night"}
    launch = Launch.of({**TORCHRUN, **more})
    assert (launch.rank, launch.world, launch.local, launch.attempt) == (3, 8, 1, 2)
    assert launch.name.startswith("night ")
    assert launch.name != Launch.of(TORCHRUN).name


@pytest.mark.parametrize(("rows", "world"), [(7, 2), (8, 3), (1, 2), (2, 4)])
def test_every_row_goes_to_one_rank(data, rows, world):
    chosen = np.arange(100, 100 + rows)
    shares = [rank_batch(data.train, chosen, rank) for rank in ranks(world)]
    assert sorted(row for share in shares for row in share.rows) == chosen.tolist()
    assert max(len(share.rows) for share in shares) - min(len(share.rows) for share in shares) <= 1
    counts = [share.index.numel() for share in shares]
    assert sum(counts) == int(data.train.target_lengths[chosen].sum()) - rows
    assert all(len(share.source.tokens) for share in shares), "a rank without rows has a row that counts for nothing"


@pytest.mark.parametrize("model", PRESETS)
def test_shares_add_up_to_the_batch_and_an_empty_one_to_nothing(data, model):
    objective, chosen = make_objective(data, model), np.arange(5)
    loss = objective(data.train.batch(chosen))
    loss.total.backward()
    expected = {name: p.grad.clone() for name, p in objective.named_parameters()}
    objective.zero_grad()
    total = count = 0
    for rank in ranks(7):
        share = objective(rank_batch(data.train, chosen, rank))
        share.total.backward()
        total, count = total + share.total.detach(), count + share.count
    assert count == loss.count
    assert torch.allclose(total, loss.total)
    for name, parameter in objective.named_parameters():
        assert torch.allclose(parameter.grad, expected[name], atol=1e-4), name
    objective.zero_grad()
    nothing = objective(data.train.batch(chosen).zero_weight_row())
    nothing.total.backward()
    assert (float(nothing.total.detach()), nothing.count) == (0.0, 0)
    for name, parameter in objective.named_parameters():  # DDP waits for a gradient of every one of them
        assert parameter.grad is not None, name
        assert not parameter.grad.any(), name


def test_every_rank_has_as_many_pieces(data):
    for rows in (1, 2, 5):
        cut = exact_micro_batches(data.train.batch(np.arange(rows)), 4)
        assert len(cut) == 4
        assert sum(len(piece.rows) for piece in cut) == rows
    assert [
        piece.index.numel() for piece in exact_micro_batches(data.train.batch(np.arange(3)).zero_weight_row(), 2)
    ] == [0, 0]


def test_ranks_draw_other_numbers_and_each_the_same_again():
    drawn = {}
    for key in ((7, 0, 0), (7, 1, 0), (7, 0, 5), (8, 0, 0), (2**62, 1, 1)):
        seed_rank(*key)
        drawn[key] = tuple(torch.rand(4).tolist())
        seed_rank(*key)
        assert tuple(torch.rand(4).tolist()) == drawn[key]
    assert len(set(drawn.values())) == len(drawn)


@pytest.mark.parametrize("model", PRESETS)
def test_units_hold_every_parameter_and_the_model_comes_last(data, model):
    whole = make_objective(data, model).model
    units = list(_units(whole))
    assert units[-1][0] is whole
    inner = sum(p.numel() for part in [part for part, _ in units[:-1]] for p in part.parameters())
    assert inner > sum(p.numel() for p in whole.parameters()) / 2, "most of the model is cut into units"
    assert all(callable(getattr(part, method)) for part, methods in units for method in methods)


def test_alone_everything_is_what_it_was():
    assert ALONE.first
    assert not ALONE.distributed
    assert ALONE.broadcast({"a": 1}) == {"a": 1}
    assert ALONE.all_gather("a") == ["a"]
    tensors = {"x": torch.ones(2)}
    assert ALONE.broadcast_tensors(tensors) is tensors
    assert ALONE.run_on_first(lambda: 5) == ALONE.in_turn(lambda: 5) == 5
    with pytest.raises(SeqloomError, match="wrong"), ALONE.fail_together():
        raise SeqloomError("wrong")


def test_each_process_takes_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto", local=1) == torch.device("cuda:1")
    assert choose_device("cpu", local=1) == torch.device("cpu")
    assert choose_device("auto") == torch.device("cuda")
    with pytest.raises(SeqloomError, match="only 2 GPUs"):
        choose_device("cuda", local=2)
    with pytest.raises(SeqloomError, match="each takes its own GPU"):
        choose_device("cuda:0", local=1)
