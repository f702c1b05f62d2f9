"""How far back a model remembers: how much the output changes if an earlier input differs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from seqloom.data.batches.collate import pad
from seqloom.errors import SeqloomError
from seqloom.models.language_model import LanguageModel


@torch.inference_mode()
def reach(outputs: Callable[[Tensor], Tensor], x: Tensor, other: Tensor, rows: int = 256) -> Tensor:
    """How much the output at the last position changes if one input differs, [T]; entry k: the input k positions back.
    The L2 norm of the difference, a mean over the rows of x.

    `outputs` maps rows [N, T, …] to [N, T, D]; see `outputs_of`. `x`: tokens [R, T] or vectors [R, T, …]; `other`: the
    same shape, the replacements. At most `rows` rows are computed at once. (Khandelwal et al. 2018, section 3,
    https://arxiv.org/abs/1805.04623, change distant words too.)
    """
    if x.shape != other.shape:
        raise SeqloomError(f"the replacement has the shape {tuple(other.shape)}, not {tuple(x.shape)}")
    steps = x.size(1)
    positions = torch.arange(steps, device=x.device).flip(0)  # k = 0: the last
    changed = (torch.arange(steps, device=x.device) == positions[:, None]).view(steps, 1, steps, *[1] * (x.dim() - 2))
    variants = torch.where(changed, other, x).flatten(0, 1)  # [T·R, T, …]
    before = outputs(x)[:, -1].repeat(steps, 1)
    after = torch.cat([outputs(part)[:, -1] for part in variants.split(rows)])
    return (after - before).norm(dim=-1).view(steps, -1).mean(1)


def outputs_of(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """The outputs of a model at every position of tokens [N, T]: of a language model the log-probabilities of the next
    token, of any other model with an encoder of tokens the encoder's states."""
    model.eval()
    if isinstance(model, LanguageModel):
        return lambda tokens: model.step(tokens, model.start(pad([[]] * len(tokens)).to(tokens.device)))[0].log_softmax(
            -1
        )
    source, encoder = getattr(model, "source", None), getattr(model, "encoder", None)
    if not isinstance(source, nn.Embedding) or encoder is None:
        raise SeqloomError("this model has no encoder of tokens: give a function of your own")
    return lambda tokens: encoder(source(tokens), None).states
