"""The kernels need Triton, and a GPU or Triton's interpreter: TRITON_INTERPRET=1."""

from importlib.util import find_spec

import pytest
import torch

from seqloom.parts.kernels import INTERPRETED

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
THERE = find_spec("triton") is not None and (DEVICE == "cuda" or INTERPRETED)
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # in products the interpreter takes bf16 for whole numbers
needed = pytest.mark.skipif(not THERE, reason="needs Triton, and CUDA or TRITON_INTERPRET=1")
