"""Evaluates a masked language model: scores, and predictions in some texts, as values for a report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from seqloom.data.formats.pairs import Example
from seqloom.errors import SeqloomError
from seqloom.tasks.shared.evaluation import common_details
from seqloom.training.objectives.masked_tokens import predict_masked
from seqloom.training.validation import subsample

if TYPE_CHECKING:
    from seqloom.tasks.mask.model import MaskModel

SHOWN, PREDICTED = 10, 3  # texts of a report, and predictions for each token hidden in them


def evaluation_details(model: MaskModel, examples: Sequence[Example], most: int = 1000) -> dict[str, Any]:
    every = {example.source: [] for example in examples}
    texts = list(subsample(every, most))
    if not texts:
        raise SeqloomError("no texts to evaluate on")
    started = time.monotonic()
    scores = model.score(texts)
    seconds = time.monotonic() - started
    return {**common_details(model, scores, sorted(texts), seconds, len(every)), "masks": _shown(model, texts[:SHOWN])}


@torch.inference_mode()
def _shown(model: MaskModel, texts: list[str]) -> list[dict[str, Any]]:
    """The first chunks of some texts, token by token, with the predictions for hidden tokens."""
    clozes, owners = model.clozes(texts)
    shown = []
    for row in np.flatnonzero(np.diff(owners, prepend=-1)):
        places, _, logits = predict_masked(model.model, clozes.batch(np.array([row])).to(model.device))
        best = logits.float().softmax(-1).topk(min(PREDICTED, logits.size(1)))
        tokens = clozes.texts.ids[clozes.texts.offsets[row] : clozes.texts.offsets[row + 1] - 1]
        predictions = [
            [place, [[model.codec.token(id), round(p, 4)] for p, id in zip(ps, ids, strict=True)]]
            for place, ps, ids in zip(places.tolist(), best.values.tolist(), best.indices.tolist(), strict=True)
        ]
        shown.append({"tokens": [model.codec.token(int(id)) for id in tokens], "guesses": sorted(predictions)})
    return shown
