"""The residual sum, its norm and dropout equal their reference. On a CPU in Triton's interpreter."""

import pytest
import torch

from seqloom.fast.residual_norm import gpu as residual_norm
from seqloom.fast.residual_norm import triton_kernels as kernel
from seqloom.fast.residual_norm.gpu_blocks import add_then_norm
from seqloom.fast.triton_common import runtime
from seqloom.models.decoders.stacks import TransformerStack
from seqloom.parts.layers.norm import LayerNorm
from seqloom.parts.transformer.block import Block
from seqloom.parts.transformer.residual import Residual
from seqloom.parts.visibility import Visibility
from tests.fast.triton_common import DEVICE, HALF, drawn, gradients, near, needed

pytestmark = needed
P, FEW = 0.25, 40


@pytest.fixture(autouse=True)
def ready(monkeypatch):
    monkeypatch.setattr(runtime, "READY", True)
    monkeypatch.setattr(kernel, "FEW_VECTORS", FEW)
    monkeypatch.setattr(kernel, "PROGRAMS", 2)


def affine(dim, dtype=torch.float32):
    return drawn(dim, dtype=dtype, seed=5), drawn(dim, dtype=dtype, seed=6), 1e-5


SHAPES = [(3, 5, 32), (2, 7, 48), (1, 1, 513), (43, 6), (70, 5)]  # the last: several groups of vectors a program


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("half", [torch.float32, HALF])
@pytest.mark.parametrize("p", [0.0, P])
def test_the_sum_and_its_norm(shape, half, p):
    x, y, (weight, bias, eps) = drawn(*shape), drawn(*shape, dtype=half, seed=2), affine(shape[-1])
    torch.manual_seed(3)
    found = residual_norm.fused_residual_norm(x, y, p, (weight, bias, eps))
    assert [part.dtype for part in found] == [torch.float32, torch.float32]
    keep = None if p == 0 else (found[0] != x).float()
    wanted = residual_norm.reference(x, y.float(), keep, p, (weight, bias, eps))
    near(found, wanted, torch.float32)
    inputs = [x, y, weight, bias]
    near(gradients(found, inputs), gradients(wanted, inputs), torch.float32 if half == torch.float32 else half)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, *([HALF] if DEVICE == "cuda" else [])])
def test_the_norm_alone(dtype):
    x, norm = drawn(3, 5, 40, dtype=dtype), LayerNorm(40).to(DEVICE, dtype)
    found = norm(x)
    wanted = torch.nn.functional.layer_norm(x.double(), (40,), norm.weight.double(), norm.bias.double(), norm.eps)
    assert found.dtype == dtype
    near([found], [wanted], dtype)
    inputs = [x, *norm.parameters()]
    near(gradients([found], inputs), gradients([wanted], inputs), dtype)


def test_the_sum_alone():
    x, y = drawn(5, 40), drawn(5, 40, seed=2)
    found, none = residual_norm.fused_residual_norm(x, y, P, None)
    assert none.numel() == 0
    keep = (found != x).float()
    wanted = x + y * keep / (1 - P)
    near([found], [wanted], torch.float32)
    near(gradients([found], [x, y]), gradients([wanted], [x, y]), torch.float32)


@pytest.mark.parametrize("unused", [0, 1])
def test_outputs_without_gradients(unused):
    x, y, norm = drawn(4, 40), drawn(4, 40, seed=2), affine(40)
    found, wanted = residual_norm.fused_residual_norm(x, y, 0.0, norm), residual_norm.reference(x, y, None, 0.0, norm)
    near(gradients([found[1 - unused]], [x, y]), gradients([wanted[1 - unused]], [x, y]), torch.float32)


@pytest.mark.parametrize("rows", [FEW - 1, FEW * 20 + 3])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_rate_and_independence(rows, p):
    zeros, ones = torch.zeros(rows, 40, device=DEVICE), torch.ones(rows, 40, device=DEVICE)
    torch.manual_seed(4)
    keep = residual_norm.fused_residual_norm(zeros, ones, p, None)[0] > 0
    assert abs(keep.float().mean() - (1 - p)) < 4 * (p * (1 - p) / keep.numel()) ** 0.5
    for other in (keep.roll(1, 0), keep.roll(1, 1), keep.roll(2, 0), keep.roll(8, 0)):
        both = ((keep.float() - 1 + p) * (other.float() - 1 + p)).mean()
        assert abs(both) < 5 * p * (1 - p) / keep.numel() ** 0.5
    again = residual_norm.fused_residual_norm(zeros, ones, p, None)[0] > 0
    assert not torch.equal(keep, again)
    torch.manual_seed(4)
    first = residual_norm.fused_residual_norm(zeros, ones, p, None)[0] > 0
    assert torch.equal(keep, first)


