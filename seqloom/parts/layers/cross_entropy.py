"""Cross-entropy of an output layer."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.acceleration import accelerated

IGNORE_INDEX = -100  # torch's default


@accelerated
def cross_entropy_sum(
    states: Tensor, output: nn.Linear, labels: Tensor, smoothing: float = 0.0, ignore: int = IGNORE_INDEX
) -> Tensor:
    """Σ −log softmax(W h + b) at the labels: [N, dim] and [N] -> [].

    Rows whose label is `ignore` are left out. `smoothing`: the share of each label's probability spread over all tokens
    (Szegedy et al. 2016, section 7).
    """
    return cross_entropy_of_logits(output(states), labels, smoothing, ignore)


def cross_entropy_of_logits(
    logits: Tensor, labels: Tensor, smoothing: float = 0.0, ignore: int = IGNORE_INDEX
) -> Tensor:
    """The same from logits [N, V], in float32 at least."""
    logits = logits.float() if logits.dtype.itemsize < 4 else logits
    return F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing, ignore_index=ignore)
