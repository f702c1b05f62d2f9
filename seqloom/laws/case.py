"""The sizes in which a law is tried, and the part that is tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.language import _
from seqloom.laws.compare import NotApplicable
from seqloom.laws.subjects import Maker, drawn, shake

ROUNDED = (0, 1)  # decimals of all numbers, tried when nothing can be left out any more


@dataclass(frozen=True)
class Part:
    """A user's own class or function, or an entry of a table."""

    name: str
    kind: str
    make: Callable[..., Any]
    file: str = ""  # it stands in; of an entry of a table none


@dataclass(frozen=True)
class Case:
    """Sizes and numbers. `decimals`: to how many the inputs and parameters are rounded; None: not at all."""

    rows: int = 3
    steps: int = 6
    input_dim: int = 3
    dim: int = 4
    heads: int = 2
    lengths: tuple[int, ...] = (4, 6, 1)
    seed: int = 0
    decimals: int | None = None

    @property
    def size(self) -> float:
        """What the search for a smaller case makes smaller."""
        numbers = (
            self.rows + self.steps + self.input_dim + self.dim + self.heads + sum(self.lengths) + len(self.lengths)
        )
        return numbers + (1 if self.decimals is None else self.decimals / 2)

    def smaller(self, sizes: tuple[str, ...]) -> Iterator[Case]:
        """Cases with less of `sizes`: the smallest of all first, then one size after the other."""
        found = [*self._tiny(sizes), *(replace(self, **{name: n}) for name in sizes for n in self._less(name))]
        if "lengths" in sizes:
            found += [replace(self, lengths=lengths) for lengths in _shorter(self.lengths)]
        found += [replace(self, decimals=decimals) for decimals in ROUNDED]
        for case in found:
            if case.size < self.size and ("heads" not in sizes or case.dim % case.heads == 0):
                yield from (replace(case, seed=self.seed + n) for n in range(3))

    def _tiny(self, sizes: tuple[str, ...]) -> Iterator[Case]:
        for steps, lengths in ((1, (1,)), (2, (1, 2)), (3, (1, 3))):
            tiny = {**dict.fromkeys(("rows", "input_dim", "dim", "heads"), 1), "steps": steps, "lengths": lengths}
            yield replace(self, **{name: n for name, n in tiny.items() if name in sizes})

    def _less(self, name: str) -> range:
        return range(1, getattr(self, name)) if name != "lengths" else range(0)

    def draw(self, *shape: int, seed: int = 11) -> Tensor:
        return self._rounded(drawn(*shape, seed=seed + self.seed))

    def build(self, make: Callable[[], nn.Module], seed: int, dtype: torch.dtype, device: str) -> nn.Module:
        """A part with parameters that are far from their start."""
        torch.manual_seed(self.seed + seed)
        module = shake(make().double(), self.seed + seed)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(self._rounded(parameter))
        return module.to(device=device, dtype=dtype)

    def _rounded(self, x: Tensor) -> Tensor:
        return x if self.decimals is None else x.round(decimals=self.decimals) + 0.0  # no -0

    def shown(self, sizes: tuple[str, ...]) -> str:
        """The sizes in words."""
        names = {
            "rows": _("rows"),
            "steps": _("steps"),
            "input_dim": _("input dim"),
            "dim": _("dim"),
            "heads": _("heads"),
            "lengths": _("lengths"),
        }
        values = {name: getattr(self, name) for name in names if name in sizes}
        return _(", ").join(
            f"{names[name]} {list(value) if isinstance(value, tuple) else value}" for name, value in values.items()
        )


def _shorter(lengths: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for row, length in enumerate(lengths):
        if len(lengths) > 1:
            yield (*lengths[:row], *lengths[row + 1 :])
        yield from ((*lengths[:row], n, *lengths[row + 1 :]) for n in range(1, length))


class Law(NamedTuple):
    """`check` of what `subject` makes of a part. `sizes`: what of a case it depends on."""

    name: str
    demand: str
    check: Callable[[Maker], NotApplicable | None]
    subject: Callable[[Part, Case], Maker]
    sizes: tuple[str, ...]
    unless: Callable[[Any], NotApplicable | None] = lambda module: None  # of the part: why it does not apply
    start: Case = Case()


class Kind(NamedTuple):
    """`takes`: the keywords with which a part of this kind is made. `recognized`: whether a class is one."""

    name: str
    takes: tuple[str, ...]
    recognized: Callable[[type], bool]
    table: dict[str, Any]
    module: Callable[[Part, Case], nn.Module]
    laws: tuple[Law, ...]
