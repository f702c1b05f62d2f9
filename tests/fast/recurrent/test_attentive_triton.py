"""Cells with a tape say the same by one kernel as step by step: values, gradients, states. On a CPU by Triton's
interpreter."""

import pytest
import torch

from seqloom.build import build
from seqloom.fast.recurrent import history_gpu as fused_history
from seqloom.fast.triton_common import runtime
from seqloom.parts.probe import watch
from seqloom.parts.recurrent.cells import CELLS
from seqloom.parts.recurrent.layers import Recurrent, run_cell
from seqloom.parts.visibility import Visibility
from tests.fast.triton_common import DEVICE, drawn, gradients, needed
from tests.laws import shake

pytestmark = needed
TAPES = ("attentive-rnn", "lstmn")
CAUSAL = Visibility(causal=True)


@pytest.fixture
def calls(monkeypatch):
    """Kernels on; gives how often one was called."""
    calls = []
    monkeypatch.setattr(runtime, "READY", True)
    for name in ("attentive", "lstmn"):
        inner = getattr(fused_history, name)
        monkeypatch.setattr(fused_history, name, lambda *given, inner=inner: calls.append(1) or inner(*given))
    return calls


def made(cell, input_dim=5, dim=16, **more):
    torch.manual_seed(4)
    return shake(build(CELLS, cell, input_dim=input_dim, dim=dim, **more), 1).to(DEVICE)


def stacked(cell, dim=16, layers=1, **more):
    torch.manual_seed(4)
    return shake(Recurrent(5, dim, cell, layers, **more), 1).to(DEVICE)


def leaves(state):
    """All tensors of a state that have a gradient."""
    parts = [part for some in state for part in (leaves(some) if isinstance(some, tuple) else [some])]
    return [part for part in parts if part.requires_grad]


def joined(state):
    """The state with its tape in one block: how many there are is nobody's business."""
    if not isinstance(state[-1], tuple):
        return state
    return (*state[:-1], tuple(torch.cat(parts, 1) for parts in zip(*state[-1], strict=True)))


def twice(monkeypatch, run, inputs):
    """By the kernel and by the loop: what `run` gives, and gradients of all of it."""
    both = []
    for on in (True, False):
        monkeypatch.setattr(runtime, "READY", on)
        y, state = run()
        outputs = [y, *leaves(state)]
        both.append([*(part.detach() for part in outputs), *gradients(outputs, inputs)])
    return both


def near(mine, other):
    assert len(mine) == len(other)
    for a, b in zip(mine, other, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * max(1.0, b.abs().max().item()))


@pytest.mark.parametrize(("steps", "rows", "dim"), [(2, 3, 16), (7, 1, 32), (33, 3, 16), (70, 1, 16), (70, 3, 32)])
@pytest.mark.parametrize("cell", TAPES)
def test_it_is_the_loop(calls, monkeypatch, cell, steps, rows, dim):
    """With the tape behind the state, from which others go on, and all gradients through it."""
    module, x = made(cell, dim=dim), drawn(rows, steps, 5)

    def run():
        y, state = run_cell(module, x, CAUSAL, None)
        return y, joined(state)

    mine, other = twice(monkeypatch, run, [x, *module.parameters()])
    near(mine, other)
    assert len(calls) == 1


@pytest.mark.parametrize("cell", TAPES)
def test_from_a_first_state(calls, monkeypatch, cell):
    """As a decoder has it: an attentive RNN's c_0, an LSTMN's first entry."""
    module, x = made(cell), drawn(3, 20, 5)
    first = tuple(drawn(3, 16, seed=seed) for seed in range(2, 2 + module.parts))

    def run():
        y, state = run_cell(module, x, CAUSAL, first)
        return y, joined(state)

    near(*twice(monkeypatch, run, [x, *first, *module.parameters()]))
    assert len(calls) == 1


@pytest.mark.parametrize("lengths", [None, [9, 1, 6]], ids=["full", "lengths"])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("cell", TAPES)
def test_deep_in_both_directions(calls, monkeypatch, cell, directions, lengths):
    stack, x = stacked(cell, layers=2, directions=directions), drawn(3, 9, 5)
    visible = Visibility(lengths=None if lengths is None else torch.tensor(lengths, device=DEVICE))
    near(*twice(monkeypatch, lambda: stack(x, visible), [x, *stack.parameters()]))
    assert len(calls) == 2 * directions


@pytest.mark.parametrize("cell", TAPES)
def test_steps_continue_from_its_state(calls, cell):
    """In pieces and step by step as all at once, and the state is what the loop's would be."""
    stack, x = stacked(cell, layers=2), drawn(2, 12, 5)
    whole, end = stack(x, CAUSAL)
    assert len(calls) == 2
    first, state = stack(x[:, :8], CAUSAL)
    assert len(calls) == 4
    pieces = [first]
    for some in (x[:, 8:11], x[:, 11:]):
        piece, state = stack(some, CAUSAL, state)
        pieces.append(piece)
    assert len(calls) == 4, "what goes on from a tape goes step by step"
    near([torch.cat(pieces, 1)], [whole])
    for layer, other in zip(state, end, strict=True):
        near(leaves(joined(layer)), leaves(joined(other)))
    inputs = [x, *stack.parameters()]
    near(gradients([torch.cat(pieces, 1)], inputs), gradients([whole], inputs))


def test_a_dot_product_score(calls, monkeypatch):
    module, x = made("attentive-rnn", score="dot"), drawn(2, 9, 5)
    near(*twice(monkeypatch, lambda: run_cell(module, x, Visibility(), None), [x, *module.parameters()]))
    assert len(calls) == 1


