"""oneDNN's linear layers beside torch's, values and gradients."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from seqloom.fast.linear import cpu as module
from seqloom.fast.linear.cpu import PackedLinear, PlainLinear, StepwiseLinear, prepare_linear
from seqloom.parts.layers.linear import Linear, linear
from tests.laws import drawn

torch_only = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


def single(*shape, seed=0):
    return drawn(*shape, seed=seed).float()


def near(one, other):
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@torch_only
@pytest.mark.parametrize(("inner", "outer"), [(6, 10), (10, 6)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_is_torchs(inner, outer, bias, monkeypatch):
    layer, x, grad_output = (
        Linear(inner, outer, bias),
        single(4, 4, inner).requires_grad_(),
        single(4, 4, outer, seed=1),
    )
    found = []
    for plain in (False, True):
        monkeypatch.setattr(module, "_ONEDNN", not plain)
        y = layer(x)
        assert ("_OnednnLinear" in type(y.grad_fn).__name__) != plain
        y.backward(grad_output)
        found.append([y.detach(), x.grad, *(part.grad for part in layer.parameters())])
        x.grad = None
        layer.zero_grad()
    for one, other in zip(*found, strict=True):
        near(one, other)


def test_other_kinds_go_to_torch():
    weight = single(5, 4)
    columns = single(5, 8).requires_grad_()[:, 4:]  # oneDNN would take a hundred times as long
    assert "_OnednnLinear" not in type(linear(single(3, 4), columns).grad_fn).__name__
    for x in (drawn(3, 4), single(1, 4)):  # double precision; one row
        wide = weight.to(x.dtype).requires_grad_()
        assert "_OnednnLinear" not in type(linear(x, wide).grad_fn).__name__
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(single(3, 4), weight).dtype == torch.bfloat16


@torch_only
def test_steps_share_one_gradient_matmul(monkeypatch):
    weight, inputs = single(6, 4).requires_grad_(), [single(3, 4, seed=n).requires_grad_() for n in range(3)]
    found = []
    for have in (True, False):
        monkeypatch.setattr(module, "_ONEDNN", have)
        step, x = StepwiseLinear(weight * 2), inputs[0]
        assert step.deferred == have
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
    packed, plain = prepare_linear(linear, rows), PlainLinear(linear.weight, linear.bias)
    assert isinstance(packed, PackedLinear)
    near(packed(x), F.linear(x, linear.weight, linear.bias))
    near(plain(x), F.linear(x, linear.weight, linear.bias))
    near(packed.relu(x), plain.relu(x))
    kept = other.clone()
    near(packed.with_residual(x, other), plain.with_residual(x, other))
    assert torch.equal(other, kept)


def by_load(linear):
    linear.load_state_dict({"weight": single(6, 8, seed=3), "bias": single(6, seed=4)})


def by_another(linear):
    linear.weight = nn.Parameter(single(6, 8, seed=3))


def by_optimizer(**kind):
    def change(linear):
        optimizer = torch.optim.AdamW(linear.parameters(), 0.1, **kind)
        for part in linear.parameters():
            part.grad = single(*part.shape, seed=3)
        optimizer.step()

    return change


CHANGES = {
    "in place": lambda linear: linear.weight.mul_(2.0),
    "by its data": lambda linear: linear.weight.data.mul_(2.0),
    "one value": lambda linear: linear.weight[5, 7].add_(0.5),
    "loaded": by_load,
    "another": by_another,
    "fused": by_optimizer(fused=True),  # which bumps no version
    "foreach": by_optimizer(foreach=True),
    "swapped": lambda linear: setattr(linear.weight, "data", single(6, 8, seed=3)),
}


@torch_only
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("inference", [True, False])
def test_changed_weights_are_packed_again(change, inference):
    linear, x = nn.Linear(8, 6), single(3, 8)
    with torch.inference_mode(inference), torch.no_grad():
        first = prepare_linear(linear, 3)
        assert prepare_linear(linear, 7).weight is first.weight
    with torch.no_grad():
        CHANGES[change](linear)
    with torch.inference_mode(inference), torch.no_grad():
        assert prepare_linear(linear, 3).weight is not first.weight
        near(prepare_linear(linear, 3)(x), F.linear(x, linear.weight, linear.bias))


@torch_only
@torch.no_grad()
def test_what_is_not_packed():
    linear = nn.Linear(8, 6)
    assert isinstance(prepare_linear(linear, 1), PlainLinear)
    assert isinstance(prepare_linear(linear.double(), 3), PlainLinear)
