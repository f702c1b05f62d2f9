"""Calls by which the fast forms of mixers are compared with the plain ones."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from seqloom.parts.mixers.linear_attention import EluFeatures, RandomFeatures, orthogonal
from seqloom.parts.mixers.mixer_table import MIXERS
from seqloom.parts.mixers.sparse import BigBird
from seqloom.parts.visibility import Visibility
from tests.fast.twin_law import Call, call


def drawn(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype).requires_grad_()


def qkv(b: int, heads: int, t: int, dim: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(3)
    return (
        drawn(b, heads, t, dim, dtype=dtype),
        drawn(b, heads, t, dim, dtype=dtype),
        drawn(b, heads, t, dim, dtype=dtype),
    )


def window(visible: Visibility, first: int = 0, t: int = 37, device: str = "cpu") -> Call:
    parts = qkv(3, 2, t, 16, torch.float32 if device == "cuda" else torch.float64)
    return call(
        *(x.detach().to(device).requires_grad_() for x in parts),
        visible,
        first,
        bound=1e-2 if device == "cuda" else 1e-9,
    )


def blockwise(t: int) -> Call:
    torch.manual_seed(3)
    return call(drawn(3, 2, t, 4), drawn(3, 2, 9, 4), drawn(3, 2, 9, 4), Visibility(causal=True, offset=9 - t), 4)


def groups(masks: tuple[int, int]) -> Call:
    torch.manual_seed(3)
    keep = torch.rand(*masks, 5, 3, 7) < 0.6
    keep[..., 0] = True
    return call(drawn(2, 3, 5, 3, 4), drawn(2, 3, 5, 7, 4), drawn(2, 3, 5, 7, 4), keep)


def blocks(t: int, lengths: Tensor | None) -> Call:
    """What BigBird gives to `attend_blocks`."""
    mixer, parts = BigBird(8, 2, "scaled", block=4, random=2), qkv(3, 2, t, 4)
    chosen = mixer.choose(t // 4, lengths, torch.device("cpu"))
    keep = mixer._key_mask(chosen, torch.tensor([t]) if lengths is None else lengths)
    return call(*(x.unflatten(2, (-1, 4)).detach().requires_grad_() for x in parts), chosen, keep)


def mixing(kind: str, t: int, lengths: Tensor | None, **options: int) -> Call:
    torch.manual_seed(2)
    mixer = MIXERS[kind](8, 2, "scaled", **options).double()
    q, k, v = qkv(3, 2, t, 4)
    return call(mixer, q, k if kind == "bigbird" else q, v, Visibility(lengths=lengths), None)


def hashing(t: int) -> Call:
    torch.manual_seed(3)
    return call(drawn(1, 2, t, 16), drawn(1, 2, t, 16), torch.randn(2, 16, 2, 4).double(), None, 64)


def features(random: bool, visible: Visibility, sizes: tuple[int, ...]) -> Call:
    made = RandomFeatures(orthogonal(4 if sizes[2] > 1000 else 4096, sizes[3], 0)) if random else EluFeatures()
    return call(made, qkv(*sizes), visible, None, None, bound=1e-7)


LENGTHS = torch.tensor([37, 12, 30])
LONG, WIDE = (1, 2, 300, 8), (1, 2, 1 << 13, 16)  # in more than one chunk, and of 32 MiB
EXAMPLES = {
    "seqloom.parts.mixers.window.window_attention": [
        *(
            partial(window, Visibility(causal=causal, window=width, lengths=None if causal else lengths), first)
            for causal in (False, True)
            for width in (1, 5, 40)
            for first in (0, 3)
            for lengths in (None, LENGTHS)
            if width < 37 or not first
        ),
        *(partial(window, Visibility(causal=causal, window=70), t=2048) for causal in (False, True)),
        *(
            [partial(window, Visibility(causal=True, window=100), t=700, device="cuda")]
            if torch.cuda.is_available()
            else []
        ),
    ],
    "seqloom.parts.mixers.blockwise.blockwise": [partial(blockwise, t) for t in (1, 5)],
    "seqloom.parts.mixers.efficient_attention.grouped_attention": [
        partial(groups, masks) for masks in ((1, 1), (2, 1), (1, 3), (2, 3))
    ],
    "seqloom.parts.mixers.sparse.attend_blocks": [
        partial(blocks, t, lengths) for t, lengths in ((40, None), (40, torch.tensor([40, 3, 21])), (8, None))
    ],
    "seqloom.parts.mixers.sparse.BigBird.mix": [
        *(partial(mixing, "bigbird", t, None, block=16) for t in (5, 37, 64)),
        partial(mixing, "bigbird", 37, LENGTHS, block=16),
    ],
    "seqloom.parts.mixers.reformer.Reformer.mix": [
        partial(mixing, "reformer", 37, lengths, chunk=chunk) for lengths in (None, LENGTHS) for chunk in (37, 64)
    ],
    "seqloom.parts.mixers.reformer.attend_chunks": [partial(hashing, t) for t in (128, 1 << 13)],
    "seqloom.parts.mixers.linear_attention.attend_features": [
        *(
            partial(features, random, Visibility(causal=causal), sizes)
            for random in (True, False)
            for causal in (True, False)
            for sizes in (LONG, WIDE)
        ),
        partial(features, True, Visibility(lengths=torch.tensor([140])), LONG),
    ],
}
