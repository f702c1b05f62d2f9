"""Draws by a hash of what they are for: distributed as they should be, and the same whatever stands beside them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from seqloom.decoding.random_draws import Draws

P = torch.tensor([0.02, 0.4, 0.0, 0.18, 0.3, 0.1])
MANY = 20_000


def square(found: Tensor, wanted: Tensor) -> float:
    """Chi-square of counts beside what was expected, less its degrees of freedom, in standard deviations."""
    held = wanted > 0
    assert not found[~held].any()
    freedom = int(held.sum()) - 1
    total = float(((found[held] - wanted[held]) ** 2 / wanted[held]).sum())
    return (total - freedom) / (2 * freedom) ** 0.5


def along_rows(seed: int) -> Tensor:
    return Draws(seed, [(row, 0) for row in range(MANY)], "cpu")(P.expand(MANY, -1), 3)


def along_samples(seed: int) -> Tensor:
    return Draws(seed, [(5, sample) for sample in range(MANY)], "cpu")(P.expand(MANY, -1), 0)


def along_steps(seed: int) -> Tensor:
    one = Draws(seed, [(0, 0)] * MANY, "cpu")
    return one(P.expand(MANY, -1), torch.arange(MANY))


@pytest.mark.parametrize("way", [along_rows, along_samples, along_steps])
def test_frequencies_are_the_probabilities_and_neighbours_are_independent(way):
    for seed in (0, 123_456_789_012_345):
        found = way(seed)
        assert square(torch.bincount(found, minlength=len(P)).double(), MANY * P.double()) < 5
        pairs = torch.bincount(found[1:] * len(P) + found[:-1], minlength=len(P) ** 2).double()
        assert square(pairs, (MANY - 1) * (P[:, None] * P).flatten().double()) < 5


def test_two_seeds_two_steps_two_samples_and_two_rows_are_independent():
    rows = [(row, 0) for row in range(MANY)]
    base = Draws(7, rows, "cpu")(P.expand(MANY, -1), 0)
    others = [
        Draws(8, rows, "cpu")(P.expand(MANY, -1), 0),
        Draws(7, rows, "cpu")(P.expand(MANY, -1), 1),
        Draws(7, [(row, 1) for row, _ in rows], "cpu")(P.expand(MANY, -1), 0),
        Draws(7, [(row + MANY, 0) for row, _ in rows], "cpu")(P.expand(MANY, -1), 0),
    ]
    for other in others:
        pairs = torch.bincount(base * len(P) + other, minlength=len(P) ** 2).double()
        assert square(pairs, MANY * (P[:, None] * P).flatten().double()) < 5


def test_a_large_vocabulary_is_drawn_evenly():
    size, rows = 20_000, 400
    draws = Draws(1, [(row, 0) for row in range(rows)], "cpu")
    even = torch.full((rows, size), 1 / size)
    found = draws(even, 0)
    assert square(torch.bincount(found // (size // 20), minlength=20).double(), torch.full((20,), rows / 20.0)) < 5
    sharp = even.clone()
    sharp[:, 4321] = 1.0  # of a sum of nearly two: probabilities need not add up to one
    assert (draws(sharp, 9) == 4321).double().mean() == pytest.approx(0.5, abs=0.1)


def test_a_row_draws_the_same_wherever_it_stands():
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(60, 300, generator=generator).softmax(-1)
    whole = Draws(7, [(row // 2, row % 2) for row in range(60)], "cpu")
    wanted = [whole(p, step) for step in range(4)]
    for rows in (torch.tensor([41]), torch.randperm(60, generator=generator)[:17]):
        alone = Draws(7, [(int(row) // 2, int(row) % 2) for row in rows], "cpu")
        for step in range(4):
            assert torch.equal(whole(p[rows], step, rows), wanted[step][rows])
            assert torch.equal(alone(p[rows], torch.full((len(rows),), step)), wanted[step][rows])
    assert not torch.equal(whole(p, 0), whole(p, 1))


def test_the_last_bits_of_a_probability_hardly_ever_matter():
    """They differ between batches."""
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(1000, 2000, generator=generator).softmax(-1)
    near = p * (1 + 2e-7 * torch.randn(p.shape, generator=generator))
    draws = Draws(7, [(row, 0) for row in range(1000)], "cpu")
    assert sum(int((draws(p, step) != draws(near, step)).sum()) for step in range(3)) <= 1


def test_draws_are_pinned():
    """The same seed draws the same with every version: what was written with it can be written again."""
    p = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).expand(8, -1)
    draws = Draws(7, [(row, row % 3) for row in range(8)], "cpu")
    assert [draws(p, step).tolist() for step in range(3)] == PINNED


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_draws_what_a_cpu_draws():
    p, streams = torch.randn(500, 300, generator=torch.Generator().manual_seed(0)).softmax(-1), range(500)
    here, there = (Draws(7, [(row, 0) for row in streams], device) for device in ("cpu", "cuda"))
    unlike = sum(int((here(p, step) != there(p.cuda(), step).cpu()).sum()) for step in range(20))
    assert unlike <= 1, "a logarithm may end in another bit"


PINNED = [[3, 2, 3, 0, 1, 3, 2, 3], [2, 3, 3, 1, 3, 3, 2, 3], [3, 2, 3, 3, 1, 3, 3, 3]]
