"""Evaluates a language model: scores, loss by position and samples as values for a report."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from seqloom.data.batches.language import Stream
from seqloom.data.prepare.language import line_hash
from seqloom.decoding.generation import GenerationOptions
from seqloom.decoding.search_options import Search
from seqloom.metrics.bootstrap import ratio_interval
from seqloom.tasks.shared.evaluation import common_details
from seqloom.training.objectives.next_token import CHUNK, TokenLosses

if TYPE_CHECKING:
    from seqloom.tasks.generate.model import GenerateModel

SAMPLED, PARTS, SHOWN = 200, 20, 12
PROMPT = 48  # tokens of the held-out text that a sample goes on from


def evaluation_details(model: GenerateModel, stream: Stream) -> dict[str, Any]:
    started = time.monotonic()
    scores, found = model.score(stream)
    seconds = time.monotonic() - started
    return {
        **common_details(model, scores, np.asarray(stream.ids, np.int64).tobytes(), seconds, stream.labels),
        "unit": scores.unit,
        "places": _places(model, found, stream),
        "samples": samples(model, stream),
        "novelty": novelty(model) if model.seen_lines else None,
    }


def protocol(model: GenerateModel, stream: Stream) -> str:
    """What was seen before each token."""
    if stream.offsets is not None:
        return "whole lines"
    if model.model.carries:
        return "state carried over the whole text|first token given"
    return f"blocks of {model.config['decoding']['room']}|first token given"


def intervals(found: TokenLosses, written: int) -> dict[str, tuple[float, float]]:
    """Resampled over stretches of the text."""
    each = max(1, min(CHUNK, len(found.nats) // 50))
    starts = np.arange(0, len(found.nats), each)
    nats = np.add.reduceat(found.nats, starts)
    low, high = ratio_interval(nats, np.diff(starts, append=len(found.nats)))
    bits = len(found.nats) / math.log(2) / written if written > 0 else math.nan
    return {
        "loss": (low, high),
        "perplexity": (math.exp(min(low, 700)), math.exp(min(high, 700))),
        "bits_per_character": (bits * low, bits * high),
    }


def _places(model: GenerateModel, found: TokenLosses, stream: Stream) -> dict[str, Any]:
    """Nats a token along a line or block; of a text that is read in one go, along the text."""
    along = model.model.carries and stream.offsets is None
    place = np.arange(len(found.nats)) if along else found.position
    edges = np.unique(np.linspace(0, int(place.max()) + 1, PARTS + 1).astype(np.int64))
    part = np.searchsorted(edges, place, side="right") - 1
    counts, sums = np.bincount(part), np.bincount(part, weights=found.nats)
    rows = [
        {"from": int(edges[i]), "to": int(edges[i + 1]) - 1, "nats": round(float(sums[i] / n), 4), "count": int(n)}
        for i, n in enumerate(counts)
        if n
    ]
    return {"along": "text" if along else "line" if stream.offsets is not None else "block", "parts": rows}


def samples(model: GenerateModel, stream: Stream) -> list[dict[str, Any]]:
    """Some texts the model writes: one greedily, others drawn."""
    labels = list(model.texts.labels)[:SHOWN] or [None]
    if model.texts.lines:
        chosen = [labels[i % len(labels)] for i in range(SHOWN)]
        prompts, ways = [""] * SHOWN, [Search(sample=True)]
    else:
        start = model.texts.codec.decode(stream.ids[:PROMPT].tolist())
        prompts, chosen = ["", start], [None, None]
        ways = [Search(), Search(sample=True, temperature=0.7), Search(sample=True)]
    course = GenerationOptions(length=min(300, model.default_course().length))
    found = []
    for search in ways:
        answers = model.texts.answers(prompts, search, course, chosen)
        temperature = search.temperature if search.sample else 0.0
        for prompt, label, answer in zip(prompts, chosen, answers, strict=True):
            found.append({"prompt": prompt, "label": label, "temperature": temperature, "text": answer.text})
    return found


def novelty(model: GenerateModel) -> dict[str, Any]:
    """How many of some sampled lines stand in the training data."""
    labels = list(model.texts.labels) or [None]
    chosen = [labels[i % len(labels)] for i in range(SAMPLED)]
    answers = model.texts.answers([""] * SAMPLED, Search(sample=True), model.default_course(), chosen)
    known_lines = {model.seen_lines[i : i + 8] for i in range(0, len(model.seen_lines), 8)}
    new = sum(line_hash(answer.tokens) not in known_lines for answer in answers)
    distinct = len({answer.text for answer in answers})
    text = f"of {SAMPLED} sampled lines {new} are not in the training data, and {distinct} are distinct"
    return {"sampled": SAMPLED, "new": new, "distinct": distinct, "text": text}
