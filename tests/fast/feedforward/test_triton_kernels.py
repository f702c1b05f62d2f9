"""What stands between two matrices: values and gradients as by torch's own operations. On a CPU by Triton's
interpreter."""

import pytest
import torch

from seqloom.fast.feedforward import gpu as activated
from seqloom.fast.feedforward import triton_kernels as kernel
from seqloom.fast.triton_common import column_sums, runtime
from seqloom.parts.transformer.feed_forward import FeedForward
from tests.fast.triton_common import DEVICE, HALF, drawn, near, needed, slopes

pytestmark = needed
P = 0.25


@pytest.fixture(autouse=True)
def ready(monkeypatch):
    """Few rows are many here, so that programs have several tiles, and several programs a column."""
    monkeypatch.setattr(runtime, "READY", True)
    monkeypatch.setattr(column_sums, "PROGRAMS", 2)
    monkeypatch.setattr(column_sums, "TILES", 2)


SHAPES = [(3, 5, 32), (2, 7, 48), (1, 1, 513), (83, 6), (9, 768)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("p", [0.0, P])
@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_values_and_slopes(shape, gelu, p, dtype):
    x, bias = drawn(*shape, dtype=dtype), drawn(shape[-1], seed=2)
    moved = (3 * x + bias).to(dtype)
    torch.manual_seed(5)
    y = activated.activated((3 * x + bias.detach()).to(dtype), bias, p, gelu)
    assert y.dtype == dtype
    keep = ((y != 0) | (activated.plainly(moved, None, p, gelu) == 0)).double() if p else None
    wanted = activated.plainly(moved.double(), keep, p, gelu)
    near([y], [wanted], dtype)
    near(slopes([y], [x, bias]), slopes([wanted], [x, bias]), dtype)


def test_a_bias_is_not_moved_and_need_not_be_there():
    x, bias = drawn(9, 32), drawn(32, seed=2)
    y = activated.activated(x, None, 0.0, True)
    assert torch.equal(y, activated.activated(x, bias, 0.0, True))
    near(slopes([y], [x]), slopes([torch.nn.functional.gelu(x)], [x]), torch.float32)


@pytest.mark.parametrize("x", [-40.0, -8.0, -3.0, -1e-3, 0.0, 1e-3, 3.0, 8.0, 40.0])
def test_far_out_and_near_zero(x):
    x = torch.tensor([[x]], device=DEVICE, requires_grad=True)
    found, wanted = activated.activated(x, None, 0.0, True), torch.nn.functional.gelu(x)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(*(torch.autograd.grad(y, x)[0] for y in (found, wanted)), rtol=1e-5, atol=1e-6)


def test_what_is_no_number_stays_none():
    x = torch.tensor([[float("nan"), 1.0]], device=DEVICE, requires_grad=True)
    for gelu in (False, True):
        assert activated.activated(x, None, 0.0, gelu).isnan().tolist() == [[True, False]]


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_as_many_are_dropped_as_should_be_and_none_like_its_neighbours(p, gelu):
    ones = torch.ones(803, 40, device=DEVICE)
    torch.manual_seed(4)
    keep, again = (activated.activated(ones, None, p, gelu) > 0 for _ in range(2))
    assert abs(keep.float().mean() - (1 - p)) < 4 * (p * (1 - p) / keep.numel()) ** 0.5
    for other in (keep.roll(1, 0), keep.roll(1, 1), keep.roll(2, 0), keep.roll(4, 0), keep.roll(8, 0)):
        both = ((keep.float() - 1 + p) * (other.float() - 1 + p)).mean()
        assert abs(both) < 5 * p * (1 - p) / keep.numel() ** 0.5
    assert not torch.equal(keep, again)
    torch.manual_seed(4)
    assert torch.equal(keep, activated.activated(ones, None, p, gelu) > 0)


def test_nothing_in_nothing_out():
    x, bias = drawn(0, 40), drawn(40)
    y = activated.activated(x, bias, P, True)
    by_x, by_bias = torch.autograd.grad(y.sum(), [x, bias])
    assert y.shape == by_x.shape == (0, 40)
    assert not by_bias.any()


def test_torch_finds_nothing_wrong_with_the_operator():
    x, bias, seed = drawn(3, 40), drawn(40, seed=2), torch.tensor([7], device=DEVICE)
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_static")
    for given in ((x, bias, seed, P, True), (x, None, None, 0.0, True), (x, bias, seed, P, False)):
        torch.library.opcheck(torch.ops.seqloom.activated, given, test_utils=tests)


def feeding(activation, bias=True):
    torch.manual_seed(3)
    feed = FeedForward(32, 64, activation).to(DEVICE)
    torch.nn.init.normal_(feed.up.bias)
    feed.up.bias.requires_grad_(bias)
    return feed


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_network_says_what_it_says_without(monkeypatch, activation, bias):
    feed, x, calls, found = feeding(activation, bias), drawn(3, 6, 32), [], []
    monkeypatch.setattr(kernel, "forward", lambda *given, plain=kernel.forward: calls.append(1) or plain(*given))
    trained = [x, *(parameter for parameter in feed.parameters() if parameter.requires_grad)]
    for usable in (True, False):
        monkeypatch.setattr(runtime, "READY", usable)
        y = feed(x)
        found.append([y.detach(), *slopes([y], trained)])
    assert len(calls) == 1
    near(*found, torch.float32)


def test_networks_that_it_does_not_suit(monkeypatch):
    """Double precision, no gradients, another activation."""
    monkeypatch.setattr(kernel, "forward", None)
    x = drawn(3, 32)
    feeding("gelu").double()(x.double())
    feeding("silu")(x)
    with torch.no_grad():
        feeding("relu")(x)


def test_a_compiled_network_holds_it_as_a_step():
    torch._dynamo.reset()
    feed, x, graphs = feeding("gelu"), drawn(3, 6, 32), []

    def backend(graph, _):
        graphs.append([str(node.target) for node in graph.graph.nodes])
        return graph

    seen = torch.compile(feed, backend=backend, fullgraph=True)(x)
    assert len(graphs) == 1
    assert sum("seqloom.activated" in name for name in graphs[0]) == 1
    found, wanted = (slopes([y], [x, *feed.parameters()]) for y in (seen, feed(x)))
    near(found, wanted, torch.float32)
