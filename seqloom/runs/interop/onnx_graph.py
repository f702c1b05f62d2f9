"""A model that translates as two graphs over plain tensors, for exporters: reading a source, and one step of writing.

What stands between them is the model's own state, taken apart into its tensors: `context_0`, `context_1` … of what was
read, a row a sentence, and `row_0`, `row_1` … of what was written, [sentences, hypotheses, …]. Caches go in and come
out one step longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.acceleration import plain, plain_of
from seqloom.data.batches.collate import Padded, pad
from seqloom.data.tokenizers.tokenizers import BOS
from seqloom.errors import SeqloomError
from seqloom.models.seq2seq import Seq2Seq
from seqloom.parts.attention.kv_cache import Cache
from seqloom.parts.positions.absolute import Sinusoidal
from seqloom.parts.positions.floater import Floater
from seqloom.parts.recurrent.base_cell import Cell, CellState
from seqloom.parts.recurrent.cells import GruCell, LstmCell, RnnCell, name_of
from seqloom.parts.recurrent.layers import Layer
from seqloom.parts.state import Decoding, State
from seqloom.parts.visibility import Visibility


class GrowingCache:
    """A cache that keeps what it is given and nothing else, so that a graph can take it in and hand it out."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = keys, values

    @property
    def used(self) -> int:
        return self.keys.size(2)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.keys, self.values = torch.cat([self.keys, k], 2), torch.cat([self.values, v], 2)
        return self.keys, self.values


def state_tensors(state: State) -> list[Tensor]:
    """The tensors of a state in order; an empty cache has none."""
    if isinstance(state, Tensor):
        return [state]
    if isinstance(state, GrowingCache):
        return [state.keys, state.values]
    if isinstance(state, Cache):
        return [part[:, :, : state.used] for part in (state.keys, state.values) if part is not None]
    return [tensor for part in state or () for tensor in state_tensors(part)]


def rebuild_state(state: State, tensors: Iterator[Tensor]) -> State:
    """A state of the same form from other tensors, in the order of `state_tensors`."""
    if isinstance(state, Tensor):
        return next(tensors)
    if isinstance(state, Cache):
        return GrowingCache(next(tensors), next(tensors))
    if state is None:
        return None
    parts = [rebuild_state(part, tensors) for part in state]
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)


class EncoderGraph(nn.Module):
    """Tokens [B, S] and lengths [B] -> all of the first state that has tensors."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        encoded, views = self.model.encoder(self.model.source(tokens), lengths), self.model.views
        begin = plain_of(type(self.model.decoder).begin)  # as `Example.of` does, which says what a state looks like
        state = begin(self.model.decoder, encoded if views is None else views(encoded))
        return (*state_tensors(state.context), *state_tensors(state.rows))


class StepGraph(nn.Module):
    """Tokens [B, K] and the state -> logits [B, K, V] and the rows of the next state."""

    def __init__(self, model: Seq2Seq, form: Decoding) -> None:
        super().__init__()
        self.model, self.form = model, form

    def forward(self, tokens: Tensor, context: Sequence[Tensor], rows: Sequence[Tensor]) -> tuple[Tensor, ...]:
        state = Decoding(
            rebuild_state(self.form.context, iter(context)),
            rebuild_state(self.form.rows, iter([row.flatten(0, 1) for row in rows])),
        )
        logits, state = self.model.step(tokens.flatten()[:, None], state)
        return tuple(part.unflatten(0, tokens.shape) for part in (logits[:, 0], *state_tensors(state.rows)))


class OnnxRecurrent(nn.Module):
    """A recurrent layer as one operator of ONNX, which knows lengths, both directions and any number of steps; torch's
    exporter would write out a loop, of one length for all. Stands in a Layer's place, with its cells."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.cells, self.probe = layer.cells, None
        _check_cell(layer.cells[0])  # pyright: ignore[reportArgumentType]
        weights = zip(*map(_parameters, layer.cells), strict=True)  # pyright: ignore[reportArgumentType]
        self.weights = nn.ParameterList(torch.stack(part).detach() for part in weights)

    def forward(self, x: Tensor, visible: Visibility, state: CellState | None = None) -> tuple[Tensor, CellState]:
        cells: list[Cell] = list(self.cells)  # pyright: ignore[reportAssignmentType]
        first, ways = cells[0], len(cells)
        rows, steps, dim = x.size(0), x.size(1), first.dim
        state = tuple(x.new_zeros(rows, ways * dim) for _ in range(first.parts)) if state is None else state
        begun = [part.unflatten(1, (ways, dim)).transpose(0, 1) for part in state]
        lengths = None if visible.lengths is None else visible.lengths.int()
        name, more = _operator(first)
        if isinstance(first, RnnCell) and first.activation == "relu":
            more["activations"] = ["Relu"] * ways
        y, *end = torch.onnx.ops.symbolic_multi_out(
            name,
            (x.transpose(0, 1), *self.weights, lengths, *begun),
            {"hidden_size": dim, "direction": "forward" if ways == 1 else "bidirectional", **more},
            dtypes=(x.dtype,) * (1 + first.parts),
            shapes=((steps, ways, rows, dim), *[(ways, rows, dim)] * first.parts),
            version=14,
        )
        return y.permute(2, 0, 1, 3).flatten(2), tuple(part.transpose(0, 1).flatten(1) for part in end)


