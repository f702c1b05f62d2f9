"""Parts that break a law each, as a user might write them; read by test_laws.py through the command."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from seqloom.parts.recurrent.cells import Cell
from seqloom.parts.state import MixerState
from seqloom.parts.visibility import keep


class Plain(Cell):
    """h' = tanh(W x + U h + b): what the cells below have in common."""

    names = ("state",)

    def step(self, gates, state):
        h = (gates + F.linear(state[0], self.recurrent)).tanh()
        return (h,), (h,)


class PeekingCell(Plain):
    """The gates of a step have the input of the next one."""

    def input(self, x):
        gates = super().input(x)
        return gates if x.dim() < 3 else gates + F.pad(gates, (0, 0, 0, 1))[:, 1:]


class WrongNamesCell(Plain):
    gates = 2
    names = ("state", "update")

    def step(self, gates, state):
        z, new = (gates + F.linear(state[0], self.recurrent)).chunk(2, -1)
        h = z.sigmoid() * state[0] + (1 - z.sigmoid()) * new.tanh()
        return (h,), (z.sigmoid(), h)


class FewNamesCell(WrongNamesCell):
    names = ("update",)


class RememberingCell(Plain):
    """The mean of all it has ever seen is kept on the cell."""

    def step(self, gates, state):
        self.seen = getattr(self, "seen", 0.0) + float(gates.mean())
        (h,), _ = super().step(gates + self.seen, state)
        return (h,), (h,)


class SinglePrecisionCell(Plain):
    def step(self, gates, state):
        h = (gates.float() + F.linear(state[0].float(), self.recurrent.float())).tanh()
        return (h,), (h,)


class DetachedCell(Plain):
    def step(self, gates, state):
        return super().step(gates, (state[0].detach(),))


class InPlaceCell(Plain):
    """tanh needs its output for the gradient."""

    def step(self, gates, state):
        h = (gates + F.linear(state[0], self.recurrent)).tanh()
        h.mul_(0.5)
        return (h,), (h,)


class OverwritingCell(Plain):
    """The old state is written over, from which another hypothesis goes on."""

    def step(self, gates, state):
        (h,), _ = super().step(gates, state)
        state[0].data.copy_(h.detach())
        return (h,), (h,)


class BatchCell(Plain):
    """Rows of a batch see each other."""

    def step(self, gates, state):
        return super().step(gates + gates.mean(0), state)


class UnsavedCell(Plain):
    def __init__(self, input_dim, dim):
        super().__init__(input_dim, dim)
        self.scale = float(torch.rand(()))

    def step(self, gates, state):
        return super().step(self.scale * gates, state)


class FusedCell(Plain):
    """Its fused code forgets the first state and W."""

    def fused(self, x, state):
        h, outputs = state[0], []
        for gates in self.input(x).unbind(1):
            h = gates.tanh()
            outputs.append(h)
        return torch.stack(outputs, 1), (h,)


class InfiniteCell(Plain):
    def step(self, gates, state):
        h = (gates + F.linear(state[0], self.recurrent)) / state[0].abs().sum()
        return (h,), (h,)


class NarrowCell(Plain):
    def step(self, gates, state):
        (h,), active = super().step(gates, state)
        return (h[:, :1],), active


class ListCell(Plain):
    def step(self, gates, state):
        (h,), active = super().step(gates, state)
        return [h], active


class RaisingCell(Plain):
    def step(self, gates, state):
        raise ZeroDivisionError("no step today")


class WrongDotScore(nn.Module):
    """The dot product lacks the scale."""

    def __init__(self, query_dim, key_dim):
        super().__init__()

    def keys(self, k):
        return k

    def as_dot(self, q, k):
        return q, k

    def forward(self, q, k):
        return q @ k.mT * 0.5


class KeysScore(WrongDotScore):
    """Keys are compared with their mean, which a cache does not know yet."""

    def keys(self, k):
        return k - k.mean(-2, keepdim=True)

    def forward(self, q, k):
        return q @ k.mT


class SquareScore(WrongDotScore):
    """It wants exactly three axes."""

    def as_dot(self, q, k):
        return None

    def forward(self, q, k):
        return torch.einsum("btd,bsd->bts", q, k)


class MeanMixer(nn.Module):
    """The mean of all positions so far; the classes below make mistakes."""

    causal = True
    bounded = True

    def __init__(self, dim, heads, score):
        super().__init__()
        self.out = nn.Linear(dim, dim)

    def begin(self, room=None):
        return MixerState()

    def forward(self, x, visible, state=None, position=None):
        if visible.causal:
            total, count = state.parts if state and state.parts else (0.0, 0.0)
            sums = x.cumsum(1) + total
            counts = torch.ones_like(x[..., :1]).cumsum(1) + count
            if state is not None:
                state = MixerState(state.used + x.size(1), (sums[:, -1:], counts[:, -1:]))
            return self.out(sums / counts), state
        real = x.new_ones(*x.shape[:2], 1)
        if visible.lengths is not None:
            real = keep(visible.lengths, x.size(1))[:, :, None].to(x)
        return self.out((x * real).sum(1, keepdim=True) / real.sum(1, keepdim=True) + x), state


class AheadMixer(MeanMixer):
    def forward(self, x, visible, state=None, position=None):
        return self.out(x.mean(1, keepdim=True) + x), MixerState()


class GrowingMixer(MeanMixer):
    """It keeps all it has seen, and says that its state is bounded."""

    def forward(self, x, visible, state=None, position=None):
        if state is None or not visible.causal:
            return super().forward(x, visible, state, position)
        y, after = super().forward(x, visible, MixerState(state.used, state.parts[:2]), position)
        seen = torch.cat([*state.parts[2:], x], 1)
        return y, MixerState(after.used, (*after.parts, seen))


class PaddingNorm(nn.Module):
    """The statistics of a batch, with its padding."""

    across = True

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.register_buffer("power", torch.ones(dim))

    def forward(self, x, lengths=None):
        power = self.power
        if self.training:
            power = x.square().flatten(0, -2).mean(0)
            with torch.no_grad():
                self.power.lerp_(power, 0.1)
        return x / (power + 1e-5).sqrt() * self.weight


class SecretlyAcrossNorm(PaddingNorm):
    across = False
