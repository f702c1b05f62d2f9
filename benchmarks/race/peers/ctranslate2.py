"""CTranslate2, which only decodes: a Transformer with random weights is written in its format and read back."""

from __future__ import annotations

import tempfile
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerSpec, common_spec
from peers.talk import BOS, EOS, PAD, SEED, UNK, Order, Raw, serve

NAMES = {PAD: "<blank>", BOS: "<s>", EOS: "</s>", UNK: "<unk>"}  # as it calls them


class Filled:
    """Random matrices of given shapes, and how many numbers they hold."""

    def __init__(self) -> None:
        self.random, self.parameters = np.random.default_rng(SEED), 0

    def linear(self, spec: Any, inputs: int, outputs: int) -> None:
        spec.weight = self.drawn(outputs, inputs)
        spec.bias = np.zeros(outputs, np.float32)
        self.parameters += outputs

    def norm(self, spec: Any, dim: int) -> None:
        spec.gamma, spec.beta = np.ones(dim, np.float32), np.zeros(dim, np.float32)
        self.parameters += 2 * dim

    def attention(self, spec: Any, dim: int) -> None:
        """Of one's own states three projections are one matrix; of the source's, keys and values."""
        widths = (3, 1) if len(spec.linear) == 2 else (1, 2, 1)
        for linear, width in zip(spec.linear, widths, strict=True):
            self.linear(linear, dim, width * dim)
        self.norm(spec.layer_norm, dim)

    def drawn(self, rows: int, columns: int) -> np.ndarray:
        self.parameters += rows * columns
        return (self.random.standard_normal((rows, columns)) * columns**-0.5).astype(np.float32)


def written(order: Order, folder: str) -> int:
    """The model's files; gives its parameters."""
    m, filled = order.model, Filled()
    dim, hidden, relu = m["dim"], m["hidden"], common_spec.Activation.RELU
    spec = TransformerSpec.from_config(m["layers"], m["heads"], pre_norm=True, activation=relu)
    for stack in (spec.encoder, spec.decoder):
        for layer in stack.layer:
            filled.attention(layer.self_attention, dim)
            if stack is spec.decoder:
                filled.attention(layer.attention, dim)
            filled.norm(layer.ffn.layer_norm, dim)
            filled.linear(layer.ffn.linear_0, dim, hidden)
            filled.linear(layer.ffn.linear_1, hidden, dim)
        filled.norm(stack.layer_norm, dim)
    spec.encoder.embeddings[0].weight = filled.drawn(order.source_size, dim)
    spec.decoder.embeddings.weight = filled.drawn(order.target_size, dim)
    spec.decoder.projection.weight = spec.decoder.embeddings.weight.copy()  # tied: counted once
    spec.decoder.projection.bias = np.zeros(order.target_size, np.float32)
    spec.register_source_vocabulary([NAMES.get(i, str(i)) for i in range(order.source_size)])
    spec.register_target_vocabulary([NAMES.get(i, str(i)) for i in range(order.target_size)])
    spec.validate()
    spec.optimize()
    spec.save(folder)
    return filled.parameters + order.target_size


COMPUTE = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}


class Decodes:
    """All of a batch at once, `steps` tokens at least and at most; by several workers, as many batches at a time."""

    def __init__(self, order: Order) -> None:
        self.order = order
        with tempfile.TemporaryDirectory() as folder:
            self.parameters = written(order, folder)
            where = {"device": order.device.type, "compute_type": COMPUTE[order.precision]}
            where |= {"inter_threads": order.workers, "intra_threads": order.threads}
            self.model = ctranslate2.Translator(folder, **where)
        self.sources = [_texts(raw) for raw in order.batches]
        self.how = {"beam_size": order.beam, "min_decoding_length": order.steps, "max_decoding_length": order.steps}

    def go(self, passes: int) -> list[Any]:
        together = {"asynchronous": True} if self.order.workers > 1 else {}
        found = [
            self.model.translate_batch(batch, max_batch_size=len(batch), **self.how, **together)
            for _ in range(passes)
            for batch in self.sources
        ]
        return [[one.result() for one in batch] for batch in found] if together else found

    def told(self, done: list[Any]) -> dict[str, Any]:
        return {"lengths": sorted({len(one.hypotheses[0]) for batch in done for one in batch})}

    def checked(self) -> dict[str, Any]:
        """It falls back silently to a type that the machine has: what it says it runs counts."""
        done, runs = self.go(1), self.model.compute_type
        names = {"float32": "fp32", "bfloat16": "bf16", "int8": "int8", "int8_float32": "int8"}
        force = {"threads": self.order.threads, "workers": self.model.num_translators}
        rows, tokens = sum(map(len, done)), sum(len(one.hypotheses[0]) for batch in done for one in batch)
        return {**force, **self.told(done), "precision": names.get(runs, runs), "rows": rows, "tokens": tokens}


def _texts(raw: Raw) -> list[list[str]]:
    rows = zip(raw.source.tolist(), raw.source_lengths.tolist(), strict=True)
    return [[NAMES.get(token, str(token)) for token in row[:length]] for row, length in rows]


if __name__ == "__main__":
    serve({"transformer": Decodes}, ("ctranslate2",), shares=False)