def _operator(cell: Cell) -> tuple[str, dict[str, Any]]:
    if isinstance(cell, GruCell):
        return "GRU", {"linear_before_reset": int(cell.reset_gate == "after")}
    return ("LSTM" if isinstance(cell, LstmCell) else "RNN"), {}


def _check_cell(cell: Cell) -> None:
    """An error where ONNX has no operator for the cell."""
    normed = any(isinstance(part, nn.LayerNorm) for part in cell.modules())
    linear = isinstance(cell, RnnCell) and cell.activation == "none"
    if isinstance(cell, RnnCell | GruCell | LstmCell) and not (normed or linear or any(cell.zoneout)):
        return
    raise SeqloomError(
        f"ONNX has no operator for the cell {name_of(cell)} as it is here; it has some for rnn with tanh or relu, gru "
        "and lstm, without norm and zoneout"
    )


def _parameters(cell: Cell) -> tuple[Tensor, Tensor, Tensor]:
    """W, U and both biases with the gates in the order of ONNX: update, reset, candidate; or input, output, forget,
    candidate."""
    order = [0, 3, 1, 2] if isinstance(cell, LstmCell) else [1, 0, 2] if isinstance(cell, GruCell) else [0]
    weight, recurrent, bias = (
        torch.cat([part.chunk(cell.gates)[gate] for gate in order]) for part in (cell.weight, cell.recurrent, cell.bias)
    )
    return weight, recurrent, torch.cat([bias, torch.zeros_like(bias)])


def prepared(model: Seq2Seq) -> Seq2Seq:
    """A copy of the model with what can be exported in the place of what cannot."""
    copy = deepcopy(model).cpu().float().eval()
    for part in list(copy.modules()):
        if isinstance(part, Floater):
            raise SeqloomError("position=floater flows from place to place, which no graph for any length can hold")
        if isinstance(part, Sinusoidal):
            part.table = part.table[:0]  # so that sinusoids are computed, for any length
        for name, child in list(part.named_children()):
            if isinstance(child, Layer):
                setattr(part, name, OnnxRecurrent(child))
    return copy


class Example(NamedTuple):
    """What an exporter is shown: the inputs of both graphs."""

    source: Padded
    state: Decoding
    width: int

    @classmethod
    def of(cls, model: Seq2Seq, sentences: int, length: int, width: int, steps: int) -> Example:
        source = pad([[BOS] * (length - row % 2) for row in range(sentences)])  # not all full, so that lengths count
        with plain():  # a graph keeps a cache for each hypothesis
            state = model.start(source, width=width)
            for _ in range(steps):
                _, state = model.step(torch.full((sentences * width, 1), BOS), state)
        return cls(source, state, width)

    def read(self) -> tuple[Tensor, ...]:
        return self.source.tokens, self.source.lengths

    def write(self) -> tuple[Tensor, tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Tokens, what was read and what was written."""
        shape = len(self.source.host), self.width
        context = tuple(part.contiguous() for part in state_tensors(self.state.context))
        return (
            torch.full(shape, BOS),
            context,
            tuple(row.unflatten(0, shape).contiguous() for row in state_tensors(self.state.rows)),
        )
