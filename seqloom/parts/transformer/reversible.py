"""Reversible layers: a block's input can be computed from its output. The backward pass does so, running every block
again, so that no activations are stored and memory does not grow with the number of layers."""

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
from seqloom.parts.transformer.residual import RESIDUALS
from seqloom.parts.visibility import Visibility

Blocks = Any  # nn.ModuleList of Block


def block_residual(residual: str, norm: str, norm_kind: Choice) -> str:
    """The `residual` that the blocks of a stack are built with. "reversible" is of the stack: its blocks add nothing
    themselves; see `run_reversible`."""
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


def run_reversible(blocks: Blocks, x: Tensor, visible: Visibility, position: nn.Module) -> Tensor:
    """[R, T, dim] through all blocks: y₁ = x₁ + mixer(x₂), y₂ = x₂ + feed_forward(y₁); in the backward pass
    x₂ = y₂ − feed_forward(y₁), x₁ = y₁ − mixer(x₂) (Gomez et al. 2017, section 3, https://arxiv.org/abs/1707.04585; in
    a Transformer: Kitaev et al. 2020, section 3, https://arxiv.org/abs/2001.04451). Both start as x; the output is
    their mean.

    The backward pass draws the same dropout again. `run_with_states`, which stores activations as any stack does, runs
    without gradients, with probes, and where a compiler, a CUDA graph or FSDP has to see every operation.
    """
    if _stores_activations(blocks, x):
        return run_with_states(blocks, x, visible, [None] * len(blocks), position)[0]
    recorded = ForwardRecord(blocks, visible, position, x)
    return _mean(*_Reversible.apply(x, recorded, *recorded.weights), x)  # pyright: ignore


def run_with_states(
    blocks: Blocks, x: Tensor, visible: Visibility, states: Sequence[State], position: nn.Module
) -> tuple[Tensor, list[State]]:
    """The same by plain operations, with the mixers' states -> the output and the new states."""
    first = second = _exact(x)
    new_states = []
    for block, state in zip(blocks, states, strict=True):
        y, state = block.mixer_sublayer(second.to(x.dtype), visible, state, position)
        first = first + y
        second = second + block.feed_forward_sublayer(first.to(x.dtype), visible)
        new_states.append(state)
    return _mean(first, second, x), new_states


def _exact(x: Tensor) -> Tensor:
    """In float32 at least: a sum in half precision could not be undone."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _mean(first: Tensor, second: Tensor, like: Tensor) -> Tensor:
    return ((first + second) / 2).to(like.dtype)


def _stores_activations(blocks: Blocks, x: Tensor) -> bool:
    """Whether the plain path has to run; see `run_reversible`."""
    if not len(blocks) or not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return True
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        return True
    return any(
        part._forward_pre_hooks or part._forward_hooks or (isinstance(part, Probed) and part.probe is not None)
        for part in blocks.modules()
    )


class RngState(NamedTuple):
    """The state of torch's random number generators."""

    host: Tensor
    device: Tensor | None

    @classmethod
    def now(cls, x: Tensor) -> RngState:
        return cls(torch.get_rng_state(), torch.cuda.get_rng_state(x.device) if x.is_cuda else None)

    @contextmanager
    def restored(self, x: Tensor) -> Iterator[None]:
        """Inside, the generators continue from this state; afterwards, from where they were."""
        with torch.random.fork_rng([x.device] if x.is_cuda else []):
            torch.set_rng_state(self.host)
            if self.device is not None:
                torch.cuda.set_rng_state(self.device, x.device)
            yield


class Sublayer(nn.Module):
    """A sub-layer of a block; a module, so that `functional_call` can give it other weights."""

    def __init__(self, block: nn.Module, position: nn.Module) -> None:
        super().__init__()
        self.block, self.position = block, position

    def forward(self, x: Tensor, visible: Visibility, mixer: bool) -> Tensor:
        if mixer:
            return self.block.mixer_sublayer(x, visible, None, self.position)[0]  # pyright: ignore
        return self.block.feed_forward_sublayer(x, visible)  # pyright: ignore


class ForwardRecord:
    """What the backward pass has to know of the forward pass."""

    def __init__(self, blocks: Blocks, visible: Visibility, position: nn.Module, x: Tensor) -> None:
        self.sublayers, self.visible, self.dtype = [Sublayer(block, position) for block in blocks], visible, x.dtype
        self.own = [{n: p for n, p in sub.named_parameters() if p.requires_grad} for sub in self.sublayers]
        self.weights = list({id(weight): weight for own in self.own for weight in own.values()}.values())
        self.rng_states: list[RngState] = []
        device_type = x.device.type
        # No cache: weights cast in the forward pass, where autograd records nothing, would get no gradient.
        self.autocast = {
            "device_type": device_type,
            "dtype": torch.get_autocast_dtype(device_type),
            "enabled": torch.is_autocast_enabled(device_type),
            "cache_enabled": False,
        }

    def forward(self, number: int, x: Tensor, mixer: bool) -> Tensor:
        """The output of a sub-layer of block `number`."""
        self.rng_states.append(RngState.now(x))
        with torch.autocast(**self.autocast):
            return self.sublayers[number](x.to(self.dtype), self.visible, mixer)

    def backward(
        self, number: int, x: Tensor, mixer: bool, grad_output: Tensor
    ) -> tuple[Tensor, Tensor, dict[int, Tensor]]:
        """Runs it again with the same dropout -> its output, the gradient of x, and those of weights by `id`."""
        x, own = x.detach().requires_grad_(), self.own[number]
        copies = {name: weight.detach().requires_grad_() for name, weight in own.items()}
        rng_state = self.rng_states[2 * number + (not mixer)]
        with torch.enable_grad(), rng_state.restored(x), torch.autocast(**self.autocast):
            y = torch.func.functional_call(self.sublayers[number], copies, (x.to(self.dtype), self.visible, mixer))
        grad_x, *grads = torch.autograd.grad(y, [x, *copies.values()], grad_output.to(y.dtype), allow_unused=True)
        by_weight = {id(weight): grad for weight, grad in zip(own.values(), grads, strict=True) if grad is not None}
        return y.detach(), grad_x, by_weight


class _Reversible(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, recorded: ForwardRecord, *weights: Tensor) -> tuple[Tensor, Tensor]:
        first = second = _exact(x)
        for number in range(len(recorded.sublayers)):
            first = first + recorded.forward(number, second, True)
            second = second + recorded.forward(number, first, False)
        ctx.save_for_backward(first, second, *weights)
        ctx.recorded = recorded
        return first, second

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_first: Tensor, grad_second: Tensor) -> tuple[Any, ...]:  # pyright: ignore
        first, second, *_ = ctx.saved_tensors
        recorded: ForwardRecord = ctx.recorded
        grads: dict[int, Tensor] = {}
        for number in reversed(range(len(recorded.sublayers))):
            y, grad_x, feed_forward = recorded.backward(number, first, False, grad_second)
            second, grad_first = second - y, grad_first + grad_x
            y, grad_x, mixer = recorded.backward(number, second, True, grad_first)
            first, grad_second = first - y, grad_second + grad_x
            for weight, grad in (*feed_forward.items(), *mixer.items()):
                grads[weight] = grads[weight] + grad if weight in grads else grad
        grad_x = (grad_first + grad_second).to(recorded.dtype)
        return grad_x, None, *(grads.get(id(weight)) for weight in recorded.weights)
