"""What a step of decoding costs, counted: operations, and memory over many steps."""

import gc
from contextlib import suppress

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from seqloom.data.batches.collate import pad
from seqloom.data.tokenizers.tokenizers import EOS
from seqloom.decoding.search import decode
from seqloom.decoding.search_options import Search
from seqloom.models.seq2seq import Seq2Seq
from tests.laws import FAST

STACK = {"kind": "transformer", "dim": 16, "layers": 3, "heads": 4, "hidden": 32}
MODELS = {
    "transformer": {"encoder": STACK, "decoder": STACK, "embedding": 16, "tie_embeddings": True},
    "lstm-attention": {
        "encoder": {"kind": "lstm", "dim": 8},
        "decoder": {"kind": "attentive", "cell": "lstm", "dim": 16},
        "embedding": 16,
    },
}
# Of one row, and of 64: there the hypotheses of a beam attend by plain products, which are more operations and take a
# third of the time.
BOUNDS = {
    ("transformer", 1): {1: 121, 64: 121},
    ("transformer", 5): {1: 150, 64: 177},
    ("lstm-attention", 1): {1: 46, 64: 46},
    ("lstm-attention", 5): {1: 71, 64: 71},
}


class Counting(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


def made(name):
    """A model that never ends by itself."""
    torch.manual_seed(0)
    model = Seq2Seq(9, 11, **MODELS[name]).eval()
    with torch.no_grad():
        model.output.bias[EOS] = -1e9
    return model


def run(model, source, steps, beam):
    return decode(model, source, [steps] * len(source.lengths), Search(beam=beam))


@FAST
@pytest.mark.parametrize(("name", "beam"), list(BOUNDS))
@pytest.mark.parametrize("rows", [1, 64])
def test_operations_of_a_step(name, beam, rows):
    """On few rows an operation costs more than its arithmetic: a step has no more of them than it had."""
    model, source = made(name), pad([[4, 5, 6]] * rows)
    counts = []
    for steps in (5, 15):
        with Counting() as counting:
            run(model, source, steps, beam)
        counts.append(counting.count)
    assert (counts[1] - counts[0]) / 10 <= BOUNDS[name, beam][rows]


def living():
    """Bytes of all tensors there are."""
    found = {}
    for one in gc.get_objects():
        if issubclass(type(one), torch.Tensor):
            with suppress(RuntimeError):  # what compiling leaves behind has no memory of its own
                memory = one.untyped_storage()
                found[memory.data_ptr()] = memory.nbytes()
    return sum(found.values())


@pytest.mark.parametrize(("name", "beam"), list(BOUNDS))
def test_memory_does_not_grow_beyond_the_cache(name, beam, monkeypatch):
    """Over 200 steps: keys and values of each, and of a beam one number a hypothesis for each of them."""
    model, source, rows, room = made(name), pad([[4, 5, 6]] * 4), 4 * beam, 200
    step, seen = model.step, []

    def watching(tokens, state):
        if len(seen) in (10, 199):
            gc.collect()
            seen.append(living())
        else:
            seen.append(0)
        return step(tokens, state)

    monkeypatch.setattr(model, "step", watching)
    run(model, source, room, beam)
    cache = (3 * 2 * 16 + (beam if beam > 1 else 0)) * 4 * rows * room if name == "transformer" else 0
    assert len(seen) == room
    assert 0 < seen[199] - seen[10] + 1 <= cache + 2048
