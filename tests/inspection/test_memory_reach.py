"""How far back a model remembers, where the answer is known."""

from __future__ import annotations

import pytest
import torch

from seqloom.errors import SeqloomError
from seqloom.inspection.memory_reach import outputs_of, reach
from seqloom.models.language_model import LanguageModel
from seqloom.parts.visibility import Visibility
from tests.inspection.test_gradients import DIM, STEPS, linear
from tests.laws import close, drawn, tiny_model


@pytest.mark.parametrize("rows", [4, 256])
def test_half_of_it_is_left_at_every_step(rows):
    stack, x, other = linear(0.5), drawn(3, STEPS, DIM), drawn(3, STEPS, DIM, seed=2)
    found = reach(lambda part: stack(part, Visibility())[0], x, other, rows)
    change = (other - x).norm(dim=-1).mean(0).flip(0)
    close(found, change * 0.5 ** torch.arange(STEPS).double())


def test_a_language_model():
    """What stood long ago changes the guess a little, what stands last much."""
    tokens = torch.randint(9, (2, 8), generator=torch.Generator().manual_seed(1))
    other = (tokens + 1) % 9
    torch.manual_seed(0)
    model = LanguageModel(9, 0, {"kind": "gru", "dim": 6}, embedding=4).double()
    found = reach(outputs_of(model), tokens, other)
    assert found.shape == (8,)
    assert found.gt(0).all()
    assert found[0] > 10 * found[7]


def test_nothing_is_dropped():
    tokens = torch.randint(9, (2, 8), generator=torch.Generator().manual_seed(1))
    model = LanguageModel(9, 0, {"kind": "gru", "dim": 6}, embedding=4, dropout=0.5).train()
    close(reach(outputs_of(model), tokens, tokens), torch.zeros(8), 1e-6)


def test_an_encoder():
    model = tiny_model({"kind": "window", "window": 3}, "transformer")
    tokens = torch.randint(3, 9, (2, 6), generator=torch.Generator().manual_seed(1))
    found = reach(outputs_of(model), tokens, 3 + (tokens - 2) % 6)
    assert found[:2].gt(0).all()
    assert found[2:].eq(0).all(), "one neighbour before, no farther"


def test_what_does_not_fit_is_named():
    with pytest.raises(SeqloomError, match=r"has the shape \(2, 5\), not \(2, 6\)"):
        reach(lambda x: x, torch.zeros(2, 6), torch.zeros(2, 5))
    with pytest.raises(SeqloomError, match="no encoder of tokens"):
        outputs_of(torch.nn.Linear(2, 3))
