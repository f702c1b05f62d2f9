"""The turn of rotary positions."""

from __future__ import annotations

import torch
from torch import Tensor

Turn = tuple[Tensor, Tensor]  # cosines and sines of places, [T, head_dim / 2] each


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Each pair of features (2i, 2i+1) of [..., T, head_dim], turned by the angle whose cosine and sine are given: in
    full precision, whatever x has."""
    exact = torch.promote_types(x.dtype, torch.float32)
    cos, sin = cos.to(exact), sin.to(exact)
    if x.device.type in ("cpu", "cuda") and not torch.compiler.is_compiling():
        # A pair is a complex number, and a turn is a product: one pass over memory where parts by themselves take six.
        pairs = torch.view_as_complex(x.to(exact).unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * torch.complex(cos, sin)).flatten(-2).to(x.dtype)
    even, odd = x[..., 0::2].to(exact), x[..., 1::2].to(exact)
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2).to(x.dtype)
