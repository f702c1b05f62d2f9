"""The kernels need Triton, and a GPU or Triton's interpreter: TRITON_INTERPRET=1."""

from importlib.util import find_spec

import pytest
import torch

from seqloom.fast.triton_common.runtime import INTERPRETED

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
AVAILABLE = find_spec("triton") is not None and (DEVICE == "cuda" or INTERPRETED)
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # the interpreter multiplies bf16 as integers
needed = pytest.mark.skipif(not AVAILABLE, reason="needs Triton, and CUDA or TRITON_INTERPRET=1")


def drawn(*shape, dtype=torch.float32, seed=1):
    torch.manual_seed(seed)
    return torch.randn(*shape).to(DEVICE, dtype).requires_grad_()


def gradients(outputs, inputs):
    """Gradients of a weighted sum of all outputs."""
    counts = [torch.linspace(-99, 99, y.numel(), device=DEVICE).view(y.shape).cos() for y in outputs]
    total = sum((y.float() * count).sum() for y, count in zip(outputs, counts, strict=True))
    return torch.autograd.grad(total, inputs, allow_unused=True)


def near(found, wanted, dtype):
    bound = {torch.float32: 2e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}[dtype]
    for mine, best in zip(found, wanted, strict=True):
        assert (mine.double() - best.double()).norm() <= bound * (best.double().norm() + 1e-3)
