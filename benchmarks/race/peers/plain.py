"""Plain torch, as one writes it by hand: nn.Transformer, nn.LSTM, the textbook loop of input feeding, a small GPT."""

from __future__ import annotations

import torch
from peers.talk import BOS, Decoding, Entrant, Given, Order, Training, serve, silence
from plain_torch import PlainGpt, PlainLstm, PlainTransformer, PlainWords
from torch import Tensor


def transformer(order: Order) -> Entrant:
    m = order.model
    sizes = {name: m[name] for name in ("dim", "layers", "heads", "hidden", "dropout")}
    model = PlainTransformer(order.source_size, order.target_size, longest=order.longest, **sizes)
    if order.decodes:
        silence(model.output.bias)
        return Decoding(model, write, order)
    return Training(model, lambda model, batch: model(batch.source, padded(batch), batch.tokens), order)


def lstm(order: Order) -> Entrant:
    m = order.model
    sizes = {name: m[name] for name in ("embedding", "dim", "dropout")}
    model = PlainLstm(order.source_size, order.target_size, feeding=m.get("feeding", False), **sizes)
    if order.decodes:
        silence(model.output.bias)
        return Decoding(model, write_lstm, order)
    return Training(
        model, lambda model, batch: model(batch.source, batch.lengths, row(batch.real), batch.tokens), order
    )


def language(order: Order) -> Entrant:
    m = order.model
    sizes = {name: m[name] for name in ("dim", "layers", "heads", "hidden", "block", "dropout")}
    return Training(PlainGpt(order.target_size, **sizes), lambda model, batch: model(batch.tokens), order)


def words(order: Order) -> Entrant:
    m = order.model
    model = PlainWords(order.target_size, m["embedding"], m["dim"], m["dropout"])
    return Training(model, lambda model, batch: model(batch.tokens), order)


def write(model: PlainTransformer, batch: Given, order: Order) -> list[list[int]]:
    """Greedy. nn.Transformer has no cache: the source is read once, but every step runs the whole prefix."""
    memory = model.read(batch.source, padded(batch))
    tokens = torch.full((batch.source.size(0), 1), BOS, device=order.device)
    for _ in range(order.steps):
        states = model.write(tokens, memory, padded(batch))
        tokens = torch.cat([tokens, model.output(states[:, -1]).argmax(-1, keepdim=True)], 1)
    return tokens[:, 1:].tolist()


def write_lstm(model: PlainLstm, batch: Given, order: Order) -> list[list[int]]:
    """Greedy; the state is carried and the keys are projected once."""
    values, state = model.read(batch.source, batch.lengths)
    keys, real, fed = model.keys(values), row(batch.real), None
    tokens, written = torch.full((batch.source.size(0), 1), BOS, device=order.device), []
    for _ in range(order.steps):
        logits, state, fed = model.write(tokens, state, fed, (keys, values, real))
        tokens = logits.argmax(-1)
        written.append(tokens)
    return torch.cat(written, 1).tolist()


def padded(batch: Given) -> Tensor | None:
    return None if batch.real is None else ~batch.real


def row(real: Tensor | None) -> Tensor | None:
    """[B, S] -> [B, 1, S]: the same for every query."""
    return None if real is None else real[:, None]


if __name__ == "__main__":
    serve({"transformer": transformer, "lstm": lstm, "language": language, "words": words})
