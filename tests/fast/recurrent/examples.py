"""Calls by which the fast forms of recurrent layers and their decoder are compared with the plain ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from seqloom.acceleration import plain
from seqloom.build import Choice, build
from seqloom.fast.recurrent import attentive_decoder
from seqloom.fast.triton_common import runtime
from seqloom.models.decoders.attentive import AttentiveDecoder
from seqloom.models.protocols import Encoded
from seqloom.parts.recurrent.cells import CELLS
from seqloom.parts.recurrent.minimal_cells import MinGruCell
from seqloom.parts.recurrent.self_attention_cells import HistoryAttention
from seqloom.parts.state import Decoding
from seqloom.parts.visibility import Visibility, keep
from tests.fast.triton_common import AVAILABLE, DEVICE, HALF
from tests.fast.twin_law import Call, Maker, call, tensors
from tests.laws import drawn, shake

LENGTHS = torch.tensor([4, 1, 3], device=DEVICE)
PLACES = [Visibility(), Visibility(causal=True), Visibility(lengths=LENGTHS)]


class FormerCell(MinGruCell):
    """All steps by the name and in the form that earlier versions had."""

    def all_steps(self, x, state):
        return None

    def fused(self, x, state):
        (h,) = super().all_steps(x, state)
        return h, (h[:, -1],)


def normal(*shape: int, seed: int = 11, dtype: torch.dtype = torch.float32) -> Tensor:
    return drawn(*shape, seed=seed).to(DEVICE, dtype).requires_grad_()


def built(cell: Choice) -> Any:
    torch.manual_seed(4)
    return shake(build(CELLS, cell, input_dim=8, dim=16), 1).to(DEVICE)


@contextmanager
def kernels(half: bool = False) -> Iterator[None]:
    """Triton's kernels on, where there are any; with `half`, under autocast."""
    with patch.object(runtime, "READY", AVAILABLE), torch.autocast(DEVICE, HALF, enabled=half):
        yield


def in_full_precision(inputs: list[Tensor], bound: float, found: Any, wanted: Any) -> None:
    """Answers of several dtypes, made from the same inputs, and their gradients."""
    both = []
    for answer in (found, wanted):
        outputs = [y.float() for y in tensors(answer)]
        total = [(y * torch.arange(y.numel(), device=y.device).cos().view_as(y)).sum() for y in outputs]
        grads = torch.autograd.grad(sum(total), inputs, None, True, allow_unused=True) if inputs else ()
        both.append([*outputs, *(torch.zeros_like(x) if g is None else g for x, g in zip(inputs, grads, strict=True))])
    for a, b in zip(*both, strict=True):
        assert (a - b).norm() <= bound * (b.norm() + 1.0)


# ---------------------------------------------------------------- cells


def stepping(cell: Choice) -> Call:
    """The second step, from a state with gradients."""
    module = built(cell)
    state, _ = module.step(module.input(normal(3, 8)), module.start(3, normal(1)))
    return call(module, module.input(normal(3, 8, seed=2)), state)


@cache
def stepping_in_half() -> Call:
    state = (normal(3, 16, dtype=HALF), normal(3, 16, seed=2, dtype=HALF))
    made = call(built("lstm").to(HALF), normal(3, 64, seed=3, dtype=HALF), state)
    made.same = partial(in_full_precision, made.inputs, 2e-2)
    return made


def running(cell: Choice, steps: int, visible: Visibility, first: bool = True) -> Call:
    module = built(cell)
    state = tuple(normal(3, 16, seed=5 + n) for n in range(module.parts)) if first else None
    return call(module, normal(3, steps, 8), visible, state, within=kernels)


@cache
def padded(number: int) -> Call:
    """What stands at padded steps is nobody's; the rest is compared."""
    made = running([*ALL_AT_ONCE, *HISTORIES][number], 4, PLACES[2])

    def same(found: Any, wanted: Any) -> None:
        real = keep(LENGTHS, 4)[:, :, None]
        in_full_precision(made.inputs, 1e-5, *((y * real, state) for y, state in (found, wanted)))

    made.same = same
    return made


@cache
def running_in_half(causal: bool) -> Call:
    made = running("lstm", 4, Visibility(causal=causal))
    made.within, made.same = partial(kernels, True), partial(in_full_precision, made.inputs, 3e-2)
    return made


# ---------------------------------------------------------------- histories


def looked(window: int | None, entries: int) -> tuple[HistoryAttention, tuple[Tensor, ...], tuple[Tensor, ...]]:
    torch.manual_seed(0)
    look = shake(HistoryAttention(6, 4, "additive", window), 1).to(DEVICE)
    keys = look.score.keys(normal(3, entries, 4)).detach()
    history = (keys, normal(3, entries, 5).detach(), (torch.arange(entries, device=DEVICE) > 0).float().expand(3, -1))
    return look, history, (normal(3, 4, seed=2), normal(3, 5, seed=3), torch.ones(3, 1, device=DEVICE))


def starting() -> Call:
    look, _, entry = looked(None, 1)
    return call(look, (), *entry)


def continuing(window: int | None, blocks: bool = True) -> Call:
    look, history, entry = looked(window, 3)
    return call(look, (history,) if blocks else history, *entry, plain=partial(continuing, window, False))


def reading(blocks: bool = True) -> Call:
    look, history, _ = looked(None, 5)
    parts = tuple(zip(*(part.split([2, 3], 1) for part in history), strict=True)) if blocks else history
    return call(look, normal(3, 6), parts, plain=partial(reading, False))


