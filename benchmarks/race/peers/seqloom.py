"""Ours: the training loop and the search as the commands run them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from peers.talk import BETAS, CLIP, DECAY, RATE, Order, Raw, count, serve, silence
from torch import Tensor

from seqloom.data.batches.bucketing import Plan
from seqloom.data.batches.collate import Batch, Padded
from seqloom.data.batches.language import LanguageBatch
from seqloom.decoding.search import decode
from seqloom.decoding.search_options import Search
from seqloom.models.language_model import LanguageModel
from seqloom.models.seq2seq import Seq2Seq
from seqloom.training.loop import Loop, Update
from seqloom.training.objectives.next_token import NextToken
from seqloom.training.objectives.teacher_forcing import TeacherForcing
from seqloom.training.settings import Training


def made(order: Order) -> Seq2Seq | LanguageModel:
    m = order.model
    if m["name"] == "lstm":
        decoder = {"kind": "attentive", "cell": "lstm", "score": "general", "query": "current", "dim": m["dim"]}
        decoder["feeding"] = m.get("feeding", False)
        encoder = {"kind": "lstm", "dim": m["dim"] // 2}
        sides = {"encoder": encoder, "decoder": decoder, "embedding": m["embedding"], "dropout": m["dropout"]}
        return Seq2Seq(order.source_size, order.target_size, **sides)
    if m["name"] == "words":
        layer = {"kind": "lstm", "dim": m["dim"], "layers": 1}
        return LanguageModel(order.target_size, 0, layer, embedding=m["embedding"], dropout=m["dropout"])
    stack = {"kind": "transformer"} | {name: m[name] for name in ("dim", "layers", "heads", "hidden", "dropout")}
    if m["name"] == "language":
        stack["position"] = {"kind": "learned", "longest": m["block"]}  # as GPT-2 and its other likenesses have them
        return LanguageModel(order.target_size, 0, stack, embedding=m["dim"], dropout=0.0, tie_embeddings=True)
    sizes = (order.source_size, order.target_size)
    return Seq2Seq(*sizes, encoder=stack, decoder=stack, embedding=m["dim"], dropout=0.0, tie_embeddings=True)


class Supply:
    """The batches in the order in which they were written, again in every epoch."""

    fingerprint, folder = "race", Path()

    def __init__(self, batches: list[Batch] | list[LanguageBatch]) -> None:
        self.batches = batches
        sizes = [len(batch.rows) for batch in batches]
        self.order = Plan(np.repeat(np.arange(len(sizes)), sizes), np.cumsum(sizes))

    def __len__(self) -> int:
        return len(self.order.order)

    def plan(self, **settings: Any) -> Plan:
        return self.order

    def batch(self, rows: np.ndarray) -> Batch | LanguageBatch:
        return self.batches[rows[0]]

    def count(self, rows: np.ndarray) -> int:
        batch = self.batch(rows)
        return batch.index.size(0) if isinstance(batch, Batch) else batch.count

    def costs(self, plan: Plan) -> np.ndarray:
        return np.array([self.count(rows) for rows in plan], float)


def batch_of(raw: Raw) -> Batch | LanguageBatch:
    if raw.source is None or raw.source_lengths is None:
        rows, steps = raw.target.size(0), raw.target.size(1) - 1
        return LanguageBatch(raw.target, None, tuple(range(rows)), rows * steps)
    return Batch.of(padded(raw.source, raw.source_lengths), padded(raw.target, raw.target_lengths))


def padded(tokens: Tensor, lengths: Tensor) -> Padded:
    return Padded(tokens, lengths, tuple(lengths.tolist()))


class Trains:
    """As `seqloom train` does it, by the loop; handing a batch to the device is part of its time."""

    def __init__(self, order: Order) -> None:
        model = made(order).to(order.device)
        self.model, self.parameters = model, count(model)
        self.batches = [batch_of(raw) for raw in order.batches]
        objective = (NextToken if isinstance(model, LanguageModel) else TeacherForcing)(model)
        settings = Training.of(
            {"max_steps": 10**9, "batch_rows": order.batches[0].target.size(0), "schedule": "constant", "warmup": 0}
            | {"rate": RATE, "weight_decay": DECAY, "momentum": BETAS[0], "clip": CLIP, "precision": order.precision}
            | ({"compile": True} if order.compiled else {})
        )
        self.loop = Loop(objective, Supply(self.batches), settings, order.device)
        self.updates = iter(self.loop)

    def go(self, passes: int) -> list[Update]:
        return list(islice(self.updates, passes * len(self.batches)))

    def told(self, done: list[Update]) -> dict[str, Any]:
        return {"losses": [float(update.loss / update.count) for update in done]}

    def did(self, done: list[Update]) -> dict[str, int]:
        return {
            "rows": sum(len(batch.rows) for batch in self.batches),
            "tokens": int(sum(update.count for update in done)),
        }


class Decodes:
    def __init__(self, order: Order) -> None:
        model = made(order).eval()
        self.parameters, self.steps, self.search = count(model), order.steps, Search(beam=order.beam)
        silence(model.output.bias)
        self.model = model.to(order.device, order.weights)
        self.sources = [padded(raw.source, raw.source_lengths).to(order.device) for raw in order.batches]

    def go(self, passes: int) -> list[Any]:
        limits = [[self.steps] * len(source.host) for source in self.sources]
        pairs = list(zip(self.sources, limits, strict=True)) * passes
        return [decode(self.model, source, limit, self.search) for source, limit in pairs]

    def told(self, done: list[Any]) -> dict[str, Any]:
        return {"lengths": sorted({len(found[0].tokens) for batch in done for found in batch})}

    def did(self, done: list[Any]) -> dict[str, int]:
        return {"rows": sum(map(len, done)), "tokens": sum(len(found[0].tokens) for batch in done for found in batch)}


if __name__ == "__main__":
    serve({"model": lambda order: Decodes(order) if order.decodes else Trains(order)})
