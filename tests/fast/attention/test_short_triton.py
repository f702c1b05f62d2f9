"""The kernel for short rows equals its reference, values and gradients. On a CPU in Triton's interpreter."""

import pytest
import torch
from torch import nn

from seqloom.fast.attention import short_gpu
from seqloom.fast.triton_common import runtime
from seqloom.parts.attention.kv_cache import Cache
from seqloom.parts.attention.multi_head import MultiHeadAttention, split_heads
from seqloom.parts.positions.absolute import Sinusoidal
from seqloom.parts.positions.rotary import Rotary
from seqloom.parts.probe import watch
from seqloom.parts.transformer.block import Block
from seqloom.parts.visibility import Visibility
from tests.fast.triton_common import DEVICE, HALF, needed

pytestmark = needed
B, HEADS = 3, 2
LENGTHS = torch.tensor([7, 0, 4], device=DEVICE)
SOME = torch.tensor([7, 1, 4], device=DEVICE)  # torch's kernels differ on a row without keys


def drawn(*shape, dtype=torch.float32, seed=1):
    torch.manual_seed(seed)
    return torch.randn(*shape).to(DEVICE, dtype).requires_grad_()


def found_by(form, inputs, visible, dtype=None, rotary=False):
    """What `form` gives and its gradients, on the inputs as they are or in another precision."""
    inputs = [part if dtype is None else part.detach().to(dtype).requires_grad_() for part in inputs]
    x, kv = (*inputs, None)[:2]
    dim = x.size(-1) // HEADS // (3 if kv is None else 1)
    rotation = (
        Rotary(32, dim).prepare(torch.zeros(1, x.size(1), 1, device=DEVICE)).angles(0, x.size(1)) if rotary else None
    )
    mixed = form(x, kv, visible, HEADS, dim**-0.5, None, rotation)
    grad = torch.linspace(-1, 1, mixed.numel(), device=DEVICE).view(mixed.shape).sin().to(mixed.dtype)
    return [mixed.detach(), *torch.autograd.grad(mixed, inputs, grad)]


SHAPES = [
    # t, s (0: self-attention), dim, causal, lengths
    (7, 0, 16, False, None),
    (7, 0, 16, True, LENGTHS),
    (18, 0, 32, True, None),
    (16, 0, 64, False, LENGTHS),
    (5, 7, 16, False, LENGTHS),
    (1, 33, 16, False, LENGTHS),
    (33, 3, 128, False, None),
    (1, 0, 16, True, None),
]


@pytest.mark.parametrize("rotary", [False, True], ids=["fixed", "rotary"])
@pytest.mark.parametrize(("t", "s", "dim", "causal", "lengths"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, *([HALF] if DEVICE == "cuda" else [])])
def test_it_equals_the_reference(t, s, dim, causal, lengths, dtype, rotary):
    """In half precision as near to float64 as the formula in that precision is; in float32 the same."""
    if s and rotary:
        pytest.skip("only self-attention rotation")
    wide = HEADS * dim
    inputs = [drawn(B, t, wide, dtype=dtype), drawn(B, s, 2 * wide, dtype=dtype, seed=2)]
    inputs = inputs if s else [drawn(B, t, 3 * wide, dtype=dtype)]
    visible = Visibility(causal=causal, lengths=lengths)
    found, rounded = (
        found_by(form, inputs, visible, rotary=rotary) for form in (short_gpu.attention, short_gpu.reference)
    )
    exact = found_by(short_gpu.reference, inputs, visible, torch.float64, rotary)
    for mine, other, best in zip(found, rounded, exact, strict=True):
        assert mine.dtype == dtype
        assert mine.is_contiguous()
        bound = 2e-6 * best.norm() if dtype == torch.float32 else 1.2 * (other - best).norm() + 1e-3 * best.norm()
        assert (mine - best).norm() <= bound


def test_a_row_without_keys_gives_zeros_and_gets_none():
    mixed, grad = found_by(short_gpu.attention, [drawn(B, 7, 96)], Visibility(lengths=LENGTHS))
    assert mixed[1].eq(0).all()
    assert grad[1].eq(0).all()
    assert mixed[0].ne(0).all()


def test_padding_changes_nothing():
    x = drawn(B, 7, 96).detach()
    wanted = short_gpu.attention(x, None, Visibility(lengths=LENGTHS), HEADS, 0.3)
    x[2, 4:, 32:] = float("inf")
    torch.testing.assert_close(
        short_gpu.attention(x, None, Visibility(lengths=LENGTHS), HEADS, 0.3), wanted, rtol=0, atol=0
    )


