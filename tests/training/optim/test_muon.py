"""Muon beside torch's own, what it steps, and that it keeps the promises of the fused AdamW."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seqloom.build import build
from seqloom.errors import SeqloomError
from seqloom.models.seq2seq import MODELS
from seqloom.tasks.translate.presets import PRESETS, preset
from seqloom.training.optim import optimizer
from seqloom.training.optim.muon import Muon, hidden_matrices, orthogonal
from seqloom.training.optim.optimizer import apply_gradients, make_optimizer, optimizer_state, restore_optimizer
from seqloom.training.settings import Training


def settings(**more) -> Training:
    return Training.of({"optimizer": "muon", "learning_rate": 0.02, "weight_decay": 0.1, **more})


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.up, self.down, self.output = nn.Linear(6, 10), nn.Linear(10, 6), nn.Linear(6, 9)

    def forward(self, x):
        return self.output(self.down(self.up(x).tanh())).square().sum()


@pytest.mark.parametrize("shape", [(4, 8, 8), (3, 5, 9), (2, 9, 5)])
def test_singular_values_are_brought_near_one_and_directions_stay(shape):
    torch.manual_seed(1)
    given = torch.randn(shape, dtype=torch.float64)
    u, s, v = torch.linalg.svd(given, full_matrices=False)
    given = u @ torch.diag_embed(s.clamp(min=0.05 * float(s.max()))) @ v
    found = u.mT @ orthogonal(given) @ v.mT
    kept = found.diagonal(dim1=1, dim2=2)
    assert kept.min() > 0.6
    assert kept.max() < 1.3
    assert (found - torch.diag_embed(kept)).abs().max() < 1e-9


def test_it_is_torchs_own(monkeypatch):
    """The same matrices by torch.optim.Muon, kept from rounding to bfloat16; all others by AdamW."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    ours, theirs = Small(), Small()
    chosen = settings(clip=0.0)
    mine = make_optimizer(ours, chosen)
    matrices = [theirs.up.weight, theirs.down.weight]
    others = [p for p in theirs.parameters() if all(p is not m for m in matrices)]
    decayed = [{"params": [p], "weight_decay": 0.1 if p.dim() > 1 else 0.0} for p in others]
    peers = [
        torch.optim.Muon(matrices, lr=0.02, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(decayed, lr=0.02, betas=(0.9, 0.98), eps=1e-9),
    ]
    for step in range(4):
        x = torch.randn(40, 6, generator=torch.Generator().manual_seed(step))
        for model in (ours, theirs):
            model.zero_grad()
            model(x).backward()
        apply_gradients(mine, ours.parameters(), 1.0, 0.0)
        for peer in peers:
            peer.step()
    for one, other, start in zip(ours.parameters(), theirs.parameters(), Small().parameters(), strict=True):
        assert (one - other).norm() <= 1e-4 * (one - start).norm()


@pytest.mark.parametrize("model", PRESETS)
def test_matrices_between_hidden_states_are_its_own(model):
    made = build(MODELS, {"kind": "seq2seq", **preset(model, "tiny")}, source_size=30, target_size=40)
    found, names = hidden_matrices(made), {id(p): name for name, p in made.named_parameters()}
    said = {names[id(p)]: parts for p, parts in found.items()}
    assert said
    assert not any(name.split(".")[0] in ("source", "target", "output") for name in said)
    if model == "transformer":
        assert said["encoder.blocks.0.mix.project.weight"] == 3
        assert said["decoder.blocks.0.cross.project.weight"] == 2
        assert said["encoder.blocks.0.feed.up.weight"] == 1
    if model == "lstm":
        assert said["encoder.recurrent.layers.0.cells.0.recurrent"] == 4


def test_several_in_one_are_made_orthogonal_one_by_one():
    torch.manual_seed(1)
    whole = nn.Parameter(torch.randn(12, 4))
    parts = [nn.Parameter(part.clone()) for part in whole.detach().chunk(3)]
    whole.grad = torch.randn(12, 4)
    for part, gradient in zip(parts, whole.grad.chunk(3), strict=True):
        part.grad = gradient.clone()
    for made, chosen in ((3, [whole]), (1, parts)):
        Muon(dict.fromkeys(chosen, made), [{"params": chosen}], lr=0.1).step()
    torch.testing.assert_close(whole, torch.cat([part.detach() for part in parts]))


def test_a_gradient_that_is_not_finite_leaves_all_as_it_was():
    model = Small()
    mine = make_optimizer(model, settings())
    for bad in (False, True):
        model.zero_grad()
        model(torch.ones(2, 6)).backward()
        before = [p.detach().clone() for p in model.parameters()], optimizer_state(mine, model)
        if bad:
            model.up.weight.grad[0, 0] = float("nan")
        apply_gradients(mine, model.parameters(), 1.0, 1.0)
        same = all(torch.equal(a, b) for a, b in zip(before[0], model.parameters(), strict=True))
        assert same == bad
    for name, value in optimizer_state(mine, model).items():
        if "step" not in name:
            torch.testing.assert_close(value, before[1][name], rtol=0, atol=0)


def test_its_state_is_saved_and_restored():
    def steps(model, mine, count, first):
        for step in range(first, first + count):
            model.zero_grad()
            model(torch.full((2, 6), 0.1 * step)).backward()
            apply_gradients(mine, model.parameters(), 1.0, 1.0)

    through, parted = Small(), Small()
    mine = make_optimizer(through, settings())
    steps(through, mine, 4, 0)
    half = make_optimizer(parted, settings())
    steps(parted, half, 2, 0)
    kept = {name: value.clone() for name, value in optimizer_state(half, parted).items()}
    again = make_optimizer(parted, settings())
    restore_optimizer(again, parted, kept)
    steps(parted, again, 2, 2)
    for one, other in zip(through.parameters(), parted.parameters(), strict=True):
        assert torch.equal(one, other)


def test_shards_are_refused(monkeypatch):
    monkeypatch.setattr(optimizer, "is_shard", lambda parameter: True)
    with pytest.raises(SeqloomError, match="muon needs whole matrices: leave --shard out, or choose adamw"):
        make_optimizer(Small(), settings())
