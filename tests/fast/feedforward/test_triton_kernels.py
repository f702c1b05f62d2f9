"""Activation and dropout equal their reference, values and gradients. On a CPU in Triton's interpreter."""

import pytest
import torch

from seqloom.fast.feedforward import gpu as fused_feed_forward
from seqloom.fast.feedforward import triton_kernels as kernel
from seqloom.fast.triton_common import column_sums, runtime
from seqloom.parts.transformer.feed_forward import FeedForward
from tests.fast.triton_common import DEVICE, HALF, drawn, gradients, near, needed

pytestmark = needed
P = 0.25


@pytest.fixture(autouse=True)
def ready(monkeypatch):
    """Small limits, so that programs have several tiles and columns several programs."""
    monkeypatch.setattr(runtime, "READY", True)
    monkeypatch.setattr(column_sums, "PROGRAMS", 2)
    monkeypatch.setattr(column_sums, "TILES", 2)


SHAPES = [(3, 5, 32), (2, 7, 48), (1, 1, 513), (83, 6), (9, 768)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("p", [0.0, P])
@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_values_and_gradients(shape, gelu, p, dtype):
    x, bias = drawn(*shape, dtype=dtype), drawn(shape[-1], seed=2)
    moved = (3 * x + bias).to(dtype)
    torch.manual_seed(5)
    y = fused_feed_forward.activation_dropout((3 * x + bias.detach()).to(dtype), bias, p, gelu)
    assert y.dtype == dtype
    keep = ((y != 0) | (fused_feed_forward.reference(moved, None, p, gelu) == 0)).double() if p else None
    wanted = fused_feed_forward.reference(moved.double(), keep, p, gelu)
    near([y], [wanted], dtype)
    near(gradients([y], [x, bias]), gradients([wanted], [x, bias]), dtype)


def test_the_bias_is_not_added_and_is_optional():
    x, bias = drawn(9, 32), drawn(32, seed=2)
    y = fused_feed_forward.activation_dropout(x, None, 0.0, True)
    assert torch.equal(y, fused_feed_forward.activation_dropout(x, bias, 0.0, True))
    near(gradients([y], [x]), gradients([torch.nn.functional.gelu(x)], [x]), torch.float32)


@pytest.mark.parametrize("x", [-40.0, -8.0, -3.0, -1e-3, 0.0, 1e-3, 3.0, 8.0, 40.0])
def test_far_out_and_near_zero(x):
    x = torch.tensor([[x]], device=DEVICE, requires_grad=True)
    found, wanted = fused_feed_forward.activation_dropout(x, None, 0.0, True), torch.nn.functional.gelu(x)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(*(torch.autograd.grad(y, x)[0] for y in (found, wanted)), rtol=1e-5, atol=1e-6)


def test_nan_stays_nan():
    x = torch.tensor([[float("nan"), 1.0]], device=DEVICE, requires_grad=True)
    for gelu in (False, True):
        assert fused_feed_forward.activation_dropout(x, None, 0.0, gelu).isnan().tolist() == [[True, False]]


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_rate_and_independence(p, gelu):
    ones = torch.ones(803, 40, device=DEVICE)
    torch.manual_seed(4)
    keep, again = (fused_feed_forward.activation_dropout(ones, None, p, gelu) > 0 for _ in range(2))
    assert abs(keep.float().mean() - (1 - p)) < 4 * (p * (1 - p) / keep.numel()) ** 0.5
    for other in (keep.roll(1, 0), keep.roll(1, 1), keep.roll(2, 0), keep.roll(4, 0), keep.roll(8, 0)):
        both = ((keep.float() - 1 + p) * (other.float() - 1 + p)).mean()
        assert abs(both) < 5 * p * (1 - p) / keep.numel() ** 0.5
    assert not torch.equal(keep, again)
    torch.manual_seed(4)
    assert torch.equal(keep, fused_feed_forward.activation_dropout(ones, None, p, gelu) > 0)


def test_no_rows():
    x, bias = drawn(0, 40), drawn(40)
    y = fused_feed_forward.activation_dropout(x, bias, P, True)
    grad_x, grad_bias = torch.autograd.grad(y.sum(), [x, bias])
    assert y.shape == grad_x.shape == (0, 40)
    assert not grad_bias.any()


def test_opcheck():
    x, bias, seed = drawn(3, 40), drawn(40, seed=2), torch.tensor([7], device=DEVICE)
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_static")
    for given in ((x, bias, seed, P, True), (x, None, None, 0.0, True), (x, bias, seed, P, False)):
        torch.library.opcheck(torch.ops.seqloom.activated, given, test_utils=tests)


def feed_forward(activation, bias=True):
    torch.manual_seed(3)
    feed = FeedForward(32, 64, activation).to(DEVICE)
    torch.nn.init.normal_(feed.up.bias)
    feed.up.bias.requires_grad_(bias)
    return feed


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_network_is_the_same_without_it(monkeypatch, activation, bias):
    feed, x, calls, found = feed_forward(activation, bias), drawn(3, 6, 32), [], []
    monkeypatch.setattr(kernel, "forward", lambda *given, plain=kernel.forward: calls.append(1) or plain(*given))
    leaves = [x, *(parameter for parameter in feed.parameters() if parameter.requires_grad)]
    for usable in (True, False):
        monkeypatch.setattr(runtime, "READY", usable)
        y = feed(x)
        found.append([y.detach(), *gradients([y], leaves)])
    assert len(calls) == 1
    near(*found, torch.float32)


def test_unsupported_networks(monkeypatch):
    """Double precision, no gradients, another activation."""
    monkeypatch.setattr(kernel, "forward", None)
    x = drawn(3, 32)
    feed_forward("gelu").double()(x.double())
    feed_forward("silu")(x)
    with torch.no_grad():
        feed_forward("relu")(x)


def test_a_compiled_network_holds_it_as_one_node():
    torch._dynamo.reset()
    feed, x, graphs = feed_forward("gelu"), drawn(3, 6, 32), []

    def backend(graph, _):
        graphs.append([str(node.target) for node in graph.graph.nodes])
        return graph

    seen = torch.compile(feed, backend=backend, fullgraph=True)(x)
    assert len(graphs) == 1
    assert sum("seqloom.activated" in name for name in graphs[0]) == 1
    found, wanted = (gradients([y], [x, *feed.parameters()]) for y in (seen, feed(x)))
    near(found, wanted, torch.float32)
