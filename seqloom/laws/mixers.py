"""The laws of mixers."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.laws import common, stepping
from seqloom.laws.case import Case, Kind, Law, Part
from seqloom.laws.compare import LawError, NotApplicable, shape
from seqloom.laws.subjects import Calling, Maker, Reading, Stepping
from seqloom.parts.mixers.mixer_table import MIXERS
from seqloom.parts.probe import Probed
from seqloom.parts.state import State
from seqloom.parts.visibility import Visibility

SIZES = ("rows", "steps", "dim", "heads")
MANY = 512  # steps after which a bounded state no longer grows


def build_mixer(part: Part, case: Case) -> nn.Module:
    mixer = part.make(dim=case.dim, heads=case.heads, score="scaled")
    if not isinstance(mixer, nn.Module):
        raise LawError("it makes a {found}, which is no nn.Module", found=type(mixer).__name__)
    for name in ("causal", "bounded"):
        if not isinstance(getattr(mixer, name, None), bool):
            raise LawError("it does not say by `{name}`, True or False, what it can do", name=name)
    return mixer


def steps(part: Part, case: Case) -> Maker:
    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Stepping:
        module: Any = case.build(partial(build_mixer, part, case), seed, dtype, device)

        def step(x: Tensor, state: State) -> tuple[Tensor, State]:
            return module(x, Visibility(causal=True), state)

        def draw(rows: int, steps: int) -> Tensor:
            return case.draw(rows, steps, case.dim).to(device, dtype)

        return Stepping(module, lambda width, room: module.begin(room), step, draw, case.rows, case.steps)

    return make


def reads(part: Part, case: Case) -> Maker:
    """Rows of unequal length, every position seeing every other."""

    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Reading:
        module: Any = case.build(partial(build_mixer, part, case), seed, dtype, device)

        def read(x: Tensor, lengths: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
            return [module(x, Visibility(lengths=lengths))[0]], []

        x = case.draw(len(case.lengths), max(case.lengths), case.dim).to(device, dtype)
        return Reading(module, read, x, torch.tensor(case.lengths, device=device))

    return make


def calls(part: Part, case: Case) -> Maker:
    """Called with and, if it can, without later positions."""

    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Calling:
        module: Any = case.build(partial(build_mixer, part, case), seed, dtype, device)
        ways = (Visibility(), Visibility(causal=True))[: 2 if module.causal else 1]
        x = case.draw(case.rows, case.steps, case.dim).to(device, dtype)
        return Calling(module, lambda x: [module(x, way)[0] for way in ways], (x,))

    return make


def check_shapes(make: Maker) -> None:
    """[R, T, dim] gives the same size, and the state; with a position or without."""
    subject: Calling = make(dtype=torch.float32)
    mixer: Any = subject.module
    x = subject.arguments[0]
    result = mixer(x, Visibility(causal=mixer.causal), mixer.begin() if mixer.causal else None, None)
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Tensor)):
        raise LawError("a call returns {found}, and not (x, state)", found=type(result).__name__)
    if result[0].shape != x.shape:
        raise LawError("the shape is {found}, and {expected} is right", found=shape(result[0]), expected=shape(x))


def check_bounded(make: Maker) -> None:
    """If `bounded`, the state stops growing: as many numbers after n steps as after twice as many."""
    subject: Stepping = make()
    sizes, state = [], subject.begin(1, None)
    with torch.no_grad():
        for _ in range(2):
            for piece in subject.draw(subject.rows, subject.steps).split(64, 1):
                state = subject.step(piece, state)[1]
            sizes.append(count_numbers(state))
    if sizes[1] > sizes[0]:
        raise LawError(
            "`bounded` is True, and the state grows: {found} numbers after {steps} steps, {more} after {later}",
            found=sizes[0],
            steps=subject.steps,
            more=sizes[1],
            later=2 * subject.steps,
        )


def count_numbers(state: Any) -> int:
    """In all tensors of a state, also in objects of the user's own."""
    if isinstance(state, Tensor):
        return state.numel()
    if isinstance(state, tuple | list):
        return sum(map(count_numbers, state))
    if isinstance(state, dict):
        return sum(map(count_numbers, state.values()))
    return sum(map(count_numbers, vars(state).values())) if hasattr(state, "__dict__") and not callable(state) else 0


def not_causal(mixer: Any) -> NotApplicable | None:
    return None if mixer.causal else NotApplicable("`causal` is False: it takes no steps")


def not_bounded(mixer: Any) -> NotApplicable | None:
    return not_causal(mixer) or (None if mixer.bounded else NotApplicable("`bounded` is False"))


def not_probed(mixer: Any) -> NotApplicable | None:
    probed = any(isinstance(part, Probed) for part in mixer.modules())
    return None if probed else NotApplicable("it is not Probed: it cannot be watched")


LENGTHS = ("lengths", "dim", "heads")
MIXER = Kind(
    "mixer",
    ("dim", "heads", "score"),
    lambda one: issubclass(one, nn.Module) and callable(getattr(one, "begin", None)) and hasattr(one, "causal"),
    MIXERS,
    build_mixer,
    (
        Law("shapes", "[rows, steps, dim] gives the same size, and a state.", check_shapes, calls, SIZES),
        *common.first_laws(calls, SIZES),
        Law("in-place", "A call writes into none of its inputs.", common.untouched, calls, SIZES),
        Law("prefix", common.PREFIX, stepping.prefix, steps, SIZES, not_causal),
        Law("causality", common.CAUSALITY, partial(stepping.causality, own=False), steps, SIZES, not_causal),
        Law("padding", common.PADDING, common.padding, reads, LENGTHS),
        Law("pick", common.PICK, stepping.picking, steps, ("rows", "dim", "heads"), not_causal),
        Law(
            "bounded",
            "With `bounded`, the state stops growing, however many steps are taken.",
            check_bounded,
            steps,
            SIZES,
            not_bounded,
            Case(rows=1, steps=MANY),
        ),
        Law(
            "twin",
            "The plain code, which runs while it is watched, gives what the fast code gives.",
            common.twin,
            calls,
            SIZES,
            not_probed,
        ),
        Law(
            "reporting",
            "It reports while it is watched, and is quiet afterwards.",
            common.reporting,
            calls,
            SIZES,
            not_probed,
        ),
        *common.last_laws(calls, SIZES),
    ),
)
