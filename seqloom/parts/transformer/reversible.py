"""Reversible layers: what a block was given can be computed from what it said. So nothing has to be kept for the way
back, on which each is computed once more, and memory does not grow with their number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seqloom.build import Choice
from seqloom.errors import SeqloomError, known
from seqloom.parts.layers.norm import NORMS
from seqloom.parts.probe import Probed
from seqloom.parts.state import State
from seqloom.parts.transformer.block import RESIDUALS
from seqloom.parts.visibility import Visibility

Blocks = Any  # nn.ModuleList of Block


def inner(residual: str, norm: str, norm_kind: Choice) -> str:
    """What the blocks of a stack with this `residual` are built with: besides those of `Ways` there is `reversible`,
    in which they have no way around themselves; see `read`."""
    if known(residual, (*RESIDUALS, "reversible"), "residual") != "reversible":
        return residual
    others = f"or residual from: {', '.join(RESIDUALS)}"
    if norm == "after":
        raise SeqloomError(
            f"norm 'after' cannot be undone, as residual 'reversible' needs; choose norm before; {others}"
        )
    kind = norm_kind.get("kind") if isinstance(norm_kind, dict) else norm_kind
    if getattr(NORMS.get(kind) if isinstance(kind, str) else kind, "across", False):
        fitting = ", ".join(sorted(name for name, make in NORMS.items() if not make.across))
        raise SeqloomError(
            f"norm_kind {kind!r} would count every batch twice with residual 'reversible', which runs blocks again; "
            f"choose norm_kind from: {fitting}; {others}"
        )
    return "none"


def read(blocks: Blocks, x: Tensor, visible: Visibility, position: nn.Module) -> Tensor:
    """[R, T, dim] through all blocks: y₁ = x₁ + mixed(x₂), y₂ = x₂ + fed(y₁); on the way back x₂ = y₂ − fed(y₁),
    x₁ = y₁ − mixed(x₂) (Gomez et al. 2017, section 3, https://arxiv.org/abs/1707.04585; in a Transformer: Kitaev et al.
    2020, section 3, https://arxiv.org/abs/2001.04451). Both begin as x; what comes out is their mean.

    Dropout is drawn again as it was. Where no gradient is wanted or somebody watches, and where a compiler, a recorded
    graph or FSDP must see every operation, it is `step`, which keeps what any stack keeps.
    """
    if _plainly(blocks, x):
        return step(blocks, x, visible, [None] * len(blocks), position)[0]
    there = There(blocks, visible, position, x)
    return _mean(*_Reversible.apply(x, there, *there.weights), x)  # pyright: ignore


def step(
    blocks: Blocks, x: Tensor, visible: Visibility, states: Sequence[State], position: nn.Module
) -> tuple[Tensor, list[State]]:
    """The same by plain operations, from the states of the mixers to those after."""
    one = two = _exact(x)
    after = []
    for block, state in zip(blocks, states, strict=True):
        y, state = block.mixed(two.to(x.dtype), visible, state, position)
        one = one + y
        two = two + block.fed(one.to(x.dtype), visible)
        after.append(state)
    return _mean(one, two, x), after


def _exact(x: Tensor) -> Tensor:
    """In half precision a sum could not be undone."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _mean(one: Tensor, two: Tensor, like: Tensor) -> Tensor:
    return ((one + two) / 2).to(like.dtype)


def _plainly(blocks: Blocks, x: Tensor) -> bool:
    if not len(blocks) or not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return True
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        return True
    return any(
        part._forward_pre_hooks or part._forward_hooks or (isinstance(part, Probed) and part.probe is not None)
        for part in blocks.modules()
    )


class Moment(NamedTuple):
    """Where the random numbers stood."""

    host: Tensor
    device: Tensor | None

    @classmethod
    def now(cls, x: Tensor) -> Moment:
        return cls(torch.get_rng_state(), torch.cuda.get_rng_state(x.device) if x.is_cuda else None)

    @contextmanager
    def again(self, x: Tensor) -> Iterator[None]:
        with torch.random.fork_rng([x.device] if x.is_cuda else []):
            torch.set_rng_state(self.host)
            if self.device is not None:
                torch.cuda.set_rng_state(self.device, x.device)
            yield


class Half(nn.Module):
    """What is added to one of the two sums by a block; a module, so that weights can be given to it."""

    def __init__(self, block: nn.Module, position: nn.Module) -> None:
        super().__init__()
        self.block, self.position = block, position

    def forward(self, x: Tensor, visible: Visibility, mixes: bool) -> Tensor:
        return self.block.mixed(x, visible, None, self.position)[0] if mixes else self.block.fed(x, visible)  # pyright: ignore


class There:
    """What the way back has to know of the way there."""

    def __init__(self, blocks: Blocks, visible: Visibility, position: nn.Module, x: Tensor) -> None:
        self.halves, self.visible, self.dtype = [Half(block, position) for block in blocks], visible, x.dtype
        self.own = [{n: p for n, p in half.named_parameters() if p.requires_grad} for half in self.halves]
        self.weights = list({id(weight): weight for own in self.own for weight in own.values()}.values())
        self.moments: list[Moment] = []
        kind = x.device.type
        # No cache: of weights that were cast while nothing was noted down, none would get a gradient.
        self.cast = {
            "device_type": kind,
            "dtype": torch.get_autocast_dtype(kind),
            "enabled": torch.is_autocast_enabled(kind),
            "cache_enabled": False,
        }

    def there(self, number: int, x: Tensor, mixes: bool) -> Tensor:
        self.moments.append(Moment.now(x))
        with torch.autocast(**self.cast):
            return self.halves[number](x.to(self.dtype), self.visible, mixes)

    def back(self, number: int, x: Tensor, mixes: bool, slope: Tensor) -> tuple[Tensor, Tensor, dict[int, Tensor]]:
        """The same once more, with the weights of then; and by `slope`, that of the sum, those of x and of weights."""
        x, own = x.detach().requires_grad_(), self.own[number]
        fresh = {name: weight.detach().requires_grad_() for name, weight in own.items()}
        moment = self.moments[2 * number + (not mixes)]
        with torch.enable_grad(), moment.again(x), torch.autocast(**self.cast):
            y = torch.func.functional_call(self.halves[number], fresh, (x.to(self.dtype), self.visible, mixes))
        of_x, *rest = torch.autograd.grad(y, [x, *fresh.values()], slope.to(y.dtype), allow_unused=True)
        return y.detach(), of_x, {id(w): of for w, of in zip(own.values(), rest, strict=True) if of is not None}


class _Reversible(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, there: There, *weights: Tensor) -> tuple[Tensor, Tensor]:
        one = two = _exact(x)
        for number in range(len(there.halves)):
            one = one + there.there(number, two, True)
            two = two + there.there(number, one, False)
        ctx.save_for_backward(one, two, *weights)
        ctx.there = there
        return one, two

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_one: Tensor, of_two: Tensor) -> tuple[Any, ...]:  # pyright: ignore
        one, two, *_ = ctx.saved_tensors
        there: There = ctx.there
        slopes: dict[int, Tensor] = {}
        for number in reversed(range(len(there.halves))):
            y, of_x, fed = there.back(number, one, False, of_two)
            two, of_one = two - y, of_one + of_x
            y, of_x, mixed = there.back(number, two, True, of_one)
            one, of_two = one - y, of_two + of_x
            for weight, of in (*fed.items(), *mixed.items()):
                slopes[weight] = slopes[weight] + of if weight in slopes else of
        return (of_one + of_two).to(there.dtype), None, *(slopes.get(id(weight)) for weight in there.weights)
