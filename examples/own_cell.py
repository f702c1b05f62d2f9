"""A recurrent cell of one's own: `seqloom laws examples/own_cell.py` checks it, `python examples/own_cell.py` trains.

The UGRNN is a GRU with a single gate (Collins et al. 2017). It learns to recall the first symbol of a sequence
after the last one; a simple RNN beside it shows what the gate is for.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.parts.recurrent.cells import Cell
from seqloom.parts.recurrent.layers import Recurrent
from seqloom.parts.visibility import Visibility

SYMBOLS, LENGTH, DIM, ROWS = 8, 20, 32, 64


class UgrnnCell(Cell):
    """z = σ(W_z x + U_z h + b_z), h' = z⊙h + (1−z)⊙tanh(W x + U h + b)."""

    gates = 2  # rows of W, U and b: one block for z, one for the new state
    names = ("update", "state")  # what `step` returns beside the state, for inspection

    def step(self, gates: Tensor, state: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        z, new = (gates + F.linear(state[0], self.recurrent)).chunk(2, -1)
        z = z.sigmoid()
        h = z * state[0] + (1 - z) * new.tanh()
        return (h,), (z, h)


class Recall(nn.Module):
    def __init__(self, cell: object) -> None:
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, DIM)
        self.read = Recurrent(DIM, DIM, cell)
        self.output = nn.Linear(DIM, SYMBOLS)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.read(self.embed(x), Visibility())[0][:, -1])


def accuracy(cell: object, steps: int) -> float:
    """After so many steps of training, on sequences that are new."""
    torch.manual_seed(1)
    model = Recall(cell)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(steps):
        x = torch.randint(SYMBOLS, (ROWS, LENGTH))
        loss = F.cross_entropy(model(x), x[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    x = torch.randint(SYMBOLS, (1000, LENGTH))
    return float((model(x).argmax(-1) == x[:, 0]).float().mean())


def main(steps: int = 500) -> None:
    for cell in ("rnn", UgrnnCell):
        name = cell if isinstance(cell, str) else cell.__name__
        print(f"{name}: recalls {accuracy(cell, steps):.1%} of the first symbols after {LENGTH} steps")


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:] if word.isdecimal()))