def test_no_rows():
    x = drawn(0, 40)
    total, norm = residual_norm.fused_residual_norm(x, drawn(0, 40), P, affine(40))
    assert total.shape == norm.shape == (0, 40)
    assert torch.autograd.grad(norm.sum(), x)[0].shape == (0, 40)


def test_opcheck():
    x, y, (weight, bias, eps), seed = drawn(3, 40), drawn(3, 40), affine(40), torch.tensor([7], device=DEVICE)
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_static")
    for given in ((x, y, weight, bias, seed, P, eps), (x, None, weight, bias, None, 0.0, eps)):
        torch.library.opcheck(torch.ops.seqloom.added, (*given, torch.float32), test_utils=tests)


def blocks(norm):
    torch.manual_seed(3)
    return Block(32, 2, 64, memory_dim=24, norm=norm).to(DEVICE)


@pytest.mark.parametrize("norm", ["before", "after"])
def test_a_block_is_the_same_without_it(monkeypatch, norm):
    block, x, states = blocks(norm), drawn(3, 6, 32), drawn(3, 7, 24, seed=2)
    calls, found = [], []
    monkeypatch.setattr(kernel, "forward", lambda *given, plain=kernel.forward: calls.append(1) or plain(*given))
    for usable in (True, False):
        monkeypatch.setattr(runtime, "READY", usable)
        y, _ = block(x, Visibility(causal=True), memory=(block.cross.project_memory(states), Visibility()))
        found.append([y.detach(), *gradients([y], [x, states, *block.parameters()])])
    assert len(calls) == (4 if norm == "before" else 3)
    near(*([part for part in some if part is not None] for some in found), torch.float32)


WAYS = [({}, 7), ({"residual": "dense"}, 7), ({"norm_kind": "rms"}, 6), ({"norm": "after"}, 6)]


@pytest.mark.parametrize(("options", "count"), WAYS, ids=str)
def test_a_stack_is_the_same_without_it(monkeypatch, options, count):
    """Fused across blocks, and with the final norm."""
    torch.manual_seed(3)
    stack = TransformerStack(32, 32, layers=3, heads=2, hidden=64, dropout=0.0, **options).to(DEVICE)
    x, calls, found = drawn(3, 6, 32), [], []
    monkeypatch.setattr(kernel, "forward", lambda *given, plain=kernel.forward: calls.append(1) or plain(*given))
    for usable in (True, False):
        monkeypatch.setattr(runtime, "READY", usable)
        y, _ = stack(x)
        found.append([y.detach(), *gradients([y], [x, *stack.parameters()])])
    assert len(calls) == count
    near(*([part for part in some if part is not None] for some in found), torch.float32)


def test_blocks_with_hooks_are_called():
    stack = TransformerStack(32, 32, layers=2, heads=2, hidden=64).to(DEVICE)
    called = []
    for block in stack.blocks:
        block.register_forward_pre_hook(lambda *_: called.append(1))
    stack(drawn(3, 6, 32))
    assert len(called) == 2


def test_unsupported_parts(monkeypatch):
    """Double precision, another norm, no residual connection, no gradients."""
    monkeypatch.setattr(kernel, "forward", None)
    x, y = drawn(3, 32), drawn(3, 32, seed=2)
    around = Residual(32, "before", 0.0).to(DEVICE)
    add_then_norm(around.double(), x.double(), y.double(), around.norm)
    around.float()
    with torch.no_grad():
        add_then_norm(around, x, y, around.norm)
    for other in (Residual(32, "after", 0.0, "rms"), Residual(32, "before", 0.0, residual="none")):
        add_then_norm(other.to(DEVICE), x, y, Residual(32, "before", 0.0, "rms").norm.to(DEVICE))


def test_compiled_blocks_hold_them_as_nodes():
    torch._dynamo.reset()
    block, x, graphs = blocks("before"), drawn(3, 6, 32), []
    memory = (block.cross.project_memory(drawn(3, 7, 24, seed=2)), Visibility())

    def backend(graph, _):
        graphs.append([str(node.target) for node in graph.graph.nodes])
        return graph

    seen = torch.compile(block, backend=backend, fullgraph=True)(x, Visibility(causal=True), memory=memory)[0]
    assert len(graphs) == 1
    assert sum("seqloom.added" in name for name in graphs[0]) == 4
    torch.testing.assert_close(seen, block(x, Visibility(causal=True), memory=memory)[0])