def test_strided_inputs():
    q, kv = drawn(6, B, 32).transpose(0, 1), drawn(B, 5, 128)[..., ::2]
    assert not q.is_contiguous()
    assert not kv.is_contiguous()
    got = [f(q, kv, Visibility(), HEADS, 0.3) for f in (short_gpu.attention, short_gpu.reference)]
    torch.testing.assert_close(*got)
    torch.testing.assert_close(*(torch.autograd.grad(mixed.square().sum(), [q, kv]) for mixed in got))


def test_no_rows():
    x = drawn(0, 7, 96)
    short_gpu.attention(x, None, Visibility(), HEADS, 0.3).sum().backward()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize("cross", [False, True])
def test_opcheck(cross):
    x, kv = (drawn(B, 4, 32), drawn(B, 7, 64)) if cross else (drawn(B, 7, 96), None)
    for bias in (None, *([] if cross else [drawn(96)])):
        rotation = [None] * 2 if cross else drawn(2, 7, 8, seed=3).detach().unbind()
        torch.library.opcheck(short_gpu._operator, (x, kv, LENGTHS, bias, *rotation, HEADS, not cross, 0.25))


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "lengths"])
def test_gradient_of_the_bias(lengths):
    x, bias, visible = drawn(B, 7, 96), drawn(96, seed=2), Visibility(causal=True, lengths=lengths)
    found = short_gpu.attention(x + bias.detach(), None, visible, HEADS, 0.3, bias)
    wanted = short_gpu.reference(x + bias, None, visible, HEADS, 0.3)
    torch.testing.assert_close(*(torch.autograd.grad(y.cos().sum(), [x, bias]) for y in (found, wanted)))


@pytest.fixture
def ready(monkeypatch):
    """Kernels on; gives how often the operator was called."""
    calls, inner = [], short_gpu.attention
    monkeypatch.setattr(runtime, "READY", True)
    monkeypatch.setattr(short_gpu, "attention", lambda *inputs: calls.append(1) or inner(*inputs))
    return calls


def twice(monkeypatch, run, *leaves):
    """The same with and without kernels: what `run` gives, and gradients by `leaves`."""
    both = []
    for on in (True, False):
        monkeypatch.setattr(runtime, "READY", on)
        y = run()
        both.append([y.detach(), *torch.autograd.grad(y.float().square().sum(), leaves)])
    return both


def near(mine, other):
    """Equal up to a few roundings."""
    for a, b in zip(mine, other, strict=True):
        assert (a.double() - b.double()).norm() <= 8 * torch.finfo(a.dtype).eps * b.double().norm()


@pytest.mark.parametrize("visible", [Visibility(causal=True), Visibility(lengths=SOME)], ids=["causal", "lengths"])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("rotary", [False, True], ids=["fixed", "rotary"])
def test_self_attention_uses_it(ready, monkeypatch, visible, cached, rotary):
    layer, x = MultiHeadAttention(32, HEADS).to(DEVICE, HALF), drawn(B, 7, 32, dtype=HALF)
    position, caches = Rotary(32, 16).prepare(x) if rotary else Sinusoidal(32, 16), []

    def run():
        y, cache = layer(x, visible, Cache() if cached else None, position)
        caches.append(cache)
        return y

    near(*twice(monkeypatch, run, x, *layer.parameters()))
    assert len(ready) == 1
    if cached:
        picked = [cache.pick(torch.arange(B, device=DEVICE)) for cache in caches]
        near(*([cache.keys, cache.values] for cache in picked))


@pytest.mark.parametrize("width", [1, 2])
def test_cross_attention_uses_it(ready, monkeypatch, width):
    layer = MultiHeadAttention(32, HEADS, key_dim=24).to(DEVICE, HALF)
    states, x = drawn(B, 7, 24, dtype=HALF), drawn(B * width, 5, 32, dtype=HALF, seed=2)
    leaves = (states, x, *layer.parameters())
    near(
        *twice(
            monkeypatch, lambda: layer.cross_attend(x, layer.project_memory(states), Visibility(lengths=SOME)), *leaves
        )
    )
    assert len(ready) == 1