@pytest.mark.parametrize("width", [1, 16, 40])
def test_a_score_of_another_width(calls, monkeypatch, width):
    module, x = made("lstmn", score={"kind": "additive", "hidden": width}), drawn(2, 9, 5)
    near(*twice(monkeypatch, lambda: run_cell(module, x, Visibility(), None), [x, *module.parameters()]))
    assert len(calls) == 1


@pytest.mark.parametrize("cell", TAPES)
def test_large_scores_do_not_overflow(calls, monkeypatch, cell):
    module, x = made(cell), drawn(2, 40, 5)
    with torch.no_grad():
        if cell == "lstmn":
            module.look.score.weight.mul_(100.0)
        else:
            module.look.score.scale = 100.0
    found = []
    for on in (True, False):
        monkeypatch.setattr(runtime, "READY", on)
        y, _ = run_cell(module, x, Visibility(), None)
        found.append([y, *gradients([y], [x])])
    assert all(part.isfinite().all() for part in found[0])
    torch.testing.assert_close(found[0][0][:, :4], found[1][0][:, :4], rtol=1e-3, atol=1e-4)
    assert len(calls) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("cell", TAPES)
def test_outputs_have_the_inputs_dtype(calls, cell, dtype):
    module, x = made(cell), drawn(2, 9, 5)
    wanted, _ = run_cell(module, x, Visibility(), None)
    found, state = run_cell(module.to(dtype), x.to(dtype), CAUSAL, None)
    assert {part.dtype for part in (found, *leaves(state))} == {dtype}
    assert (found.float() - wanted).norm() <= 0.05 * wanted.norm()
    assert len(calls) == 2


@pytest.mark.parametrize("cell", TAPES)
def test_no_rows(calls, cell):
    module, x = made(cell), drawn(0, 9, 5)
    y, _ = run_cell(module, x, Visibility(), None)
    y.sum().backward()
    assert x.grad.shape == x.shape
    assert all(part.grad.eq(0).all() for part in module.parameters() if part.grad is not None)
    assert len(calls) == 1


ELSEWHERE = {
    "window": {"window": 5},
    "zoneout": {"zoneout": 0.1},
    "score": {"score": "general"},
    "width": {"dim": 12},
}


@pytest.mark.parametrize("name", ELSEWHERE)
@pytest.mark.parametrize("cell", TAPES)
def test_unsupported(calls, cell, name):
    run_cell(made(cell, **ELSEWHERE[name]), drawn(2, 4, 5), Visibility(), None)
    assert not calls


@pytest.mark.parametrize("cell", TAPES)
def test_probes_see_every_step(calls, cell):
    stack, x = stacked(cell), drawn(2, 4, 5)
    with watch(stack) as seen:
        stack(x, Visibility())
    assert len(seen["layers.0.cells.0.look"]) == 4
    stack(x[:, :1], Visibility())
    stack.double()(x.double(), Visibility())
    assert not calls
    stack.float()(x, Visibility())
    assert len(calls) == 1


@pytest.mark.parametrize("cell", TAPES)
def test_compilers_see_the_steps(calls, cell):
    torch._dynamo.reset()
    stack, x = stacked(cell), drawn(2, 3, 5)
    wanted = stack(x, Visibility())[0]
    assert len(calls) == 1
    found = torch.compile(stack, backend="eager")(x, Visibility())[0]
    assert len(calls) == 1
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs CUDA")
@pytest.mark.parametrize("cell", TAPES)
def test_under_autocast_it_stays_in_float32(calls, cell):
    stack, x = stacked(cell, layers=2), drawn(3, 9, 5)
    wanted = stack(x, Visibility())[0]
    with torch.autocast("cuda", torch.bfloat16):
        found, state = stack(x, CAUSAL)
        assert len(calls) == 4
        stack(x, CAUSAL, state)
    assert len(calls) == 4
    torch.testing.assert_close(found, wanted)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs CUDA")
@pytest.mark.parametrize(("steps", "dim"), [(300, 128), (700, 64), (150, 256)])
@pytest.mark.parametrize("cell", TAPES)
def test_long_rows(calls, monkeypatch, cell, steps, dim):
    """As many threads as there are in earnest: what one writes another reads. The same every time, and the loop's."""
    torch.manual_seed(4)  # as they start: shaken, wide ones are chaotic over so many steps
    module, x = build(CELLS, cell, input_dim=128, dim=dim).to(DEVICE), drawn(40, steps, 128)
    inputs = [x, *module.parameters()]
    mine, other = twice(monkeypatch, lambda: run_cell(module, x, Visibility(), None), inputs)
    for a, b in zip(mine, other, strict=True):
        assert (a - b).norm() <= 1e-4 * b.norm()
    monkeypatch.setattr(runtime, "READY", True)
    for _ in range(3):
        y, state = run_cell(module, x, Visibility(), None)
        outputs = [y, *leaves(state)]
        again = [*(part.detach() for part in outputs), *gradients(outputs, inputs)]
        torch.testing.assert_close(again[: len(outputs) + 1], mine[: len(outputs) + 1], rtol=0, atol=0)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs CUDA")
@pytest.mark.parametrize("cell", TAPES)
def test_recorded_in_a_cuda_graph(calls, cell):
    stack, x = stacked(cell, dim=32), drawn(8, 20, 5)

    def run():
        y, _ = stack(x, Visibility())
        return [y, *torch.autograd.grad(y.square().sum(), [x, *stack.parameters()])]

    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # where it is recorded, as autograd remembers where a leaf was first met
        wanted = run()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        found = run()
    graph.replay()
    torch.testing.assert_close(found, wanted)
