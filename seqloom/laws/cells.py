"""The laws of recurrent cells."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.laws import common, stepping
from seqloom.laws.case import Case, Kind, Law, Part
from seqloom.laws.compare import LawError, NotApplicable, require_all_close, require_close, shape
from seqloom.laws.subjects import Calling, Maker, Reading, Stepping, tensors
from seqloom.parts.recurrent.cells import CELLS, Cell
from seqloom.parts.recurrent.layers import Recurrent
from seqloom.parts.state import State
from seqloom.parts.visibility import Visibility

SIZES = ("rows", "steps", "input_dim", "dim")


def build_cell(part: Part, case: Case) -> nn.Module:
    cell = part.make(input_dim=case.input_dim, dim=case.dim)
    if not isinstance(cell, Cell):
        raise LawError("it makes a {found}, which is no Cell", found=type(cell).__name__)
    return cell


def _layer(part: Part, case: Case) -> Recurrent:
    return Recurrent(case.input_dim, case.dim, lambda **_: build_cell(part, case))


def steps(part: Part, case: Case) -> Maker:
    """A layer of the cell."""

    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Stepping:
        module: Any = case.build(partial(_layer, part, case), seed, dtype, device)

        def begin(width: int, room: int | None) -> State:
            return module.start(width * case.rows, torch.empty(0, dtype=dtype, device=device))

        def step(x: Tensor, state: State) -> tuple[Tensor, State]:
            return module(x, Visibility(causal=True), state)

        def draw(rows: int, steps: int) -> Tensor:
            return case.draw(rows, steps, case.input_dim).to(device, dtype)

        return Stepping(module, begin, step, draw, case.rows, case.steps)

    return make


def reads(part: Part, case: Case) -> Maker:
    """A layer of the cell over rows of unequal length."""

    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Reading:
        module: Any = case.build(partial(_layer, part, case), seed, dtype, device)

        def read(x: Tensor, lengths: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
            outputs, final = module.run(x, Visibility(lengths=lengths))
            return outputs, list(tensors(final))

        x = case.draw(len(case.lengths), max(case.lengths), case.input_dim).to(device, dtype)
        return Reading(module, read, x, torch.tensor(case.lengths, device=device))

    return make


def calls(part: Part, case: Case) -> Maker:
    """A layer of the cell, called twice, so that gradients pass through its state."""

    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Calling:
        module: Any = case.build(partial(_layer, part, case), seed, dtype, device)

        def call(x: Tensor) -> list[Tensor]:
            y, state = module(x, Visibility(causal=True))
            return [y, module(x[:, :1], Visibility(causal=True), state)[0]]

        return Calling(
            module.layers[0].cells[0], call, (case.draw(case.rows, case.steps, case.input_dim).to(device, dtype),)
        )

    return make


def alone(part: Part, case: Case) -> Maker:
    """The cell itself, and inputs of one step."""

    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Calling:
        cell: Any = case.build(partial(build_cell, part, case), seed, dtype, device)

        def call(x: Tensor) -> list[Tensor]:
            return list(tensors(cell.step(cell.input(x), cell.start(x.size(0), x))))

        return Calling(cell, call, (case.draw(case.rows, case.input_dim).to(device, dtype),))

    return make


def check_shapes(make: Maker) -> None:
    """`start`, `input` and `step` give what layers expect of them."""
    subject: Calling = make(dtype=torch.float32)
    cell: Any = subject.module
    x = subject.arguments[0]
    size = [x.size(0), cell.dim]
    for name in ("gates", "parts"):
        if not (isinstance(getattr(cell, name), int) and getattr(cell, name) > 0):
            raise LawError(
                "`{name}` is a whole number above 0, here {found}", name=name, found=repr(getattr(cell, name))
            )
    gates = cell.input(x[:, None].expand(-1, 2, -1))
    if gates.shape[:2] != (x.size(0), 2):
        raise LawError(
            "`input` of [rows, steps, input dim] gives {found}, without its rows and steps", found=shape(gates)
        )
    begun = cell.start(x.size(0), x)
    _check_state("start", begun, cell.parts, size)
    result = cell.step(cell.input(x), begun)
    if not (isinstance(result, tuple) and len(result) == 2):
        raise LawError("`step` returns {found}, and not (state, activations)", found=_described(result))
    _check_state("step", result[0], cell.parts, size)
    if not isinstance(result[1], tuple):
        raise LawError("the activations that `step` returns are {found}, and not a tuple", found=_described(result[1]))


def _check_state(method: str, state: Any, parts: int, size: list[int]) -> None:
    if not isinstance(state, tuple):
        raise LawError(
            "the state that `{method}` returns is {found}, and not a tuple", method=method, found=_described(state)
        )
    fixed = state[:parts]
    if len(fixed) < parts:
        raise LawError(
            "`{method}` returns {found} tensors of the state, and `parts` is {parts}",
            method=method,
            found=len(fixed),
            parts=parts,
        )
    for n, tensor in enumerate(fixed, 1):
        if not isinstance(tensor, Tensor) or list(tensor.shape) != size:
            raise LawError(
                "tensor {n} of the state that `{method}` returns is {found}, and {expected} is right",
                n=n,
                method=method,
                found=_described(tensor),
                expected=str(size),
            )


def check_report(make: Maker) -> None:
    """`step` returns an activation for each of `names`; "state" is h, and "cell" is c."""
    subject: Calling = make()
    cell: Any = subject.module
    x = subject.arguments[0]
    state, active = cell.step(cell.input(x), cell.start(x.size(0), x))
    if isinstance(cell.names, str) or len(cell.names) != len(active):
        count = 1 if isinstance(cell.names, str) else len(cell.names)
        raise LawError(
            "`step` returns {found} activations, and `names` has {expected}", found=len(active), expected=count
        )
    for name, value in zip(cell.names, active, strict=True):
        if not isinstance(value, Tensor) or list(value.shape) != [x.size(0), cell.dim]:
            right = str([x.size(0), cell.dim])
            raise LawError(
                "the activation {name} is {found}, and {expected} is right",
                name=repr(name),
                found=_described(value),
                expected=right,
            )
    named = dict(zip(cell.names, active, strict=True))
    for n, name in enumerate(("state", "cell")[: cell.parts]):
        if name in named:
            require_close(
                named[name],
                state[n],
                "the activation {name} is {found} at {place}, and the new state has {expected} there",
                name=repr(name),
            )


def check_untouched(make: Maker) -> None:
    """A step writes neither into its input nor into the old state, from which another branch may go on."""
    subject: Calling = make()
    cell: Any = subject.module
    x = subject.arguments[0]
    with torch.no_grad():
        state, _ = cell.step(cell.input(x), cell.start(x.size(0), x))
        gates = cell.input(x)
        given = [gates, *tensors(state)]
        before = [one.clone() for one in given]
        cell.step(gates, state)
    require_close(given[0], before[0], "`step` writes into its input: {expected} at {place} is {found} afterwards")
    require_all_close(
        given[1:], before[1:], "`step` writes into the old state: {expected} at {place} is {found} afterwards"
    )


def without_all_steps(cell: Any) -> NotApplicable | None:
    """Of our own cells the fast code is registered elsewhere; cells of earlier versions have `fused`."""
    own = not type(cell).__module__.startswith("seqloom.")
    if own and type(cell).all_steps is Cell.all_steps and not hasattr(type(cell), "fused"):
        return NotApplicable("it has no `all_steps`")
    return None


def _described(value: Any) -> str:
    return shape(value) if isinstance(value, Tensor) else type(value).__name__


ONE_STEP = ("rows", "input_dim", "dim")
CELL = Kind(
    "cell",
    ("input_dim", "dim"),
    lambda one: issubclass(one, Cell) and one is not Cell,
    CELLS,
    build_cell,
    (
        Law(
            "shapes",
            "`start`, `input` and `step` give tuples and tensors of the right sizes.",
            check_shapes,
            alone,
            ONE_STEP,
        ),
        *common.first_laws(calls, SIZES),
        Law(
            "in-place", "A step writes neither into its input nor into the old state.", check_untouched, alone, ONE_STEP
        ),
        Law(
            "reporting",
            "`step` returns an activation for each of `names`: `state` is h, `cell` is c.",
            check_report,
            alone,
            ONE_STEP,
        ),
        Law("prefix", common.PREFIX, stepping.prefix, steps, SIZES),
        Law("causality", common.CAUSALITY, partial(stepping.causality, own=False), steps, SIZES),
        Law("padding", common.PADDING, common.padding, reads, ("lengths", "input_dim", "dim")),
        Law("pick", common.PICK, stepping.picking, steps, ("rows", "input_dim", "dim")),
        Law(
            "twin",
            "`all_steps` gives what the loop over `step` gives, with the same gradients.",
            common.twin,
            steps,
            SIZES,
            without_all_steps,
        ),
        *common.last_laws(calls, SIZES),
    ),
)
