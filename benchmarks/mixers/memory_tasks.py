"""What is to be remembered: three tasks, drawn on the device by the batch, so that no host can be too slow.

`draw(rows, length)` gives numbers [rows, length + extra, width] and the answers at the last `asked` places.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F


class Task(Protocol):
    width: int  # of what comes in
    outputs: int
    asked: int  # places at the end that are to be answered
    extra: int  # steps beyond the length
    chance: float  # the score of who knows nothing of the sequence

    def draw(self, rows: int, length: int, device: torch.device) -> tuple[Tensor, Tensor]: ...
    def loss(self, out: Tensor, target: Tensor) -> Tensor: ...
    def right(self, out: Tensor, target: Tensor) -> Tensor:
        """The score, [], at most 1."""
        ...


class Labels:
    """What two of them share: each answer is one of some labels."""

    def loss(self, out: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(out.flatten(0, 1), target.flatten())

    def right(self, out: Tensor, target: Tensor) -> Tensor:
        return (out.argmax(-1) == target).float().mean()


class Copy(Labels):
    """Ten symbols of eight, then `length` steps of nothing, the last of which gives the sign to recite them
    (Hochreiter & Schmidhuber 1997; Arjovsky et al. 2016, section 5.1, https://arxiv.org/abs/1511.06464)."""

    width, outputs, asked, extra, chance = 10, 8, 10, 20, 1 / 8

    def draw(self, rows: int, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        symbols = torch.randint(0, 8, (rows, 10), device=device)
        tokens = torch.full((rows, length + 20), 8, device=device)
        tokens[:, :10] = symbols
        tokens[:, length + 9] = 9
        return _hot(tokens, 10), symbols


class Recall(Labels):
    """Four keys of eight, each together with a value of eight; then `length` steps of other signs; then the keys alone,
    in another order: which value had each? (As Ba et al. 2016, section 4.1, https://arxiv.org/abs/1610.06258, with a
    wait and distractors.)"""

    width, outputs, asked, extra, chance = 24, 8, 4, 8, 1 / 8

    def draw(self, rows: int, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        keys = torch.rand(rows, 8, device=device).argsort(1)[:, :4]
        values = torch.randint(0, 8, (rows, 4), device=device)
        order = torch.rand(rows, 4, device=device).argsort(1)
        others = torch.randint(0, 8, (rows, length), device=device)
        pairs = F.pad(torch.cat([_hot(keys, 8), _hot(values, 8)], -1), (0, 8))
        asked = F.pad(_hot(keys.gather(1, order), 8), (0, 16))
        return torch.cat([pairs, F.pad(_hot(others, 8), (16, 0)), asked], 1), values.gather(1, order)


class Adding:
    """`length` numbers from 0 to 1, one marked in the first half and one in the second: their sum (Hochreiter &
    Schmidhuber 1997, in the form of Arjovsky et al. 2016, section 5.2). Who always says 1 has a mean squared error of
    0.167; the score is the share of that which is explained."""

    width, outputs, asked, extra, chance = 2, 1, 1, 0, 0.0

    def draw(self, rows: int, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        numbers, half = torch.rand(rows, length, device=device), length // 2
        first = torch.randint(0, half, (rows, 1), device=device)
        second = torch.randint(half, length, (rows, 1), device=device)
        marked = torch.zeros_like(numbers).scatter(1, torch.cat([first, second], 1), 1.0)
        return torch.stack([numbers, marked], -1), (numbers * marked).sum(1)

    def loss(self, out: Tensor, target: Tensor) -> Tensor:
        return (out[:, 0, 0] - target).square().mean()

    def right(self, out: Tensor, target: Tensor) -> Tensor:
        return 1 - self.loss(out, target) * 6


TASKS: dict[str, Task] = {"copy": Copy(), "recall": Recall(), "adding": Adding()}


def _hot(tokens: Tensor, size: int) -> Tensor:
    """One-hot; torch's own would read numbers back from the device."""
    return torch.eye(size, device=tokens.device)[tokens]