def test_a_packed_memory_is_split_where_the_kernel_is_unsupported(ready):
    layer = MultiHeadAttention(32, HEADS, key_dim=24).to(DEVICE, HALF)
    x, states = drawn(B, 65, 32, dtype=HALF), drawn(B, 7, 24, dtype=HALF)
    memory = layer.project_memory(states)
    assert memory[1] is None
    unpacked = tuple(split_heads(part, 16) for part in memory[0].chunk(2, -1))
    wanted = layer.cross_attend(x, unpacked, Visibility())
    torch.testing.assert_close(layer.cross_attend(x, memory, Visibility()), wanted)
    with watch(layer) as seen:
        layer.cross_attend(x[:, :3], memory, Visibility())
    assert seen[""][0].shape == (B, HEADS, 3, 7)
    with torch.no_grad():
        assert layer.project_memory(states)[1] is not None  # decoding steps take keys and values by heads
    assert not ready


ELSEWHERE = {
    "float32": lambda layer, x: layer.float()(x.float(), Visibility()),
    "window": lambda layer, x: layer(x, Visibility(window=2)),
    "bias": lambda layer, x: layer(x, Visibility(bias=x.new_zeros(7, 7))),
    "long": lambda layer, x: layer(x.repeat(1, 10, 1), Visibility()),
    "rotary position not taken over": lambda layer, x: layer(x, Visibility(), None, Rotary(32, 16).to(x)),
    "score": lambda layer, x: MultiHeadAttention(32, HEADS, score="dot").to(x)(x, Visibility()),
    "width": lambda layer, x: MultiHeadAttention(32, 4).to(x)(x, Visibility()),
    "off": lambda layer, x: setattr(runtime, "READY", False) or layer(x, Visibility()),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_everything_else_is_unsupported(ready, name):
    layer, x = MultiHeadAttention(32, HEADS).to(DEVICE, HALF), drawn(B, 7, 32, dtype=HALF).detach()
    layer(x, Visibility())
    assert len(ready) == 1
    ELSEWHERE[name](layer, x)
    assert len(ready) == 1


def test_later_steps_with_a_cache_are_unsupported(ready):
    layer, cache = MultiHeadAttention(32, HEADS).to(DEVICE, HALF), Cache()
    x = drawn(B, 7, 32, dtype=HALF).detach()
    whole, _ = layer(x, Visibility(causal=True))
    pieces = [layer(x[:, some], Visibility(causal=True), cache)[0] for some in (slice(4), slice(4, 7))]
    near([torch.cat(pieces, 1)], [whole])
    assert len(ready) == 2  # the whole, and the first piece


def test_compiled_blocks_hold_it_as_one_node(monkeypatch):
    """No graph break, and the same values and gradients."""
    torch._dynamo.reset()
    monkeypatch.setattr(runtime, "READY", True)
    torch.manual_seed(3)
    block = Block(32, HEADS, 64, memory_dim=24).to(DEVICE, HALF)
    x, states = drawn(B, 6, 32, dtype=HALF), drawn(B, 7, 24, dtype=HALF, seed=2)
    memory, graphs = block.cross.project_memory(states), []

    def backend(graph, _):
        graphs.append([str(node.target) for node in graph.graph.nodes])
        return graph

    def run(block):
        return block(x, Visibility(causal=True), Cache(), Sinusoidal(32, 16), (memory, Visibility(lengths=LENGTHS)))[0]

    wanted = run(block)
    seen = run(torch.compile(block, backend=backend, fullgraph=True))
    assert len(graphs) == 1
    assert sum("seqloom.short" in name for name in graphs[0]) == 2
    torch.testing.assert_close(seen, wanted)
    torch._dynamo.reset()
    found = run(torch.compile(block, backend="aot_eager", fullgraph=True))
    leaves = [x, states, *(part for part in block.parameters() if part is not block.cross.project.weight)]
    grads = [
        torch.autograd.grad(y.float().square().sum(), leaves, retain_graph=True, allow_unused=True)
        for y in (found, wanted)
    ]
    near(*([part for part in some if part is not None] for some in grads))


@pytest.mark.skipif(DEVICE == "cpu", reason="needs CUDA")
def test_recorded_in_a_cuda_graph():
    layer, x = nn.Linear(64, 192, device=DEVICE, dtype=HALF), drawn(8, 32, 64, dtype=HALF)
    runtime.prepare(torch.device(DEVICE))

    def run():
        mixed = short_gpu.attention(layer(x), None, Visibility(causal=True), 4, 0.25)
        return [mixed, *torch.autograd.grad(mixed.float().square().sum(), [x, *layer.parameters()])]

    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # on the recording stream: autograd remembers the stream of a leaf's first use
        wanted = run()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        found = run()
    graph.replay()
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
