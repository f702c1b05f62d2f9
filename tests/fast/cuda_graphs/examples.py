"""Requests by which decoding by CUDA graphs is compared with the textbook; without a GPU the same steps, one by one."""

from __future__ import annotations

import random
from functools import partial

from seqloom.decoding.search_options import Search
from seqloom.fast.cuda_graphs.decoding_graphs import GRAPHS, DecodingGraphs
from tests.fast.cuda_graphs.test_fixed_shape_search import model_of, same, sources
from tests.fast.twin_law import Call, call


def decoding(**options) -> Call:
    model, limits = model_of(0), [9, 4, 12, 1, 30]
    GRAPHS[model] = DecodingGraphs(any_device=True)
    return call(model, sources(random.Random(1), len(limits)), limits, Search(**options), grad=False, same=same)


def releasing() -> Call:
    model = model_of(0)
    GRAPHS[model] = graphs = DecodingGraphs(any_device=True)
    graphs.shapes["one"] = None  # pyright: ignore
    return call(model, same=lambda *_: None)


EXAMPLES = {
    "seqloom.decoding.search.decode": [
        partial(decoding),
        partial(decoding, beam=4, alpha=0.6, n_best=3),
        partial(decoding, beam=3, first=5, close=True, never=(6,)),
    ],
    "seqloom.decoding.search.release": [releasing],
}
