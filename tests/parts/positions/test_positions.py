"""Positions against their formulas."""

import math

import pytest
import torch

from seqloom.errors import SeqloomError
from seqloom.fast.decoding.beam_cache import SideBySide
from seqloom.parts.positions.absolute import Learned, Sinusoidal
from seqloom.parts.positions.floater import Field, Floater, runge_kutta
from seqloom.parts.positions.position import NoPosition
from seqloom.parts.positions.position_table import POSITIONS
from seqloom.parts.positions.relative import Alibi, Relative, bucket_of
from seqloom.parts.positions.rotary import Rotary, SinusoidalRotary
from tests.laws import close, drawn, shake

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
        rotated = torch.stack([even * angle.cos() + odd * angle.sin(), odd * angle.cos() - even * angle.sin()], -1)
        close(rotated.flatten(1), table[shift : shift + 60], 1e-5)


@pytest.mark.parametrize("offset", [1, 100, 508, 509, 512, 2000])
def test_sinusoidal_offset_continues_the_table(offset):
    position = Sinusoidal(DIM, 2)
    close(position(zeros(4), offset), position(zeros(offset + 4))[:, offset:], 1e-7)


def test_sinusoidal_remembers_nothing_of_a_long_call():
    position = Sinusoidal(DIM, 2)
    position(zeros(700))
    assert position.table.shape == (512, DIM)


def test_learned_takes_its_row_for_each_position():
    position = Learned(DIM, 2, longest=6)
    close(position(zeros(3, dtype=torch.float32), 2)[0], position.weight[2:5])


@pytest.mark.parametrize(("offset", "steps"), [(0, 7), (6, 1), (4, 3)])
def test_learned_past_its_length_is_an_error_the_user_can_mend(offset, steps):
    position = Learned(DIM, 2, longest=6)
    position(zeros(2), 4)
    message = f"learned positions reach 6 tokens, here {offset + steps}; set position.longest higher, or choose 'sinus"
    with pytest.raises(SeqloomError, match=message):
        position(zeros(steps), offset)


def test_rotary_formula():
    position = Rotary(DIM, 4)
    q = drawn(1, 1, 5, 4)
    rotated, _ = position.rotate(q, q, offset=3)
    for t in range(5):
        for i in range(2):
            angle = (t + 3) * 10000 ** (-2 * i / 4)
            x, y = q[0, 0, t, 2 * i].item(), q[0, 0, t, 2 * i + 1].item()
            wanted = (x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle))
            assert rotated[0, 0, t, 2 * i : 2 * i + 2].tolist() == pytest.approx(wanted, abs=1e-6)


def test_rotary_scores_depend_on_the_distance_alone():
    position = Rotary(DIM, 4).double()
    q, k = (drawn(1, 1, 1, 4, seed=seed).expand(1, 1, 6, 4) for seed in (1, 2))
    scores = [torch.matmul(a, b.mT)[0, 0] for a, b in (position.rotate(q, k, offset) for offset in (0, 5, 400))]
    close(scores[0], scores[1], 1e-9)
    close(scores[0], scores[2], 1e-9)
    for distance in range(1, 5):  # the same along every diagonal, and another on each
        diagonal = scores[0].diagonal(-distance)
        close(diagonal, diagonal[:1].expand_as(diagonal), 1e-9)
        assert abs(diagonal[0] - scores[0][0, 0]).item() > 1e-3


def test_rotary_keeps_lengths():
    q = drawn(2, 2, 7, 4)
    rotated, _ = Rotary(DIM, 4).double().rotate(q, q)
    close(rotated.norm(dim=-1), q.norm(dim=-1))


