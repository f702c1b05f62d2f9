"""What a model costs: parameters, operations and memory of every layer."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from seqloom.data.batch import pad
from seqloom.data.tokens import BOS, UNK
from seqloom.models.seq2seq import Seq2Seq
from seqloom.parts.probe import watch


class LayerCost(NamedTuple):
    name: str
    depth: int
    parameters: int
    operations: int  # multiplications and additions of all matrix products
    memory: int  # bytes: its parameters and what it hands on


@torch.inference_mode()
def cost(model: Seq2Seq, length: int = 20, deepest: int = 4) -> list[LayerCost]:
    """Costs of one example with `length` tokens a side, forward. The plain twins run, so that every product is seen."""
    model.eval()
    handed: dict[str, int] = {}
    hooks = [part.register_forward_hook(_counter(handed, name)) for name, part in model.named_modules()]
    counter = FlopCounterMode(display=False)
    try:
        with watch(model), counter:
            model(pad([[UNK] * length]), torch.tensor([[BOS] + [UNK] * (length - 1)]))
    finally:
        for hook in hooks:
            hook.remove()
    # The counter names parts after the class of the whole: "Seq2Seq.encoder.blocks.0".
    counted = {name.partition(".")[2]: sum(by.values()) for name, by in counter.get_flop_counts().items()}
    rows = []
    for name, part in model.named_modules():
        depth = name.count(".") + 1 if name else 0
        parameters = sum(p.numel() for p in part.parameters())
        if depth > deepest or (name and not parameters) or (isinstance(part, nn.ModuleList | nn.ModuleDict)):
            continue
        memory = sum(p.numel() * p.element_size() for p in part.parameters()) + handed.get(name, 0)
        done = _operations(part, name, counted) if name else counter.get_total_flops()
        rows.append(LayerCost(name, depth, parameters, done, memory))
    return rows


def _operations(part: nn.Module, name: str, counted: dict[str, int]) -> int:
    """A part reached by another method than `forward` is not counted itself, but its inner parts are."""
    inner = sum(_operations(child, f"{name}.{own}", counted) for own, child in part.named_children())
    return max(counted.get(name, 0), inner)


def _counter(handed: dict[str, int], name: str) -> Any:
    def hook(part: nn.Module, given: Any, result: Any) -> None:
        tensors = result if isinstance(result, tuple) else (result,)
        size = sum(t.numel() * t.element_size() for t in tensors if isinstance(t, Tensor))
        handed[name] = handed.get(name, 0) + size

    return hook
