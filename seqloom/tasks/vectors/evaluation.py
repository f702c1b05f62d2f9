"""Evaluates word vectors: the loss, and similar words, as values for a report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seqloom.data.formats.pairs import Example
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError
from seqloom.tasks.shared.evaluation import common_details
from seqloom.training.validation import subsample

if TYPE_CHECKING:
    from seqloom.tasks.vectors.model import VectorModel

SHOWN, ALIKE = 20, 8  # words of a report, and words like each


def evaluation_details(model: VectorModel, examples: Sequence[Example], most: int = 1000) -> dict[str, Any]:
    every = {example.source: [] for example in examples}
    texts = list(subsample(every, most))
    if not texts:
        raise SeqloomError("no texts to evaluate on")
    started = time.monotonic()
    scores = model.score(texts)
    seconds = time.monotonic() - started
    words = model.codec.tokens[:SHOWN]
    alike = model.answers(words, Search(beam=ALIKE, n_best=ALIKE))
    return {
        **common_details(model, scores, sorted(texts), seconds, len(every)),
        "alike": [
            [word, [[one.text, round(one.score, 4)] for one in answers]]
            for word, answers in zip(words, alike, strict=True)
        ],
    }