def test_rotary_in_bfloat16_still_tells_far_positions_apart():
    """A model cast whole to bfloat16 must not count positions in it: it has no numbers between 300 and 302."""
    exact, rough = Rotary(DIM, 4), Rotary(DIM, 4).to(torch.bfloat16)
    q = torch.ones(1, 1, 4, 4)
    wanted, _ = exact.rotate(q, q, 1001)
    found, _ = rough.rotate(q.bfloat16(), q.bfloat16(), 1001)
    assert (found.float() - wanted).abs().max().item() < 0.05


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_rotary_as_a_complex_product_is_rotary_written_out(dtype, monkeypatch):
    """The form for compilers gives the same; with gradients."""
    q, k = (drawn(2, 3, 5, 8, seed=seed).to(dtype).requires_grad_() for seed in (1, 2))
    weight, found = drawn(2, 3, 5, 8, seed=3), []
    for compiling in (False, True):
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda compiling=compiling: compiling)
        rotated = Rotary(DIM, 8).rotate(q, k, 1001)
        assert {part.dtype for part in rotated} == {dtype}
        grads = torch.autograd.grad(sum((part * weight).square().sum() for part in rotated), [q, k])
        found.append([part.double() for part in (*rotated, *grads)])
    close(*found, {torch.float64: 1e-12, torch.float32: 2e-5}.get(dtype, 1e-2))


def test_layers_share_the_rotations_of_a_pass():
    """A table of positions from 3 on serves any range of them."""
    q, k = drawn(1, 2, 6, 4, seed=1), drawn(1, 2, 6, 4, seed=2)
    position = Rotary(DIM, 4).double()
    shared = position.prepare(drawn(1, 6, DIM), 3)
    for offset, steps in ((3, 6), (3, 2), (5, 4)):
        few = [part[:, :, :steps] for part in (q, k)]
        close(list(shared.rotate(*few, offset)), list(position.rotate(*few, offset)))
    assert Sinusoidal(DIM, 4).prepare(zeros(6)).rotate(q, k) == (q, k)


def test_rotary_needs_an_even_width():
    with pytest.raises(SeqloomError, match="the width of a head must be even, here 3"):
        Rotary(6, 3)


def test_a_position_adds_to_embeddings_or_rotates_queries_or_biases_scores():
    x, q, k = drawn(2, 5, DIM), drawn(2, 2, 5, 4), drawn(2, 2, 5, 4, seed=3)
    for position, adds, rotates in (
        (NoPosition(DIM, 4), False, False),
        (Sinusoidal(DIM, 4), True, False),
        (Learned(DIM, 4), True, False),
        (Rotary(DIM, 4), False, True),
        (SinusoidalRotary(DIM, 4), True, True),
        (Relative(DIM, 4), False, False),
        (Alibi(DIM, 4), False, False),
        (Floater(DIM, 4), True, False),
    ):
        assert torch.equal(position(x), x) != adds
        rotated = position.rotate(q, k, 1)
        assert torch.equal(rotated[0], q) != rotates
        assert torch.equal(rotated[1], k) != rotates
        assert (position.bias(2, 5, 5) is None) == (adds or rotates or isinstance(position, NoPosition))


def test_what_is_computed_is_not_saved():
    assert not Sinusoidal(DIM, 4).state_dict()
    assert not Rotary(DIM, 4).state_dict()
    assert not SinusoidalRotary(DIM, 4).state_dict()
    assert not Alibi(DIM, 4).state_dict()
    assert list(Learned(DIM, 4).state_dict()) == list(Relative(DIM, 4).state_dict()) == ["weight"]


def test_sinusoidal_rotary_is_one_and_the_other():
    x, q, k = drawn(2, 5, DIM), drawn(2, 2, 5, 4), drawn(2, 2, 5, 4, seed=3)
    both = SinusoidalRotary(DIM, 4).double()
    close(both(x, 3), Sinusoidal(DIM, 4).double()(x, 3))
    close(list(both.rotate(q, k, 3)), list(Rotary(DIM, 4).double().rotate(q, k, 3)))
    close(list(both.prepare(x, 3).rotate(q, k, 3)), list(Rotary(DIM, 4).double().rotate(q, k, 3)))


def test_rotary_by_hand():
    """Position 1 rotates (1, 0) by one radian in the first pair and by a hundredth in the second."""
    rotated, _ = Rotary(DIM, 4).rotate(*[torch.tensor([[[[1.0, 0.0, 1.0, 0.0]] * 2]])] * 2)
    assert rotated[0, 0].flatten().tolist() == pytest.approx(
        [1.0, 0.0, 1.0, 0.0, 0.540302, 0.841471, 0.999950, 0.0099998], abs=1e-6
    )


