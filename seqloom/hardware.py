"""What this machine computes in, where results depend on it."""

from __future__ import annotations

import torch

# Older processors have no bf16 matmul.
_BF16 = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def bf16_supported(device: torch.device) -> bool:
    """Whether bf16 is worthwhile here. A processor without bf16 arithmetic takes five times as long as in float32, and
    oneDNN has no RNN for it."""
    return device.type != "cpu" or _BF16
