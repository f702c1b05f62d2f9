"""`attend` by fused kernels: torch's, or ours for short rows on a CPU. They give no weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from seqloom.acceleration import plain_of, twin_of
from seqloom.fast.attention import short_cpu
from seqloom.parts.attention.attend import attend, group_heads
from seqloom.parts.attention.normalizers import Normalizer, softmax
from seqloom.parts.attention.scores import Scaled, Score
from seqloom.parts.visibility import Visibility


def supported(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    score: Score,
    visible: Visibility,
    report: Callable[[Tensor], None] | None = None,
    normalize: Normalizer = softmax,
) -> bool:
    # In training, a recurrent decoder asks one query a sentence with one head. On a GPU two small matmuls are much
    # faster for that than kernels made for many queries.
    single_query = q.is_cuda and q.dim() == 3 and q.size(1) == 1
    return report is None and normalize is softmax and not single_query


@twin_of(attend, supported, compiles=True)
def fused_attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    score: Score,
    visible: Visibility,
    report: Callable[[Tensor], None] | None = None,
    normalize: Normalizer = softmax,
) -> Tensor:
    # The kernel's own scale saves a multiplication.
    pair, scale = ((q, k), score.scale) if type(score) is Scaled else (score.as_dot(q, k), 1.0)
    if pair is None:  # no dot product: a kernel has no place for it
        return plain_of(attend)(q, k, v, score, visible, report, normalize)
    if q.dim() == 3:  # torch chooses its fused kernel only with a heads axis
        return _fused(pair[0][:, None], pair[1][:, None], v[:, None], visible, scale)[:, 0]
    return _fused(*pair, v, visible, scale)


def _fused(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, scale: float) -> Tensor:
    """softmax(scale·qkᵀ) v by the fastest kernel: with its own causal mask, with no mask, or with a dense one."""
    t, s, shared = q.size(-2), k.size(-2), q.size(1) != k.size(1)
    plain = visible.bias is None and visible.window is None
    if short_cpu.short_attention_supported(q, k) and plain and (is_causal_alone(visible, t, s) or not visible.causal):
        keep = None if visible.causal else visible.keep(t, s, q.device)
        return short_cpu.short_attention(q * scale, k, v, keep, visible.causal)
    if short_cpu.short_attention_no_grad_supported(q, k) and plain and not visible.causal:
        return short_cpu.short_attention_no_grad(q, k, v, visible.keep(t, s, q.device), scale)
    if is_causal_alone(visible, t, s):
        return _torch_kernel(q, k, v, scale=scale, is_causal=True, enable_gqa=shared)
    mask = visible.keep(t, s, q.device)
    if visible.bias is not None:
        mask = visible.bias if mask is None else visible.bias.masked_fill(~mask, float("-inf"))
    if not shared:
        return _torch_kernel(q, k, v, scale=scale, attn_mask=mask)
    # Heads that share keys become further queries: every kernel can do that, and no key is repeated.
    y = _torch_kernel(group_heads(q, k), k, v, scale=scale, attn_mask=_group_mask(mask, q, k))
    return y.reshape(*q.shape[:-1], v.size(-1))


def is_causal_alone(visible: Visibility, t: int, s: int) -> bool:
    """Whether a kernel's own causal mask is enough. `lengths` need none: keys are padded after all real queries."""
    return visible.causal and visible.window is None and visible.bias is None and visible.offset == 0 and t == s


def _torch_kernel(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """torch's, which is not fused for values narrower than keys: those are padded with zeros."""
    if (missing := k.size(-1) - v.size(-1)) <= 0:
        return F.scaled_dot_product_attention(q, k, v, **options)
    y = F.scaled_dot_product_attention(q, k, F.pad(v, (0, missing)), **options)
    return y[..., : v.size(-1)]


def _group_mask(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """`group_heads` for a mask or bias of the scores, [..., heads or 1, T or 1, S]."""
    if mask is None:
        return None
    mask = mask[(None,) * (4 - mask.dim())]
    if mask.size(1) == mask.size(2) == 1:
        return mask
    return group_heads(mask.expand(-1, q.size(1), q.size(2), -1), k)
