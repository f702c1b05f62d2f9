"""The decoding step of recurrent layers equals the plain one."""

from itertools import product

import pytest
import torch

from seqloom.fast.decoding.recurrent_step import RecurrentStackStep
from seqloom.models.decoders.attentive import AttentiveDecoder, SourceMemory
from seqloom.models.protocols import Encoded
from seqloom.parts.probe import watch
from seqloom.parts.recurrent.cells import CELLS
from seqloom.parts.recurrent.layers import Recurrent
from seqloom.parts.visibility import Visibility
from tests.laws import LENGTHS, close, drawn, shake

SUMS = ["lstm", "rnn", {"kind": "rnn", "activation": "relu"}]  # cells whose gates are a sum


def stack(cell, layers=1, dtype=torch.float64):
    torch.manual_seed(0)
    return shake(Recurrent(5, 8, cell, layers).to(dtype).eval(), 1)


@pytest.mark.parametrize(("cell", "layers", "rows"), product(SUMS, [1, 2], [1, 6]), ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@torch.no_grad()
def test_steps_are_plain_steps(cell, layers, rows, dtype):
    recurrent = stack(cell, layers, dtype)
    step, state = RecurrentStackStep.of(recurrent, rows), recurrent.start(rows, drawn(1, 1).to(dtype))
    other = state
    for number in range(3):
        x = drawn(rows, 5, seed=number).to(dtype)
        state = step(x, state)
        plain, other = recurrent(x[:, None], Visibility(causal=True), other)
        for one, two in zip((state[-1][0], *sum(state, ())), (plain[:, 0], *sum(other, ())), strict=True):
            torch.testing.assert_close(one, two, atol=1e-5 if dtype == torch.float32 else 1e-12, rtol=0)


def test_unsupported_stacks():
    assert RecurrentStackStep.of(stack("lstm"), 2) is None  # gradients are on
    with torch.no_grad():
        for name in CELLS:
            assert (RecurrentStackStep.of(stack(name), 2) is not None) == (name in ("lstm", "rnn"))
        for kind in ({"norm": True}, {"zoneout": 0.1}):
            assert RecurrentStackStep.of(stack({"kind": "lstm", **kind}), 2) is None
        assert RecurrentStackStep.of(stack("lstm").train(), 2) is None
        hooked = stack("lstm")
        hooked.layers[0].cells[0].register_forward_hook(lambda *_: None)
        assert RecurrentStackStep.of(hooked, 2) is None


@pytest.mark.parametrize(("query", "feeding"), [("current", False), ("current", True), ("previous", False)])
@pytest.mark.parametrize("width", [1, 2])
@torch.no_grad()
def test_an_attentive_decoder_gives_the_same(query, feeding, width):
    """Also while somebody watches, from the start or from the middle."""
    torch.manual_seed(0)
    decoder = AttentiveDecoder(5, 8, ((8, 8),), dim=8, layers=2, query=query, input_feeding=feeding)
    decoder = shake(decoder.double(), 1)
    final = (drawn(3, 8, seed=4), drawn(3, 8, seed=5))
    encoded = Encoded(
        states=drawn(3, 6, 8), lengths=torch.tensor(LENGTHS), summary=drawn(3, 8), final=(final,) * 1, layers=()
    )

    def begun(room):
        state = decoder.begin(encoded, width, room)
        assert (state.context.decoding_step is not None) == (room is not None and query == "current")
        return state

    def outputs(state):
        found = []
        for number in range(3):
            y, state = decoder(drawn(3 * width, 1, 5, seed=number), state)
            found.append(y)
            state = state.pick(torch.arange(3 * width).flip(0).view(3, width).flip(0).flatten())
        rest = torch.arange(width, 3 * width)
        found.append(decoder(drawn(2 * width, 1, 5, seed=9), state.pick(rest, torch.tensor([1, 2])))[0])
        return found

    fast, state = outputs(begun(4)), begun(4)
    close(fast, outputs(begun(None)))
    for middle in (True, False):
        with watch(decoder) as seen:
            if not middle:
                state = decoder.begin(encoded, width, 4)
                assert type(state.context) is SourceMemory
            close(fast, outputs(state))
        assert all(len(reports) == 4 for reports in seen.values())
