"""How far back a model remembers: what changes now if something else had stood there then."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from seqloom.data.batches.collate import pad
from seqloom.errors import SeqloomError
from seqloom.models.language_model import Language


@torch.inference_mode()
def reach(say: Callable[[Tensor], Tensor], x: Tensor, other: Tensor, rows: int = 256) -> Tensor:
    """How much what is said at the last place changes if one place before differs, [T]; entry k stands for k places
    back, entry 0 for the last place itself. As lengths of differences, a mean over the rows of x.

    `say` maps rows [N, T, …] to [N, T, D]; see `said_by`. `x`: tokens [R, T] or vectors [R, T, …]; `other`: alike, what
    stands in a place that differs. At most `rows` rows are said at once. (Khandelwal et al. 2018, section 3,
    https://arxiv.org/abs/1805.04623, change words at a distance too.)
    """
    if x.shape != other.shape:
        raise SeqloomError(f"what stands there instead has the shape {tuple(other.shape)}, not {tuple(x.shape)}")
    steps = x.size(1)
    places = torch.arange(steps, device=x.device).flip(0)  # k = 0: the last
    changed = (torch.arange(steps, device=x.device) == places[:, None]).view(steps, 1, steps, *[1] * (x.dim() - 2))
    variants = torch.where(changed, other, x).flatten(0, 1)  # [T·R, T, …]
    was = say(x)[:, -1].repeat(steps, 1)
    now = torch.cat([say(part)[:, -1] for part in variants.split(rows)])
    return (now - was).norm(dim=-1).view(steps, -1).mean(1)


def said_by(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """What a model says of every place of tokens [N, T]: a language model the log-probabilities of what comes next,
    any model with an encoder of tokens the encoder's states."""
    model.eval()
    if isinstance(model, Language):
        return lambda tokens: model.step(tokens, model.start(pad([[]] * len(tokens)).to(tokens.device)))[0].log_softmax(
            -1
        )
    source, encoder = getattr(model, "source", None), getattr(model, "encoder", None)
    if not isinstance(source, nn.Embedding) or encoder is None:
        raise SeqloomError("this model has no encoder of tokens: give a function that says something of every place")
    return lambda tokens: encoder(source(tokens), None).states
