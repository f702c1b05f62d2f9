"""Decoding: `decode` runs greedy search, sampling or beam search over a Stepper, as a `Search` says.

Every search takes `limits`, the most tokens each sentence may get; they depend on the sentence alone, never on its
neighbors, so that a sentence gets the same answer in any batch. Samples do too: see `random_draws`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from seqloom.acceleration import accelerated
from seqloom.data.batches.collate import Padded
from seqloom.decoding.beam import beam_search
from seqloom.decoding.greedy import decode_stepwise
from seqloom.decoding.hypotheses import Hypothesis
from seqloom.decoding.random_draws import Draws
from seqloom.decoding.sampling import sampler
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError
from seqloom.models.seq2seq import Stepper

NOT_FINITE = "the model's scores are not finite: its training has gone wrong"


@torch.inference_mode()
@accelerated
def decode(
    stepper: Stepper, source: Padded, limits: list[int], search: Search, indices: Sequence[int] | None = None
) -> list[list[Hypothesis]]:
    """The best hypotheses of every sentence, best first; samples in the order drawn. `indices`: the positions of
    these sentences in the whole input, by which samples are drawn; 0, 1, … unless given."""
    if search.sample:
        indices = range(len(limits)) if indices is None else indices
        streams = [(index, sample) for index in indices for sample in range(search.n_best)]
        choose = sampler(search, Draws(search.seed, streams, source.tokens.device))
        samples = decode_stepwise(stepper, source, limits, choose, search.n_best, search)
        if any(math.isnan(sample.score) for several in samples for sample in several):
            raise SeqloomError(NOT_FINITE)
        return samples
    if search.beam == 1:
        return decode_stepwise(stepper, source, limits, search=search)
    best = beam_search(stepper, source, limits, search.beam, search.alpha, search)
    if not all(best):
        raise SeqloomError(NOT_FINITE)
    return [hypotheses[: search.n_best] for hypotheses in best]


@accelerated
def release(stepper: Stepper) -> None:
    """Free what is kept of this model from one `decode` to the next."""
