"""The LSTM in half precision equals the loop: values, gradients, states. On a CPU in Triton's interpreter."""

import pytest
import torch

from seqloom.fast.recurrent import lstm_gpu
from seqloom.fast.recurrent import lstm_triton as kernel
from seqloom.fast.recurrent.pointwise import Saved, lstm_pointwise, lstm_pointwise_backward
from seqloom.fast.triton_common import runtime
from seqloom.parts.probe import watch
from seqloom.parts.recurrent.layers import Recurrent
from seqloom.parts.visibility import Visibility, keep
from tests.fast import triton_common as common
from tests.fast.triton_common import DEVICE, drawn, needed
from tests.laws import shake

pytestmark = needed
CAUSAL = Visibility(causal=True)
HALF = torch.float16  # eight times as fine as bf16, so that bounds are tight


@pytest.fixture
def calls(monkeypatch):
    """Kernels on; counts the calls."""
    calls = []
    monkeypatch.setattr(runtime, "READY", True)
    monkeypatch.setattr(lstm_gpu, "lstm", lambda *given, inner=lstm_gpu.lstm: calls.append(1) or inner(*given))
    return calls


def stacked(input_dim=8, dim=16, layers=1, **more):
    torch.manual_seed(4)
    return shake(Recurrent(input_dim, dim, "lstm", layers, **more), 1).to(DEVICE)


def autocast(on=True, dtype=HALF):
    return torch.autocast(DEVICE, dtype, enabled=on)


def twice(monkeypatch, run, inputs):
    """Outputs of `run` and all gradients: by the kernels in half precision, and by torch in float32."""
    both = []
    for on in (True, False):
        monkeypatch.setattr(runtime, "READY", on)
        with autocast(on):
            outputs = run()
        both.append([*(part.detach() for part in outputs), *common.gradients(outputs, inputs)])
    return both


def flat(y, state):
    return [y, *(part for layer in state for part in layer)]


@pytest.mark.parametrize("shape", [(1, 8), (3, 16), (70, 40)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_a_step_equals_its_reference(shape, dtype):
    rows, dim = shape
    gates, c = drawn(rows, 4 * dim, dtype=dtype).detach(), drawn(rows, dim, seed=2).detach()
    h, after, saved = lstm_pointwise(gates.float().clone(), c)
    mine = gates.clone(), torch.empty_like(c, dtype=dtype), torch.empty_like(c)
    kernel.forward(mine[0], c, mine[1], mine[2])
    common.near(mine, (saved.gates, h, after), dtype)
    grad_y, grad_next, grad_c = (
        drawn(rows, dim, dtype=dtype).detach(),
        drawn(rows, dim, dtype=dtype, seed=3).detach(),
        c * 2,
    )
    for then in (grad_next, None):
        grad_gates, grad_h = (
            torch.empty(rows, 4 * dim, device=DEVICE),
            grad_y.float() + (0 if then is None else then.float()),
        )
        wanted = lstm_pointwise_backward(Saved(mine[0].float(), c, saved.tanh_c), grad_h, grad_c, grad_gates)
        found = torch.empty_like(gates), grad_c.clone()
        kernel.backward(grad_y, then, (mine[0], c, after), found)
        common.near(found, (grad_gates, wanted), dtype)


@pytest.mark.parametrize("lengths", [None, [9, 1, 6]], ids=["full", "lengths"])
@pytest.mark.parametrize("directions", [1, 2])
def test_it_is_the_loop_deep_and_in_both_directions(calls, monkeypatch, directions, lengths):
    stack, x = stacked(layers=2, directions=directions), drawn(3, 9, 8)
    visible = Visibility(lengths=None if lengths is None else torch.tensor(lengths, device=DEVICE))
    real = 1.0 if lengths is None else keep(visible.lengths, 9)[:, :, None]

    def run():
        y, state = stack(x, visible)
        return flat(y * real, state)

    common.near(*twice(monkeypatch, run, [x, *stack.parameters()]), HALF)
    assert len(calls) == 2 * directions


def test_from_a_state_with_gradients(calls, monkeypatch):
    stack, x = stacked(), drawn(3, 7, 8)
    first = (tuple(drawn(3, 16, seed=seed) for seed in (2, 3)),)
    run = lambda: flat(*stack(x, CAUSAL, first))  # noqa: E731
    common.near(*twice(monkeypatch, run, [x, *first[0], *stack.parameters()]), HALF)
    assert len(calls) == 1


@pytest.mark.parametrize("part", [0, 1], ids=["h", "c"])
def test_unused_outputs_have_no_gradient(calls, monkeypatch, part):
    """The loss takes the states alone, or of the last state c alone."""
    stack, x = stacked(), drawn(3, 7, 8)
    run = lambda: [stack(x, CAUSAL)[0]] if part == 0 else [stack(x, CAUSAL)[1][0][1]]  # noqa: E731
    common.near(*twice(monkeypatch, run, [x, *stack.parameters()]), HALF)


def test_in_two_calls_as_in_one(calls):
    stack, x = stacked(layers=2), drawn(2, 12, 8)
    with autocast():
        whole, end = stack(x, CAUSAL)
        first, state = stack(x[:, :5], CAUSAL)
        second, state = stack(x[:, 5:], CAUSAL, state)
    assert len(calls) == 6
    common.near(flat(torch.cat([first, second], 1), state), flat(whole, end), HALF)


def test_weights_that_were_dropped_are_those_it_takes(calls):
    stack, x = stacked(weight_drop=0.5).train(), drawn(2, 6, 8)
    with autocast():
        one, two = stack(x, CAUSAL)[0], stack(x, CAUSAL)[0]
        stack.eval()
        three, four = stack(x, CAUSAL)[0], stack(x, CAUSAL)[0]
    assert len(calls) == 4
    assert not torch.equal(one, two)
    assert torch.equal(three, four)


def test_unsupported(calls):
    """Float32, no gradients, one step, odd widths, probes."""
    stack, x = stacked(), drawn(2, 6, 8)
    stack(x, CAUSAL)
    with autocast(dtype=torch.bfloat16):  # a CPU's own LSTM has no float16
        with torch.no_grad():
            stack(x, CAUSAL)
        stack(x[:, :1], CAUSAL)
        stacked(dim=12)(x, CAUSAL)
        stacked(input_dim=5)(x[:, :, :5], CAUSAL)
        with watch(stack):
            stack(x, CAUSAL)
    assert not calls
