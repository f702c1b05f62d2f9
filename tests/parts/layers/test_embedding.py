"""One way to make an embedding."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seqloom.parts.layers.embedding import embedding_of


def test_its_vectors_have_length_one_on_average_and_come_from_the_seed():
    torch.manual_seed(3)
    made = embedding_of(1000, 64)
    assert made.weight.pow(2).sum(-1).mean().sqrt().item() == pytest.approx(1, abs=0.01)
    torch.manual_seed(3)
    other = nn.Embedding(1000, 64)
    nn.init.normal_(other.weight, std=64**-0.5)
    assert torch.equal(made.weight, other.weight)
