"""Decoding: `decode` runs greedy search, sampling, beam search or another of `DECODINGS` over a Stepper, as a `Search`
says.

Every search takes `limits`, the most tokens each sentence may get; they depend on the sentence alone, never on its
neighbors, so that a sentence gets the same answer in any batch. Samples do too: see `random_draws`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from seqloom.acceleration import accelerated
from seqloom.build import maker
from seqloom.data.batches.collate import Padded
from seqloom.decoding.decoding_table import DECODINGS, NOT_FINITE
from seqloom.decoding.hypotheses import Hypothesis
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError, known
from seqloom.models.seq2seq import Stepper


@torch.inference_mode()
@accelerated
def decode(
    stepper: Stepper, source: Padded, limits: list[int], search: Search, indices: Sequence[int] | None = None
) -> list[list[Hypothesis]]:
    """The best hypotheses of every sentence, best first; samples in the order drawn. `indices`: the positions of
    these sentences in the whole input, by which samples are drawn; 0, 1, … unless given."""
    known(search.kind, DECODINGS, "decoding")
    numbers = range(len(limits)) if indices is None else indices
    found = maker(DECODINGS, search.choice)(stepper, source, limits, search, numbers)
    if not all(found):
        raise SeqloomError(NOT_FINITE)
    return [hypotheses[: search.n_best] for hypotheses in found]


@accelerated
def release(stepper: Stepper) -> None:
    """Free what is kept of this model from one `decode` to the next."""