def test_buckets_by_hand():
    """Eight buckets up to 32: 0 … 3 by themselves, then those that begin at 4 · 8^(i/4) = 4, 6.7, 11.3 and 19.03."""
    wanted = [0, 1, 2, 3, *[4] * 3, *[5] * 5, *[6] * 8, *[7] * 13]
    assert bucket_of(32, 8).tolist() == wanted
    assert bucket_of(128, 16).tolist()[:9] == [*range(8), 8]


def test_relative_bias_by_hand():
    position = Relative(4, 2, buckets=4, far=4)
    position.weight.data = torch.tensor([[0.0, 10.0], [1.0, 11.0], [2.0, 12.0], [3.0, 13.0]])
    # Not causal: bucket 0 is distance 0, 1 behind, 3 ahead; the two heads differ by 10.
    wanted = torch.tensor([[0.0, 3.0, 3.0], [1.0, 0.0, 3.0], [1.0, 1.0, 0.0]])
    close(position.bias(2, 3, 3)[0], torch.stack([wanted, wanted + 10]))
    # Causal: buckets for 0, 1, 2 and from 3 on; one query at position 5.
    close(position.bias(2, 1, 6, 5, causal=True)[0, 0], torch.tensor([[3.0, 3.0, 3.0, 2.0, 1.0, 0.0]]))


@pytest.mark.parametrize(("buckets", "far"), [(32, 128), (8, 20), (16, 64), (6, 100)])
def test_buckets_are_those_of_t5(buckets, far):
    theirs = pytest.importorskip("transformers.models.t5.modeling_t5").T5Attention._relative_position_bucket
    position = Relative(4, 4, buckets=buckets, far=far)
    position.weight.data = torch.arange(float(buckets))[:, None]
    distance = torch.arange(300)[:, None] - torch.arange(300)
    both = theirs(-distance, True, buckets, far)
    assert torch.equal(position.bias(1, 300, 300)[0, 0].long(), both)
    behind = theirs(-distance, False, buckets, far)
    assert torch.equal(position.bias(1, 300, 300, causal=True)[0, 0].long(), behind)


def test_buckets_that_make_no_sense_are_refused():
    for buckets, far in ((3, 128), (2, 128), (32, 16)):
        with pytest.raises(SeqloomError, match=f"even number of buckets, 4 at least.*here {buckets} and {far}"):
            Relative(8, 4, buckets, far)


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (1, [2**-8]),
        (8, [2**-i for i in range(1, 9)]),
        (16, [2 ** (-i / 2) for i in range(1, 17)]),
        (6, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]),  # those of four heads, then the first and third of eight
        (12, [*(2**-i for i in range(1, 9)), *(2 ** (-i / 2) for i in (1, 3, 5, 7))]),
    ],
)
def test_alibi_slopes(heads, slopes):
    bias = Alibi(heads * 4, 4).bias(heads, 3, 3, dtype=torch.float64)
    wanted = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]).double()
    close(bias[0], -torch.tensor(slopes, dtype=torch.float64)[:, None, None] * wanted)


def test_alibi_in_bfloat16_still_counts_in_whole_numbers():
    exact, rough = Alibi(DIM, 4), Alibi(DIM, 4).to(torch.bfloat16)
    wanted, found = exact.bias(2, 1, 900, 899), rough.bias(2, 1, 900, 899, dtype=torch.bfloat16)
    close(found, wanted.bfloat16(), 1e-9)


@pytest.mark.parametrize("name", list(POSITIONS))
@pytest.mark.parametrize("causal", [True, False])
def test_a_bias_at_an_offset_is_a_row_of_the_whole(name, causal):
    position = POSITIONS[name](DIM, 4)
    whole = position.bias(2, 9, 9, causal=causal, dtype=torch.float64)
    later = position.bias(2, 3, 9, 6, causal, torch.float64)
    assert (whole is None) == (later is None)
    if whole is not None:
        close(later, whole[:, :, 6:])
        assert whole.shape == (1, 2, 9, 9)  # with four axes, as fused kernels want it
        assert whole.dtype == torch.float64