# ---------------------------------------------------------------- the attentive decoder


DECODERS: list[dict[str, Any]] = [
    {"query": "previous", "score": "additive"},
    {"query": "previous", "cell": "gru", "layers": 2},
    {"query": "previous", "cell": {"kind": "gru", "norm": True}},
    {"layers": 2, "cell": "rnn"},
    {"value_dim": 5},
    {"input_feeding": True},
    {"input_feeding": True, "score": "scaled"},
    {"input_feeding": True, "score": "additive"},
    {"input_feeding": True, "cell": "gru", "layers": 2},
    {"input_feeding": True, "cell": "lstmn"},
]


@cache
def decoder(number: int) -> tuple[AttentiveDecoder, Encoded, list[Tensor]]:
    """One decoder for both forms, so that gradients are of the same weights."""
    torch.manual_seed(0)
    made: Any = shake(AttentiveDecoder(5, 8, ((8, 8),), dim=8, **DECODERS[number]), 1).to(DEVICE)
    states, summary, h, c = (normal(*shape, seed=n) for n, shape in enumerate(((3, 4, 8), (3, 8), (3, 8), (3, 8))))
    encoded = Encoded(states=states, lengths=LENGTHS, summary=summary, final=((h, c),))
    return made, encoded, [*made.parameters(), states, h, c]


def same_rows(inputs: list[Tensor], found: Any, wanted: Any) -> None:
    """Outputs and rows; what is kept of the source differs."""
    in_full_precision(inputs, 1e-5, (found[0], found[1].rows), (wanted[0], wanted[1].rows))


def beginning(number: int, width: int = 1, room: int | None = None) -> Call:
    made, encoded, inputs = decoder(number)

    def same(found: Decoding, wanted: Decoding) -> None:
        for steps in (3, 1):
            x = normal(3 * width, steps, 5, seed=7)
            with torch.set_grad_enabled(room is None):
                answers = made(x, found), made(x, wanted)
            same_rows(inputs if room is None else [], *answers)

    return call(made, encoded, width, room, grad=room is None, same=same)


def writing(number: int, steps: int, width: int, room: int | None, fast: bool = True) -> Call:
    made, encoded, inputs = decoder(number)
    with torch.set_grad_enabled(room is None):
        if fast:
            state = attentive_decoder.begin(made, encoded, width, room)
        else:
            with plain():
                state = made.begin(encoded, width, room)
    same = partial(same_rows, inputs if room is None else [])
    other = partial(writing, number, steps, width, room, False)
    return call(made, normal(3 * width, steps, 5, seed=7), state, grad=room is None, same=same, plain=other)


def steps_of(*cells: Choice) -> list[Maker]:
    return [partial(stepping, cell) for cell in cells]


def normed(*names: str) -> list[Choice]:
    return [choice for name in names for choice in (name, {"kind": name, "norm": True})]


HOME = "seqloom.parts.recurrent"
RESET_BEFORE: list[Choice] = [{"kind": "gru", "reset_gate": "before", "norm": norm} for norm in (False, True)]
ACTIVATIONS: list[Choice] = [{"kind": "rnn", "activation": name} for name in ("relu", "none")]
ALL_AT_ONCE: list[Choice] = ["rnn", ACTIVATIONS[0], "gru", "lstm", "mingru", "minlstm", FormerCell]
HISTORIES: list[Choice] = ["attentive-rnn", {"kind": "attentive-rnn", "score": "dot"}, "lstmn"]
BEGUN = [(1, None), (2, None), (1, 4), (2, 4)]  # width and room
EXAMPLES: dict[str, list[Callable[[], Call]]] = {
    f"{HOME}.cells.RnnCell.step": steps_of(*normed("rnn"), *ACTIVATIONS),
    f"{HOME}.cells.GruCell.step": steps_of(*normed("gru"), *RESET_BEFORE),
    f"{HOME}.cells.LstmCell.step": [*steps_of(*normed("lstm")), stepping_in_half],
    f"{HOME}.self_attention_cells.AttentiveCell.step": steps_of("attentive-rnn"),
    f"{HOME}.self_attention_cells.LstmnCell.step": steps_of("lstmn"),
    f"{HOME}.self_attention_cells.HistoryAttention.append": [starting, *(partial(continuing, n) for n in (None, 3, 4))],
    f"{HOME}.self_attention_cells.HistoryAttention.forward": [reading],
    f"{HOME}.layers.run_cell": [
        *(partial(running, cell, 4, at, first) for cell in ALL_AT_ONCE for at in PLACES[:2] for first in (False, True)),
        *(partial(running, cell, 4, PLACES[0]) for cell in HISTORIES),
        *(partial(padded, number) for number in range(len(ALL_AT_ONCE) + len(HISTORIES))),
        *(partial(running, cell, 1, PLACES[1]) for cell in ("lstm", "gru", *RESET_BEFORE, "minlstm", *HISTORIES)),
        *(partial(running_in_half, causal) for causal in (False, True)),
    ],
    "seqloom.models.decoders.attentive.AttentiveDecoder.begin": [
        partial(beginning, number, *how) for number in range(len(DECODERS)) for how in BEGUN
    ],
    "seqloom.models.decoders.attentive.AttentiveDecoder.forward": [
        partial(writing, number, steps, *how) for number in range(len(DECODERS)) for how in BEGUN for steps in (1, 3)
    ],
}
