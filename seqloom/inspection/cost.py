"""What a model costs: parameters, operations and memory of every layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from seqloom.parts.probe import watch


class LayerCost(NamedTuple):
    name: str
    depth: int
    parameters: int
    operations: int  # multiplications and additions of all matmuls
    memory: int  # bytes of its parameters and outputs


@torch.no_grad()
def cost(model: nn.Module, run: Callable[[], Any], deepest: int = 4) -> list[LayerCost]:
    """The cost of `run`, a forward pass of one example. The plain twins run, so every matmul is counted."""
    model.eval()
    with watch(model), MatmulCounter(model) as matmuls:
        run()
    rows = []
    for name, part in model.named_modules():
        depth = name.count(".") + 1 if name else 0
        parameters = sum(p.numel() for p in part.parameters())
        operations = matmuls.of(name)
        idle = not parameters and not operations
        if depth > deepest or idle or isinstance(part, nn.ModuleList | nn.ModuleDict):
            continue
        memory = sum(p.numel() * p.element_size() for p in part.parameters()) + matmuls.output_bytes[name]
        rows.append(LayerCost(name, depth, parameters, operations, memory))
    return rows


class MatmulCounter(TorchDispatchMode):
    """Counts matmuls for the module that owns the weight; a matmul of two activations (attention) counts for the module
    whose `forward` is running. So modules are counted whatever method of them is called."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.output_bytes: Counter[str] = Counter()  # of each module's forward
        self.running: list[str] = []
        self.parts = dict(model.named_modules())
        named = [(n, p) for n, part in self.parts.items() for p in part.parameters(recurse=False)]
        self.owners = {p.untyped_storage().data_ptr(): name for name, p in reversed(named)}

    def __enter__(self) -> MatmulCounter:
        self.hooks = []
        for name, part in self.parts.items():
            self.hooks.append(part.register_forward_pre_hook(partial(self._entered, name)))
            self.hooks.append(part.register_forward_hook(partial(self._left, name)))
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        for hook in self.hooks:
            hook.remove()
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        count = flop_registry.get(func.overloadpacket)
        if count is not None:
            owners = [self.owners.get(t.untyped_storage().data_ptr()) for t in tree_leaves(args) if _is_tensor(t)]
            owner = next((name for name in owners if name is not None), self.running[-1])
            self.counts[owner] += count(*args, **(kwargs or {}), out_val=result)
        return result

    def of(self, name: str) -> int:
        inner = f"{name}." if name else ""
        return sum(count for owner, count in self.counts.items() if owner == name or owner.startswith(inner))

    def _entered(self, name: str, part: nn.Module, inputs: Any) -> None:
        self.running.append(name)

    def _left(self, name: str, part: nn.Module, inputs: Any, result: Any) -> None:
        self.running.pop()
        self.output_bytes[name] += sum(t.numel() * t.element_size() for t in tree_leaves(result) if _is_tensor(t))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)
