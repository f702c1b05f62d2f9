"""All steps of an LSTM that is fed what it said last, by one function, are the steps one by one."""

import pytest
import torch

from seqloom.fast.linear import cpu as product
from seqloom.fast.lstm import input_feeding_cpu, pointwise
from seqloom.models.decoders.attentive import AttentiveDecoder
from seqloom.models.protocols import Encoded
from seqloom.parts.probe import watch
from seqloom.parts.recurrent.cells import LstmCell
from tests.laws import drawn

have = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
ROWS, STEPS, PLACES, DIM = 4, 5, 3, 8


def single(*shape, seed=0):
    return drawn(*shape, seed=seed).float()


def decoder(score="general", **more):
    torch.manual_seed(0)
    return AttentiveDecoder(6, DIM, ((DIM, DIM),), "lstm", DIM, score=score, input_feeding=True, **more)


def run(made, lengths=None, quick=True, half=False, rows=ROWS):
    """All that comes out of some steps after some others, and all gradients."""
    inputs = [single(rows, STEPS, 6), single(ROWS, PLACES, DIM, seed=1), *(single(ROWS, DIM, seed=n) for n in (2, 3))]
    x, states, h, c = (part.requires_grad_() for part in inputs)
    with pytest.MonkeyPatch.context() as patch, torch.autocast("cpu", torch.bfloat16, enabled=half):
        patch.setattr("seqloom.models.decoders.attentive.able", input_feeding_cpu.able if quick else lambda *_: False)
        encoded = Encoded(states=states, lengths=lengths, summary=h, final=((h, c),))
        state = made.begin(encoded, rows // ROWS)
        first, state = made(x[:, :2], state)
        second, state = made(x[:, 2:], state)
    found = [part.float() for part in (first, second, *state.rows.stack[0], state.rows.attentional)]
    torch.stack([(part * single(*part.shape, seed=7)).sum() for part in found]).sum().backward()
    slopes = [part.grad for part in (*inputs, *made.parameters())]
    made.zero_grad()
    return first, [*(part.detach() for part in found), *slopes]


@have
@pytest.mark.parametrize("score", ["general", "dot", "scaled"])
@pytest.mark.parametrize("lengths", [None, [3, 1, 2, 3]], ids=["full", "ragged"])
def test_one_function_is_the_loop(score, lengths):
    made, lengths = decoder(score), None if lengths is None else torch.tensor(lengths)
    (quick, ours), (slow, plain) = run(made, lengths), run(made, lengths, quick=False)
    assert "_Fed" in type(quick.grad_fn).__name__
    assert "_Fed" not in type(slow.grad_fn).__name__
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("able", [True, False], ids=["oneDNN", "without"])
@pytest.mark.parametrize("lengths", [None, [3, 1, 2, 3]], ids=["full", "ragged"])
def test_in_half_precision_it_is_as_near_as_the_loop(lengths, able, monkeypatch):
    """Products alone are halved: what is said, c and all gradients lie as near the whole ones as by autocast. So too on
    a processor for which oneDNN has no such products."""
    monkeypatch.setattr(product, "_HALVES", able and product._HALVES)
    made, lengths = decoder(), None if lengths is None else torch.tensor(lengths)
    _, exact = run(made, lengths, quick=False)
    (quick, ours), (_, loop) = run(made, lengths, half=True), run(made, lengths, quick=False, half=True)
    assert quick.dtype == torch.bfloat16
    assert "_Fed" in type(quick.grad_fn).__name__
    for whole, one, other in zip(exact, ours, loop, strict=True):
        bound = 0.02 * whole.abs().max()
        assert one.dtype == torch.float32
        assert (one - whole).abs().max() <= max(bound, 1.5 * (other - whole).abs().max())


@have
def test_who_is_not_usual_steps_one_by_one(monkeypatch):
    """Several rows a sentence, two layers, another score, a watched part, or no gradients."""
    for made, rows in ((decoder(), 2 * ROWS), (decoder(layers=2), ROWS), (decoder("additive"), ROWS)):
        final = ((single(ROWS, DIM), single(ROWS, DIM)),) * len(made.recurrent.layers)
        encoded = Encoded(states=single(ROWS, PLACES, DIM), lengths=None, summary=final[0][0], final=final)
        y, _ = made(single(rows, STEPS, 6), made.begin(encoded, rows // ROWS))
        assert "_Fed" not in type(y.grad_fn).__name__
    made = decoder()
    encoded = Encoded(states=single(ROWS, PLACES, DIM), lengths=None, summary=final[0][0], final=final[:1])
    with watch(made) as seen:
        made(single(ROWS, STEPS, 6), made.begin(encoded))
    assert len(seen["attention"]) == STEPS
    monkeypatch.setattr(product, "_HAVE", False)
    assert "_Fed" not in type(made(single(ROWS, STEPS, 6), made.begin(encoded))[0].grad_fn).__name__


def test_gates_are_opened_as_in_a_step():
    torch.manual_seed(0)
    cell = LstmCell(3, DIM).double()
    gates, h, c = drawn(ROWS, 4 * DIM), drawn(ROWS, DIM, seed=1), drawn(ROWS, DIM, seed=2)
    with torch.no_grad():
        wanted, _ = cell.step(gates, (h, c))
        sums = gates + h @ cell.recurrent.mT
        for found in (pointwise.Step.apply(sums, c), pointwise.opened(sums.clone(), c)[:2]):
            torch.testing.assert_close(found, wanted, atol=1e-12, rtol=1e-12)
    assert torch.autograd.gradcheck(pointwise.Step.apply, [gates.requires_grad_(), c.requires_grad_()])
