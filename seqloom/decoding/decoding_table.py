"""DECODINGS: ways to decode, by name.

An entry takes a Stepper, the source, the most tokens of each sentence, the `Search` and the positions of the sentences
in the whole input, by which random draws are numbered (`Draws`); it gives the hypotheses of every sentence, best first.
Its keywords with a default are its own settings: `--decoding NAME:setting=value`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from seqloom.build import complete, short
from seqloom.data.batches.collate import Padded
from seqloom.decoding.beam import beam_search
from seqloom.decoding.greedy import decode_stepwise, most_likely
from seqloom.decoding.hypotheses import Hypothesis
from seqloom.decoding.random_draws import Draws
from seqloom.decoding.sampling import sampler
from seqloom.decoding.search_options import AUTO, Search
from seqloom.documents import parse_yaml
from seqloom.errors import SeqloomError, known, setting_errors, shown
from seqloom.models.seq2seq import Stepper

NOT_FINITE = "the model's scores are not finite: its training has gone wrong"
Found = list[list[Hypothesis]]


def greedy(stepper: Stepper, source: Padded, limits: list[int], search: Search, indices: Sequence[int]) -> Found:
    """The likeliest token at every step (as in Graves 2012)."""
    return decode_stepwise(stepper, source, limits, most_likely, 1, search)


def sample(stepper: Stepper, source: Padded, limits: list[int], search: Search, indices: Sequence[int]) -> Found:
    """`n_best` samples of the model's distribution, in the order drawn (Holtzman et al. 2020)."""
    streams = [(index, number) for index in indices for number in range(search.n_best)]
    choose = sampler(search, Draws(search.seed, streams, source.tokens.device))
    samples = decode_stepwise(stepper, source, limits, choose, search.n_best, search)
    if any(math.isnan(one.score) for several in samples for one in several):
        raise SeqloomError(NOT_FINITE)
    return samples


def beam(stepper: Stepper, source: Padded, limits: list[int], search: Search, indices: Sequence[int]) -> Found:
    """Beam search (Graves 2012; Sutskever et al. 2014, section 3.2)."""
    return beam_search(stepper, source, limits, search.beam, search.alpha, search)


DECODINGS: dict[str, Callable[..., Found]] = {
    "greedy": greedy,
    "sample": sample,
    "beam": beam,
}


@setting_errors("--decoding")
def parse_decoding(text: str) -> Any:
    """`"name:setting=value,setting=value"` -> the complete choice; auto stays as it is."""
    if text == AUTO:
        return text
    name, _, rest = text.partition(":")
    options: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise SeqloomError(f"takes a name, or name:setting=value,…; here {shown(text)}")
        options[key.strip()] = parse_yaml(value, "a setting")
    return short(complete(DECODINGS, {"kind": known(name, DECODINGS, "decoding"), **options}))
