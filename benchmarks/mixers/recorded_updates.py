"""Updates that a GPU repeats by itself: drawing a batch, both passes and the optimiser, recorded as one CUDA graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor, nn

from seqloom.fast.cuda_graphs.record import recording
from seqloom.fast.triton_common import runtime
from seqloom.training.optim.optimizer import apply_gradients

BEFORE = 3  # plain updates before one is recorded


class Updates:
    """`update(share)` takes one step; `share` of the rate. A loss draws a batch and gives its mean loss, []."""

    def __init__(self, model: nn.Module, rate: float, device: torch.device, plain: bool = False) -> None:
        self.model, self.rate, self.device = model, rate, device
        self.capture = device.type == "cuda" and not plain
        runtime.prepare(device)
        matrices = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() <= 1]
        groups = [{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
        self.now = torch.tensor(0.0, device=device)  # the rate, where a graph can read it
        rate_of = self.now if self.capture else 0.0
        self.optimiser = torch.optim.AdamW(
            groups, lr=rate_of, betas=(0.9, 0.98), eps=1e-9, fused=True, capturable=self.capture
        )
        self.total = torch.zeros((), device=device)

    def on(self, *losses: Callable[[], Tensor]) -> None:
        """From here on learn from these, each of a shape of its own; what was recorded is forgotten."""
        self.losses, self.taken = losses, Counter[int]()
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.pool = torch.cuda.graph_pool_handle() if self.capture else None

    def update(self, share: float, which: int = 0) -> None:
        if self.capture:
            self.now.fill_(self.rate * share)
        for group in self.optimiser.param_groups if not self.capture else ():
            group["lr"] = self.rate * share
        if not self.capture:
            self._update(which)
        elif self.taken[which] < BEFORE:
            self._aside(which)
        else:
            if which not in self.graphs:
                self._record(which)
            self.graphs[which].replay()
        self.taken[which] += 1

    def _update(self, which: int) -> None:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            loss = self.losses[which]()
        loss.backward()
        # One that is not finite is left out, without a look at it from the host.
        apply_gradients(self.optimiser, self.model.parameters(), 1.0, 1.0)
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        torch._foreach_zero_(gradients)  # pyright: ignore[reportPrivateImportUsage]
        self.total.copy_(loss.detach())

    def _aside(self, which: int) -> None:
        """On another stream, as recording wants it: what a first pass sets up, it sets up there."""
        self.stream = getattr(self, "stream", None) or torch.cuda.Stream(self.device)
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            self._update(which)
        torch.cuda.current_stream(self.device).wait_stream(self.stream)

    def _record(self, which: int) -> None:
        graph = torch.cuda.CUDAGraph()
        with recording(graph, self.pool, self.stream):
            self._update(which)
        self.graphs[which] = graph