def test_a_bias_of_hypotheses_side_by_side():
    """Two a step: keys of positions 0, 0, 1, 1, 2, 2, queries at position 2."""
    for position in (Alibi(DIM, 4), Relative(DIM, 4)):
        found = SideBySide(position, 2).bias(2, 2, 6)
        close(found, position.bias(2, 1, 3, 2, True).repeat_interleave(2, -1))
    assert SideBySide(Rotary(DIM, 4), 2).bias(2, 2, 6) is None


def test_runge_kutta_by_hand():
    """dp/dt = a p: one step multiplies by 1 + z + z²/2 + z³/6 + z⁴/24, z = a·step. dp/dt = t³ is integrated exactly."""
    p = torch.tensor([1.0, -2.0], dtype=torch.float64)
    close(runge_kutta(lambda t, p: 0.5 * p, 0.0, p, 2.0), p * (1 + 1 + 1 / 2 + 1 / 6 + 1 / 24))
    close(runge_kutta(lambda t, p: torch.full_like(p, t**3), 1.0, p, 2.0), p + (3**4 - 1) / 4)


class Linear(torch.nn.Module):
    """dp/dt = 3 p"""

    def forward(self, t, p):
        return 3 * p


def test_floater_of_a_linear_field():
    """Its solution is known: p(t) = e^3t p(0), and position i is at t = i · step."""
    position = Floater(4, 2, step=0.1, start="zero").double()
    position.field = Linear()
    found = position(zeros(6, 4))[0]
    rate = 1 + 0.3 + 0.3**2 / 2 + 0.3**3 / 6 + 0.3**4 / 24
    close(found, position.first * rate ** torch.arange(6.0)[:, None].double())
    close(found, position.first * torch.exp(0.3 * torch.arange(6.0)[:, None].double()), 1e-4)
    close(position(zeros(2, 4), 4)[0], found[4:])


class Still(torch.nn.Module):
    """dp/dt = rate + t, whatever p"""

    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, t, p):
        return torch.full_like(p, self.rate + t)


def test_floater_knows_the_time():
    """dp/dt = t: p = p(0) + t²/2, which the method integrates exactly."""
    position = Floater(4, 2, step=0.5, start="zero").double()
    position.field = Still(0.0)
    times = 0.5 * torch.arange(6.0)[:, None].double()
    close(position(zeros(6, 4))[0], position.first + times.square() / 2)


def test_floater_in_bfloat16():
    """Small steps add up over many positions, though the sum with the embedding is rounded."""
    position = Floater(4, 2, step=0.01, start="zero").bfloat16()
    position.field = Still(1.0)
    found, times = position(zeros(400, 4, torch.bfloat16)).float()[0], 0.01 * torch.arange(400.0)[:, None]
    wanted = position.first.float() + times + times.square() / 2
    assert ((found - wanted).abs() <= 0.01 * wanted.abs().clamp(min=1)).all()


def test_a_field_by_hand():
    field = shake(Field(3, 5).double(), 1)
    p = drawn(3)
    inner = torch.tanh(field.state.weight @ p + field.time * 0.7 + field.state.bias)
    close(field(0.7, p), field.out.weight @ inner)


def test_floater_begins_as_sinusoids_and_learns_to_leave_them():
    position = Floater(DIM, 4)
    close(position(zeros(9)), Sinusoidal(DIM, 4)(zeros(9)))
    position(zeros(9)).sum().backward()
    assert position.field.out.weight.grad.abs().sum() > 0
    torch.nn.init.ones_(position.field.out.weight)
    assert not torch.allclose(position(zeros(9)), Sinusoidal(DIM, 4)(zeros(9)))
    with pytest.raises(SeqloomError, match="did you mean 'zero'"):
        Floater(DIM, 4, start="zeros")
