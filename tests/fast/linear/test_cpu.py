"""Products with weights: oneDNN's beside torch's, values and gradients."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from seqloom.fast.linear import cpu as parts
from seqloom.fast.linear.cpu import Bare, Linear, Packed, Steps, product, ready
from tests.laws import drawn

torch_only = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


def single(*shape, seed=0):
    return drawn(*shape, seed=seed).float()


def near(one, other):
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@torch_only
@pytest.mark.parametrize(("inner", "outer"), [(6, 10), (10, 6)])
@pytest.mark.parametrize("bias", [True, False])
def test_product_is_linear(inner, outer, bias, monkeypatch):
    linear, x, slope = Linear(inner, outer, bias), single(4, 4, inner).requires_grad_(), single(4, 4, outer, seed=1)
    found = []
    for plain in (False, True):
        monkeypatch.setattr(parts, "_HAVE", not plain)
        y = linear(x)
        assert ("_Product" in type(y.grad_fn).__name__) != plain
        y.backward(slope)
        found.append([y.detach(), x.grad, *(part.grad for part in linear.parameters())])
        x.grad = None
        linear.zero_grad()
    for one, other in zip(*found, strict=True):
        near(one, other)


def test_other_kinds_go_to_torch():
    weight = single(5, 4)
    columns = single(5, 8).requires_grad_()[:, 4:]  # oneDNN would take a hundred times as long
    assert "_Product" not in type(product(single(3, 4), columns).grad_fn).__name__
    for x in (drawn(3, 4), single(1, 4)):  # double precision; one row
        wide = weight.to(x.dtype).requires_grad_()
        assert "_Product" not in type(product(x, wide).grad_fn).__name__
    with torch.autocast("cpu", torch.bfloat16):
        assert product(single(3, 4), weight).dtype == torch.bfloat16


@torch_only
def test_steps_make_one_gradient_of_all(monkeypatch):
    weight, inputs = single(6, 4).requires_grad_(), [single(3, 4, seed=n).requires_grad_() for n in range(3)]
    found = []
    for have in (True, False):
        monkeypatch.setattr(parts, "_HAVE", have)
        step, x = Steps(weight * 2), inputs[0]
        assert step.delayed == have
        for more in inputs:
            x = step(x)[:, :4].tanh() + more
        x.square().sum().backward()
        found.append([x.detach(), weight.grad, *(one.grad for one in inputs)])
        for one in (weight, *inputs):
            one.grad = None
    for one, other in zip(*found, strict=True):
        near(one, other)


@torch_only
@pytest.mark.parametrize("rows", [2, 7])
@torch.no_grad()
def test_packed_weights_are_the_weights(rows):
    linear, x, other = nn.Linear(8, 6), single(rows, 8), single(rows, 6, seed=1)
    packed, bare = ready(linear, rows), Bare(linear.weight, linear.bias)
    assert isinstance(packed, Packed)
    near(packed(x), F.linear(x, linear.weight, linear.bias))
    near(bare(x), F.linear(x, linear.weight, linear.bias))
    near(packed.relu(x), bare.relu(x))
    kept = other.clone()
    near(packed.onto(x, other), bare.onto(x, other))
    assert torch.equal(other, kept)


def by_load(linear):
    linear.load_state_dict({"weight": single(6, 8, seed=3), "bias": single(6, seed=4)})


def by_another(linear):
    linear.weight = nn.Parameter(single(6, 8, seed=3))


def by_optimiser(**kind):
    def change(linear):
        optimiser = torch.optim.AdamW(linear.parameters(), 0.1, **kind)
        for part in linear.parameters():
            part.grad = single(*part.shape, seed=3)
        optimiser.step()

    return change


CHANGES = {
    "in place": lambda linear: linear.weight.mul_(2.0),
    "by its data": lambda linear: linear.weight.data.mul_(2.0),
    "one value": lambda linear: linear.weight[5, 7].add_(0.5),
    "loaded": by_load,
    "another": by_another,
    "fused": by_optimiser(fused=True),  # which bumps no version
    "foreach": by_optimiser(foreach=True),
    "swapped": lambda linear: setattr(linear.weight, "data", single(6, 8, seed=3)),
}


@torch_only
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("inference", [True, False])
def test_weights_that_change_are_packed_anew(change, inference):
    linear, x = nn.Linear(8, 6), single(3, 8)
    with torch.inference_mode(inference), torch.no_grad():
        first = ready(linear, 3)
        assert ready(linear, 7).weight is first.weight
    with torch.no_grad():
        CHANGES[change](linear)
    with torch.inference_mode(inference), torch.no_grad():
        assert ready(linear, 3).weight is not first.weight
        near(ready(linear, 3)(x), F.linear(x, linear.weight, linear.bias))


@torch_only
@torch.no_grad()
def test_who_is_not_packed():
    linear = nn.Linear(8, 6)
    assert isinstance(ready(linear, 1), Bare)
    assert isinstance(ready(linear.double(), 3), Bare)
