"""The loss in pieces is the loss over all logits: values, gradients, in any precision."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from seqloom.fast.loss import chunked as module
from seqloom.parts.layers.cross_entropy import cross_entropy_sum

ROWS, DIM, SIZE = 37, 12, 50


def made(dtype=torch.float32, bias=True):
    torch.manual_seed(3)
    output = nn.Linear(DIM, SIZE, bias=bias).to(dtype)
    states = (3 * torch.randn(ROWS, DIM, dtype=dtype)).requires_grad_()
    labels = torch.randint(1, SIZE, (ROWS,))
    labels[[4, 36]] = 0
    return states, output, labels


def slopes(loss, states, output):
    return torch.autograd.grad(2.5 * loss, [states, *output.parameters()])


def plain(states, output, labels, smoothing, ignore):
    logits = output(states)
    return F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing, ignore_index=ignore)


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(module, "MAX_LOGITS", 10 * SIZE)  # four pieces, the last of them shorter


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("ignore", [-100, 0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_pieces_are_the_whole(few, bias, ignore, smoothing, dtype, bound):
    states, output, labels = made(dtype, bias)
    found, wanted = (f(states, output, labels, smoothing, ignore) for f in (cross_entropy_sum, plain))
    assert type(found.grad_fn).__name__ == "_ChunkedCrossEntropyBackward"
    assert found.dtype == dtype
    torch.testing.assert_close(found, wanted, rtol=bound, atol=0)
    for mine, other in zip(slopes(found, states, output), slopes(wanted, states, output), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=20 * bound)


def test_gradients_by_differences(few):
    states, output, labels = made(torch.float64)
    assert torch.autograd.gradcheck(lambda x: cross_entropy_sum(x, output, labels, 0.1, 0), (states,))


def test_a_tied_matrix_gets_both_gradients(few):
    table, labels = nn.Embedding(SIZE, DIM), made()[2]
    output = nn.Linear(DIM, SIZE)
    output.weight = table.weight
    found, wanted = (
        torch.autograd.grad(f(table(labels), output, labels, 0.1, -100), [table.weight, output.bias])
        for f in (cross_entropy_sum, plain)
    )
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_half_precision_is_as_near_as_the_plain_form(few, smoothing):
    """Products in bfloat16, of a width that is no round number; the loss is summed in float32."""
    states, output, labels = made()
    exact = plain(states, output, labels, smoothing, 0)
    with torch.autocast("cpu", torch.bfloat16):
        found = cross_entropy_sum(states, output, labels, smoothing, 0)
        rounded = F.cross_entropy(output(states).float(), labels, None, None, 0, None, "sum", smoothing)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, rounded, rtol=1e-5, atol=0)
    for mine, other, best in zip(*(slopes(f, states, output) for f in (found, rounded, exact)), strict=True):
        assert mine.dtype == best.dtype
        assert (mine - best).norm() <= 1.1 * (other - best).norm() + 1e-3 * best.norm()


def test_frozen_parts_get_nothing_and_nothing_is_found_without_gradients(few):
    states, output, labels = made()
    output.weight.requires_grad_(False)
    loss = cross_entropy_sum(states, output, labels)
    loss.backward()
    assert output.weight.grad is None
    assert output.bias.grad is not None
    with torch.no_grad():
        torch.testing.assert_close(cross_entropy_sum(states, output, labels), loss.detach())


def test_no_labels_and_few_logits_are_not_chunked():
    states, output, labels = made()
    assert cross_entropy_sum(states[:0], output, labels[:0]) == 0
    assert type(cross_entropy_sum(states, output, labels).grad_fn).__name__ != "_ChunkedCrossEntropyBackward"


@pytest.mark.parametrize(
    ("half", "wide", "pieces"), [(True, SIZE, True), (True, SIZE + 1, False), (False, SIZE, False)]
)
def test_our_kernel_takes_wide_outputs_in_half_precision(monkeypatch, half, wide, pieces):
    """However few the logits are; here with plain torch in the place of the kernel."""
    monkeypatch.setattr(module, "LARGE_VOCABULARY", wide)
    monkeypatch.setattr(module.runtime, "usable", lambda x: True)
    monkeypatch.setattr(module, "_chunk_loss", lambda *given: (*module.loss_and_gradient(*given), False))
    states, output, labels = made()
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        found = cross_entropy_sum(states, output, labels, 0.1, 0)
        assert cross_entropy_sum(states[:0], output, labels[:0]) == 0
    assert (type(found.grad_fn).__name__ == "_ChunkedCrossEntropyBackward") == pieces
    torch.testing.assert_close(found, plain(states, output, labels, 0.1, 0), rtol=5e-3, atol=0)


def test_it_compiles(few):
    torch._dynamo.reset()
    states, output, labels = made()
    compiled = torch.compile(cross_entropy_sum, backend="aot_eager", fullgraph=True)
    found, wanted = (f(states, output, labels, 0.1, 0) for f in (compiled, cross_entropy_sum))
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(slopes(found, states, output), slopes(wanted, states, output))
