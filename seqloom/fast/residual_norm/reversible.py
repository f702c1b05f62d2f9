"""Reversible layers in training: the backward pass computes every block's input from its output, running the block
again with the same dropout, so that no activations are stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seqloom.acceleration import twin_of
from seqloom.parts.transformer.reversible import Blocks, exact, mean_of, run_reversible
from seqloom.parts.visibility import Visibility


def _supported(blocks: Blocks, x: Tensor, visible: Visibility, position: nn.Module) -> bool:
    """With gradients. A CUDA graph has to see every operation."""
    capturing = x.is_cuda and torch.cuda.is_current_stream_capturing()
    return len(blocks) > 0 and torch.is_grad_enabled() and not capturing


@twin_of(run_reversible, _supported)
def run_without_activations(blocks: Blocks, x: Tensor, visible: Visibility, position: nn.Module) -> Tensor:
    recorded = ForwardRecord(blocks, visible, position, x)
    return mean_of(*_Reversible.apply(x, recorded, *recorded.weights), x)  # pyright: ignore


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
        first = second = exact(x)
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
