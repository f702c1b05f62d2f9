"""Input feeding over all steps by one function equals the loop."""

import pytest
import torch

from seqloom import hardware
from seqloom.fast.linear import cpu as linear_cpu
from seqloom.fast.recurrent import input_feeding_cpu, pointwise
from seqloom.models.decoders.attentive import AttentiveDecoder
from seqloom.models.protocols import Encoded
from seqloom.parts.probe import watch
from seqloom.parts.recurrent.cells import LstmCell
from tests.laws import drawn

onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
ROWS, STEPS, POSITIONS, DIM = 4, 5, 3, 8


def single(*shape, seed=0):
    return drawn(*shape, seed=seed).float()


def decoder(score="general", **more):
    torch.manual_seed(0)
    return AttentiveDecoder(6, DIM, ((DIM, DIM),), "lstm", DIM, score=score, input_feeding=True, **more)


def run(made, lengths=None, fast=True, half=False, rows=ROWS):
    """Outputs of steps in two calls, the last state, and all gradients."""
    inputs = [
        single(rows, STEPS, 6),
        single(ROWS, POSITIONS, DIM, seed=1),
        *(single(ROWS, DIM, seed=n) for n in (2, 3)),
    ]
    x, states, h, c = (part.requires_grad_() for part in inputs)
    with pytest.MonkeyPatch.context() as patch, torch.autocast("cpu", torch.bfloat16, enabled=half):
        patch.setattr(input_feeding_cpu, "supported", input_feeding_cpu.supported if fast else lambda *_: False)
        encoded = Encoded(states=states, lengths=lengths, summary=h, final=((h, c),))
        state = made.begin(encoded, rows // ROWS)
        first, state = made(x[:, :2], state)
        second, state = made(x[:, 2:], state)
    found = [part.float() for part in (first, second, *state.rows.stack[0], state.rows.attentional)]
    torch.stack([(part * single(*part.shape, seed=7)).sum() for part in found]).sum().backward()
    grads = [part.grad for part in (*inputs, *made.parameters())]
    made.zero_grad()
    return first, [*(part.detach() for part in found), *grads]


@onednn
@pytest.mark.parametrize("score", ["general", "dot", "scaled"])
@pytest.mark.parametrize("lengths", [None, [3, 1, 2, 3]], ids=["full", "ragged"])
def test_one_function_is_the_loop(score, lengths):
    made, lengths = decoder(score), None if lengths is None else torch.tensor(lengths)
    (fast, ours), (slow, plain) = run(made, lengths), run(made, lengths, fast=False)
    assert "_InputFeeding" in type(fast.grad_fn).__name__
    assert "_InputFeeding" not in type(slow.grad_fn).__name__
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("bf16", [True, False], ids=["oneDNN", "without"])
@pytest.mark.parametrize("lengths", [None, [3, 1, 2, 3]], ids=["full", "ragged"])
def test_in_bf16_it_is_as_close_as_the_loop(lengths, bf16, monkeypatch):
    """Only matmuls are in bf16: outputs, c and all gradients are as close to float32 as under autocast. Also on a
    processor without bf16 in oneDNN."""
    for module in (hardware, linear_cpu):
        monkeypatch.setattr(module, "_BF16", bf16 and hardware._BF16)
    made, lengths = decoder(), None if lengths is None else torch.tensor(lengths)
    _, exact = run(made, lengths, fast=False)
    (fast, ours), (_, loop) = run(made, lengths, half=True), run(made, lengths, fast=False, half=True)
    assert fast.dtype == torch.bfloat16
    assert "_InputFeeding" in type(fast.grad_fn).__name__
    for whole, one, other in zip(exact, ours, loop, strict=True):
        bound = 0.02 * whole.abs().max()
        assert one.dtype == torch.float32
        assert (one - whole).abs().max() <= max(bound, 1.5 * (other - whole).abs().max())


@onednn
def test_the_loop_runs_where_it_is_not_supported(monkeypatch):
    """Several rows a sentence, two layers, another score, probes, no oneDNN."""
    for made, rows in ((decoder(), 2 * ROWS), (decoder(layers=2), ROWS), (decoder("additive"), ROWS)):
        final = ((single(ROWS, DIM), single(ROWS, DIM)),) * len(made.recurrent.layers)
        encoded = Encoded(states=single(ROWS, POSITIONS, DIM), lengths=None, summary=final[0][0], final=final)
        y, _ = made(single(rows, STEPS, 6), made.begin(encoded, rows // ROWS))
        assert "_InputFeeding" not in type(y.grad_fn).__name__
    made = decoder()
    encoded = Encoded(states=single(ROWS, POSITIONS, DIM), lengths=None, summary=final[0][0], final=final[:1])
    with watch(made) as seen:
        made(single(ROWS, STEPS, 6), made.begin(encoded))
    assert len(seen["attention"]) == STEPS
    monkeypatch.setattr(linear_cpu, "_ONEDNN", False)
    assert "_InputFeeding" not in type(made(single(ROWS, STEPS, 6), made.begin(encoded))[0].grad_fn).__name__


def test_lstm_pointwise_is_the_cells_step():
    torch.manual_seed(0)
    cell = LstmCell(3, DIM).double()
    gates, h, c = drawn(ROWS, 4 * DIM), drawn(ROWS, DIM, seed=1), drawn(ROWS, DIM, seed=2)
    with torch.no_grad():
        wanted, _ = cell.step(gates, (h, c))
        sums = gates + h @ cell.recurrent.mT
        for found in (pointwise.LstmPointwise.apply(sums, c), pointwise.lstm_pointwise(sums.clone(), c)[:2]):
            torch.testing.assert_close(found, wanted, atol=1e-12, rtol=1e-12)
    assert torch.autograd.gradcheck(pointwise.LstmPointwise.apply, [gates.requires_grad_(), c.requires_grad_()])
