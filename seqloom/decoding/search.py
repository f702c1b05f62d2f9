"""Decoding: `decode` runs greedy search, sampling, beam search or another of `DECODINGS` over a Stepper, as a `Search`
says.

Every search takes `limits`, the most tokens each sentence may get; they depend on the sentence alone, never on its
neighbors, so that a sentence gets the same answer in any batch. Samples do too: see `random_draws`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from seqloom.build import maker
from seqloom.data.batches.collate import Padded
from seqloom.decoding.decoding_table import DECODINGS, NOT_FINITE
from seqloom.decoding.hypotheses import Hypothesis
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError, known
from seqloom.fast.malloc import retain_freed_memory
from seqloom.models.seq2seq import Stepper

# A faster way to search, as the CUDA graphs of `DecodingGraphs`; gives None for a request that it does not support.
FastSearch = Callable[[Stepper, Padded, list[int], Search], list[list[Hypothesis]] | None]


@torch.inference_mode()
def decode(
    stepper: Stepper,
    source: Padded,
    limits: list[int],
    search: Search,
    indices: Sequence[int] | None = None,
    fast_search: FastSearch | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of every sentence, best first; samples in the order drawn. `indices`: the positions of
    these sentences in the whole input, by which samples are drawn; 0, 1, … unless given. `fast_search` is tried
    first."""
    if source.tokens.device.type == "cpu":
        retain_freed_memory()
    known(search.kind, DECODINGS, "decoding")
    found = None if fast_search is None else fast_search(stepper, source, limits, search)
    if found is None:
        indices = range(len(limits)) if indices is None else indices
        found = maker(DECODINGS, search.choice)(stepper, source, limits, search, indices)
    if not all(found):
        raise SeqloomError(NOT_FINITE)
    return [hypotheses[: search.n_best] for hypotheses in found]
