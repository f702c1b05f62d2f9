"""Calls by which recorded passes, compiled ones and decoding by CUDA graphs are compared with the plain ones; without a
GPU the same steps, one by one."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import torch

from seqloom.data.batches.collate import Batch, pad
from seqloom.data.tokenizers.tokenizers import BOS, EOS
from seqloom.decoding.search_options import Search
from seqloom.fast.cuda_graphs.decoding_graphs import GRAPHS, DecodingGraphs
from seqloom.training.forward_backward import ForwardBackward
from seqloom.training.objectives.teacher_forcing import TeacherForcing
from seqloom.training.settings import Training
from tests.fast.cuda_graphs.test_fixed_shape_search import model_of, same, sources
from tests.fast.triton_common import DEVICE
from tests.fast.twin_law import Call, call
from tests.laws import shake, tiny_model

BATCH = Batch.of(pad([[4, 5, EOS], [6, EOS]]), pad([[BOS, 4, EOS], [BOS, 7, 8, EOS]]))


def training() -> Call:
    def same(found: ForwardBackward, wanted: ForwardBackward) -> None:
        results = []
        for passes in (found, wanted):
            for _ in range(4):  # of which the last are recorded on a GPU
                passes.clear_gradients()
                loss = passes(BATCH)
            results.append([loss.total, *(p.grad for p in passes.objective.parameters())])
        torch.testing.assert_close(*results, rtol=1e-3, atol=1e-4)

    torch.manual_seed(3)
    model: Any = shake(tiny_model("transformer", "transformer"), 1)
    return call(TeacherForcing(model.to(DEVICE)), Training.of({"max_steps": 4}), torch.device(DEVICE), same=same)


def decoding(**options) -> Call:
    model, limits = model_of(0), [9, 4, 12, 1, 30]
    GRAPHS[model] = DecodingGraphs(any_device=True)
    return call(model, sources(random.Random(1), len(limits)), limits, Search(**options), grad=False, same=same)


def releasing() -> Call:
    model = model_of(0)
    GRAPHS[model] = graphs = DecodingGraphs(any_device=True)
    graphs.shapes["one"] = None  # pyright: ignore

    def same(*_: object) -> None:
        assert not graphs.shapes

    return call(model, same=same)


EXAMPLES = {
    "seqloom.training.forward_backward.make_forward_backward": [training],
    "seqloom.decoding.search.decode": [
        partial(decoding),
        partial(decoding, beam=4, alpha=0.6, n_best=3),
        partial(decoding, beam=3, first=5, close=True, never=(6,)),
    ],
    "seqloom.decoding.search.release": [releasing],
}
