"""Positions against their formulas."""

import math

import pytest
import torch

from seqloom.errors import SeqloomError
from seqloom.parts.position import Learned, NoPosition, Rotary, Sinusoidal
from tests.laws import close, drawn

DIM = 8


def zeros(steps, dim=DIM, dtype=torch.float64):
    return torch.zeros(1, steps, dim, dtype=dtype)


@pytest.mark.parametrize("dim", [8, 7])
def test_sinusoidal_formula(dim):
    found = Sinusoidal(dim, 2)(zeros(600, dim))[0]  # past the table of 512, too
    for t in (0, 1, 2, 77, 511, 512, 599):
        for i in range(dim):
            angle = t / 10000 ** (2 * (i // 2) / dim)
            assert found[t, i].item() == pytest.approx(math.cos(angle) if i % 2 else math.sin(angle), abs=1e-4)


@pytest.mark.parametrize("dim", [8, 7])
def test_sinusoidal_in_halves(dim):
    """The same numbers in another order: what stood in even columns comes first."""
    inter, halves = Sinusoidal(dim, 2)(zeros(600, dim))[0], Sinusoidal(dim, 2, layout="halves")(zeros(600, dim))[0]
    close(halves, torch.cat([inter[:, 0::2], inter[:, 1::2]], 1))
    with pytest.raises(SeqloomError, match="did you mean 'halves'"):
        Sinusoidal(dim, 2, layout="halfs")


def test_sinusoidal_adds_to_what_it_is_given():
    position, x = Sinusoidal(DIM, 2), drawn(2, 5, DIM)
    close(position(x), x + position(zeros(5)))


def test_sinusoidal_shift_is_a_rotation():
    """PE(t + s) = R(s) PE(t), the same R(s) for every t."""
    table = Sinusoidal(DIM, 2).double()(zeros(100))[0]
    for shift in (1, 7, 30):
        angle = shift * 10000.0 ** (-torch.arange(0, DIM, 2, dtype=torch.float64) / DIM)
        even, odd = table[:60, 0::2], table[:60, 1::2]
        turned = torch.stack([even * angle.cos() + odd * angle.sin(), odd * angle.cos() - even * angle.sin()], -1)
        close(turned.flatten(1), table[shift : shift + 60], 1e-5)


@pytest.mark.parametrize("offset", [1, 100, 508, 509, 512, 2000])
def test_sinusoidal_offset_continues_the_table(offset):
    position = Sinusoidal(DIM, 2)
    close(position(zeros(4), offset), position(zeros(offset + 4))[:, offset:], 1e-7)


def test_sinusoidal_remembers_nothing_of_a_long_call():
    position = Sinusoidal(DIM, 2)
    position(zeros(700))
    assert position.table.shape == (512, DIM)


def test_learned_takes_its_row_for_each_place():
    position = Learned(DIM, 2, longest=6)
    close(position(zeros(3, dtype=torch.float32), 2)[0], position.weight[2:5])


@pytest.mark.parametrize(("offset", "steps"), [(0, 7), (6, 1), (4, 3)])
def test_learned_past_its_length_is_an_error_the_user_can_mend(offset, steps):
    position = Learned(DIM, 2, longest=6)
    position(zeros(2), 4)
    message = f"learned positions reach 6 tokens, here {offset + steps}; set position.longest higher"
    with pytest.raises(SeqloomError, match=message):
        position(zeros(steps), offset)


def test_rotary_formula():
    position = Rotary(DIM, 4)
    q = drawn(1, 1, 5, 4)
    turned, _ = position.turn(q, q, offset=3)
    for t in range(5):
        for i in range(2):
            angle = (t + 3) * 10000 ** (-2 * i / 4)
            x, y = q[0, 0, t, 2 * i].item(), q[0, 0, t, 2 * i + 1].item()
            wanted = (x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle))
            assert turned[0, 0, t, 2 * i : 2 * i + 2].tolist() == pytest.approx(wanted, abs=1e-6)


def test_rotary_scores_depend_on_the_distance_alone():
    position = Rotary(DIM, 4).double()
    q, k = (drawn(1, 1, 1, 4, seed=seed).expand(1, 1, 6, 4) for seed in (1, 2))
    scores = [torch.matmul(a, b.mT)[0, 0] for a, b in (position.turn(q, k, offset) for offset in (0, 5, 400))]
    close(scores[0], scores[1], 1e-9)
    close(scores[0], scores[2], 1e-9)
    for distance in range(1, 5):  # the same along every diagonal, and another on each
        diagonal = scores[0].diagonal(-distance)
        close(diagonal, diagonal[:1].expand_as(diagonal), 1e-9)
        assert abs(diagonal[0] - scores[0][0, 0]).item() > 1e-3


def test_rotary_keeps_lengths():
    q = drawn(2, 2, 7, 4)
    turned, _ = Rotary(DIM, 4).double().turn(q, q)
    close(turned.norm(dim=-1), q.norm(dim=-1))


def test_rotary_in_bfloat16_still_tells_far_places_apart():
    """A model cast whole to bfloat16 must not count positions in it: it has no numbers between 300 and 302."""
    exact, rough = Rotary(DIM, 4), Rotary(DIM, 4).to(torch.bfloat16)
    q = torch.ones(1, 1, 4, 4)
    wanted, _ = exact.turn(q, q, 1001)
    found, _ = rough.turn(q.bfloat16(), q.bfloat16(), 1001)
    assert (found.float() - wanted).abs().max().item() < 0.05


def test_rotary_turns_pairs():
    with pytest.raises(SeqloomError, match="the width of a head must be even, here 3"):
        Rotary(6, 3)


def test_a_position_moves_either_the_embedding_or_the_query():
    x, q, k = drawn(2, 5, DIM), drawn(2, 2, 5, 4), drawn(2, 2, 5, 4, seed=3)
    for position, moves, turns in (
        (NoPosition(DIM, 4), False, False),
        (Sinusoidal(DIM, 4), True, False),
        (Learned(DIM, 4), True, False),
        (Rotary(DIM, 4), False, True),
    ):
        assert torch.equal(position(x), x) != moves
        turned = position.turn(q, k, 1)
        assert torch.equal(turned[0], q) != turns
        assert torch.equal(turned[1], k) != turns


def test_what_is_computed_is_not_saved():
    assert not Sinusoidal(DIM, 4).state_dict()
    assert not Rotary(DIM, 4).state_dict()
    assert list(Learned(DIM, 4).state_dict()) == ["weight"]
