"""What the laws of seqloom/laws are tried on: makers of every part and every model.

A maker, `make(seed, dtype, device)`, gives a `Stepping` (it takes steps, handing a state on) or a `Reading` (it reads
whole rows of unequal length). Makers come from the tables, so a new entry is tested by being listed there. All numbers
are drawn on the CPU in float64 and then cast, so that a maker gives the same part everywhere.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.build import Choice, build, complete
from seqloom.data.batches.collate import Padded, pad
from seqloom.laws import common
from seqloom.laws.common import dtypes, gradient_check, padding, reporting, saving, twin  # noqa: F401
from seqloom.laws.compare import gradients, weighed  # noqa: F401
from seqloom.laws.stepping import causality, picking, prefix  # noqa: F401
from seqloom.laws.subjects import Maker, Reading, Stepping, drawn, shake, tensors
from seqloom.models.decoders import DECODERS
from seqloom.models.encoders import ENCODERS
from seqloom.models.encoders.transformer import TransformerInput
from seqloom.models.protocols import Encoded
from seqloom.models.seq2seq import Seq2Seq
from seqloom.parts.attention.multi_head import MultiHeadAttention
from seqloom.parts.attention.normalizers import NORMALIZERS
from seqloom.parts.attention.scores import SCORES
from seqloom.parts.attention.single_head import Attention
from seqloom.parts.layers.activations import ACTIVATIONS
from seqloom.parts.layers.norm import NORMS
from seqloom.parts.mixers.mixer_table import MIXERS
from seqloom.parts.positions.position_table import POSITIONS
from seqloom.parts.recurrent.cells import CELLS, Cell, CellState
from seqloom.parts.recurrent.layers import Recurrent
from seqloom.parts.state import State
from seqloom.parts.transformer.block import Block
from seqloom.parts.transformer.residual import RESIDUALS
from seqloom.parts.visibility import Visibility

SENTENCES, STEPS = 3, 6
FAST = pytest.mark.skipif(
    os.environ.get("SEQLOOM_PLAIN", "") not in ("", "0"), reason="what fast code does, which SEQLOOM_PLAIN switches off"
)
LENGTHS = (4, 6, 1)
SIZES = {"layers": 2, "heads": 2, "hidden": 12, "dropout": 0.0}
VOCABULARY = 9
# For torch.compile: traces forward and backward as any backend does, but does not search for what is best kept between.
COMPILED = "aot_eager_default_partitioner"


def devices(make: Maker) -> None:
    """The law, or a skipped test where there is no GPU."""
    if skipped := common.devices(make):
        pytest.skip(skipped.reason)


# ---------------------------------------------------------------- small tools


def close(found: Any, wanted: Any, bound: float = 1e-10) -> None:
    found, wanted = ([one] if isinstance(one, Tensor) else list(one) for one in (found, wanted))
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape, f"{tuple(a.shape)} is not {tuple(b.shape)}"
        torch.testing.assert_close(a, b, rtol=bound, atol=bound)


def small(table: dict[str, Any], choice: Choice, **sizes: Any) -> Choice:
    """The choice at a tiny size: of `sizes` (and the usual ones), those it has."""
    if callable(choice):
        return choice
    full = complete(table, choice)
    asked = {} if isinstance(choice, str) else choice
    usual = {name: value for name, value in {**SIZES, **sizes}.items() if name in full and name not in asked}
    return {**full, **usual}


def named(choice: Choice) -> str:
    """A choice as the name of a test."""
    if isinstance(choice, str):
        return choice
    if callable(choice):
        return getattr(choice, "__name__", "own")
    return "-".join(str(named(value) if isinstance(value, dict) else value) for value in choice.values())


# ---------------------------------------------------------------- makers: parts


class OwnCell(Cell):
    """A user's own cell, with two tensors in its state and no fused kernel: it has to obey the same laws."""

    gates = 2
    parts = 2
    names = ("update", "state")

    def step(self, gates: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        z, new = (gates + F.linear(state[0], self.recurrent)).chunk(2, -1)
        z = z.sigmoid()
        h = z * state[0] + (1 - z) * (new + state[1]).tanh()
        return (h, 0.5 * state[1] + h), (z, h)


PLACES = ("before", "after")
CELL_CHOICES: list[Choice] = [
    *CELLS,
    {"kind": "gru", "reset_gate": "before"},
    *({"kind": "rnn", "activation": name} for name in ("relu", "none")),
    *({"kind": name, "norm": True} for name in ("rnn", "gru", "lstm")),
    {"kind": "gru", "reset_gate": "before", "norm": True},
    {"kind": "lstm", "zoneout": [0.1, 0.4]},
    *({"kind": name, "zoneout": 0.3} for name in CELLS),
    *({"kind": "attentive-rnn", "score": score} for score in SCORES),
    *({"kind": name, "window": 2} for name in ("attentive-rnn", "lstmn")),
    {"kind": "lstmn", "score": "general"},
    OwnCell,
]
SCORE_CHOICES: list[Choice] = [*SCORES, {"kind": "additive", "hidden": 3}, {"kind": "cosine", "learned": False}]
POSITION_CHOICES: list[Choice] = [
    *POSITIONS,
    {"kind": "relative", "buckets": 4, "far": 3},
    {"kind": "floater", "start": "zero", "hidden": 3},
]


def heads_of(key_heads: int = 0, projections: str = "qkv", normalizer: str = "softmax") -> dict[str, Any]:
    return {"kind": "attention", "key_heads": key_heads, "projections": projections, "normalizer": normalizer}


def _of(choice: dict[str, Any]) -> dict[str, Any]:
    """The settings of a choice without its kind."""
    return {name: value for name, value in choice.items() if name != "kind"}


# Attention of other heads, matrices and weights than usual, with scores and positions of every sort.
HEADS: list[dict[str, Any]] = [
    *({"mixer": heads_of(normalizer=name)} for name in NORMALIZERS),
    {"mixer": heads_of(1)},
    {"mixer": heads_of(1, normalizer="relu"), "score": "additive"},
    {"mixer": heads_of(1), "score": "gaussian", "position": "rotary"},
    {"mixer": heads_of(1), "position": "alibi"},
    {"mixer": heads_of(normalizer="relu"), "position": "relative"},
    *({"mixer": heads_of(projections=those)} for those in ("", "q", "kv")),
    {"mixer": heads_of(1, "kv")},
]


def make_module(build_it: Callable[[], nn.Module], seed: int, dtype: torch.dtype, device: str) -> nn.Module:
    torch.manual_seed(seed)
    return shake(build_it().double(), seed).to(device=device, dtype=dtype)


def recurrent(cell: Choice) -> Maker:
    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Stepping:
        module = make_module(lambda: Recurrent(3, [4, 5], cell, layers=2), seed, dtype, device)

        def begin(width: int, room: int | None) -> State:
            return module.start(width * SENTENCES, torch.empty(0, dtype=dtype, device=device))

        def step(x: Tensor, state: State) -> tuple[Tensor, State]:
            return module(x, Visibility(causal=True), state)

        return Stepping(module, begin, step, lambda r, t: drawn(r, t, 3).to(device, dtype))

    return make


class Cached(nn.Module):
    """One Transformer block behind its entrance, stepping with its mixer's state."""

    def __init__(self, window: int | None = None, position: Choice = "none", **options: Any) -> None:
        super().__init__()
        self.enter = TransformerInput(8, 8, position, 4, 0.0)
        self.block = Block(8, 2, 12, **options)
        self.visible = Visibility(causal=True, window=window)

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return self.block(self.enter(x, state.used), self.visible, state, self.enter.position)


def cached(**options: Any) -> Maker:
    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Stepping:
        module = make_module(lambda: Cached(**options), seed, dtype, device)
        begin = module.block.mix.begin
        return Stepping(module, lambda width, room: begin(room), module, lambda r, t: drawn(r, t, 8).to(device, dtype))

    return make


def reads_recurrent(cell: Choice, directions: int) -> Maker:
    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Reading:
        module = make_module(lambda: Recurrent(3, [4, 5], cell, 2, directions), seed, dtype, device)

        def read(x: Tensor, lengths: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
            outputs, final = module.run(x, Visibility(lengths=lengths))
            return outputs, list(tensors(final))

        return Reading(module, read, *rows(3, dtype, device))

    return make


def reads_block(**options: Any) -> Maker:
    """A block in which every place sees every other."""

    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Reading:
        module = make_module(lambda: Cached(**options), seed, dtype, device)
        window = module.visible.window

        def read(x: Tensor, lengths: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
            visible = Visibility(lengths=lengths, window=window)
            return [module.block(module.enter(x), visible, None, module.enter.position)[0]], []

        return Reading(module, read, *rows(8, dtype, device))

    return make


def reads_memory(score: Choice, value_dim: int = 0, heads: int = 0, **options: Any) -> Maker:
    """Attention over what was read: one head as recurrent decoders have it, or cross-attention with `heads`."""

    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Reading:
        def build_it() -> nn.Module:
            if heads:
                return MultiHeadAttention(8, heads, key_dim=8, score=score, **options)
            return Attention(8, 8, score, value_dim)

        module = make_module(build_it, seed, dtype, device)
        query = drawn(2 * SENTENCES, 2, 8, seed=3).to(device, dtype)

        def read(x: Tensor, lengths: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
            asked = query[: 2 * x.size(0)] if x.size(0) == SENTENCES else query[_row_of(x) : _row_of(x) + 2]
            visible, memory = Visibility(lengths=lengths), module.project_memory(x)
            mixed = module.cross_attend(asked, memory, visible) if heads else module(asked, memory, visible)
            return [], [mixed.unflatten(0, (x.size(0), 2))]

        def _row_of(x: Tensor) -> int:
            """Which sentence a lone row is, by its length: each has its own queries."""
            return 2 * LENGTHS.index(x.size(1))

        return Reading(module, read, *rows(8, dtype, device))

    return make


def rows(dim: int, dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
    return drawn(SENTENCES, max(LENGTHS), dim).to(device, dtype), torch.tensor(LENGTHS, device=device)


# Of sizes at which six steps leave the beginning behind.
SMALL: dict[str, list[dict[str, Any]]] = {
    "convolution": [{"width": 2, "dilation": 2}, {"width": 1}, {"width": 4, "gate": True}],
    "blockwise": [{"block": 2}],
    "window": [{"window": 1}, {"window": 2}, {"window": 3}],
    "longformer": [{"window": 1}, {"window": 2, "first": 2}],
    "bigbird": [{"block": 1, "random": 1}, {"block": 1, "random": 0}],
    "performer": [{"features": 7}],
    "linformer": [{"longest": 6, "rank": 3}],
    "reformer": [{"chunk": 2, "buckets": 4, "rounds": 1}, {"chunk": 2, "buckets": 2, "rounds": 3}],
}


def mixer_choices(causal: bool = False) -> list[Choice]:
    """Every mixer of the table, as it is and at its small sizes; with `causal`, those that can write."""
    names = [name for name, make in MIXERS.items() if make.causal or not causal]
    return [{"kind": name, **options} for name in names for options in [{}, *SMALL.get(name, [])]]


def two_of_a_kind(choices: Iterable[dict[str, Any]]) -> list[Any]:
    """The first two choices of each kind; what is more of the same is left to the slow tests."""
    seen: Counter[str] = Counter()
    found = []
    for choice in choices:
        seen[choice["kind"]] += 1
        found.append(choice if seen[choice["kind"]] <= 2 else pytest.param(choice, marks=pytest.mark.slow))
    return found


def stepping_parts() -> list[Any]:
    found = {f"cell {named(cell)}": recurrent(cell) for cell in CELL_CHOICES}
    found |= {f"score {named(score)}": cached(score=score) for score in SCORE_CHOICES}
    found |= {f"position {named(position)}": cached(position=position) for position in POSITION_CHOICES}
    found |= {f"heads {named(heads)}": cached(**heads) for heads in HEADS}
    found |= {f"activation {name}": cached(activation=name) for name in ACTIVATIONS}
    found |= {f"norm {place} {name}": cached(norm=place, norm_kind=name) for place in PLACES for name in NORMS}
    found |= {f"residual {name}": cached(residual=name) for name in RESIDUALS}
    found |= {f"window {name}": cached(window=3, score=name) for name in ("scaled", "additive")}
    found |= {
        f"mixer {named(choice)} {position}": cached(mixer=choice, position=position)
        for choice in mixer_choices(causal=True)
        for position in ("none", "rotary")
    }
    return [pytest.param(make, id=f"steps {name}") for name, make in found.items()]


def reading_parts() -> list[Any]:
    found = {f"cell {named(cell)} {n}": reads_recurrent(cell, n) for cell in CELL_CHOICES for n in (1, 2)}
    found |= {f"score {named(score)}": reads_block(score=score) for score in SCORE_CHOICES}
    found |= {f"position {named(position)}": reads_block(position=position) for position in POSITION_CHOICES}
    found |= {f"heads {named(heads)}": reads_block(**heads) for heads in HEADS}
    found |= {
        f"memory heads {named(heads)}": reads_memory("scaled", heads=2, **_of(heads["mixer"])) for heads in HEADS[:3]
    }
    found |= {f"activation {name}": reads_block(activation=name) for name in ACTIVATIONS}
    found |= {f"norm {place} {name}": reads_block(norm=place, norm_kind=name) for place in PLACES for name in NORMS}
    found |= {f"window {name}": reads_block(window=2, score=name) for name in ("scaled", "additive")}
    found |= {f"mixer {named(choice)}": reads_block(mixer=choice) for choice in mixer_choices()}
    found |= {f"memory {named(score)}": reads_memory(score) for score in SCORE_CHOICES}
    found |= {f"memory {named(score)} cross": reads_memory(score, heads=2) for score in SCORE_CHOICES}
    found |= {f"memory {named(score)} values": reads_memory(score, value_dim=5) for score in SCORES}
    return [pytest.param(make, id=f"reads {name}") for name, make in found.items()]


# ---------------------------------------------------------------- makers: encoders, decoders, models


def encoder_choices() -> list[dict[str, Any]]:
    return [{"kind": name} for name in ENCODERS]


def decoder_choices() -> list[dict[str, Any]]:
    """Every kind in the table, and of the kinds known here every variant; cells, starts and activations take turns."""
    kinds: dict[str, list[dict[str, Any]]] = {name: [{}] for name in DECODERS}
    kinds["recurrent"] = [
        {"context": context, "context_to": given} for context in ("last", "transform", "pool") for given in _GIVEN
    ]
    kinds["attentive"] = [
        {"query": query, "input_feeding": feeding, "score": score, "value_dim": value_dim, "initial_state": start}
        for query, feeding in (("previous", False), ("current", False), ("current", True))
        for score, start in zip(SCORES, _in_turn(_STARTS), strict=False)
        for value_dim in (0, 5)
    ]
    kinds["transformer"] = [
        {"position": position, "norm": norm, "score": score, "activation": activation}
        for norm in ("before", "after")
        for position, score, activation in zip(POSITIONS, _in_turn(SCORES), _in_turn(ACTIVATIONS), strict=False)
    ]
    kinds["transformer"] += [
        {"mixer": heads_of(1, normalizer="relu"), "cross": heads_of(1, normalizer="relu")},
        {"mixer": heads_of(1, "kv"), "cross": heads_of(1), "position": "relative"},
    ]
    cells = _in_turn(["lstm", "gru", "rnn", {"kind": "gru", "reset_gate": "before"}, *list(CELLS)[3:], _EVENED])
    turned = ("recurrent", "attentive")
    return [
        {"kind": name, **options, **({"cell": next(cells)} if name in turned else {})}
        for name, variants in kinds.items()
        for options in variants
    ]


_GIVEN = ("initial", "input", "both")
_EVENED = {"kind": "lstm", "norm": True, "zoneout": 0.2}
_STARTS = ("last", "transform", "pool", "zero")


def _in_turn(names: Any) -> Iterator[Any]:
    names = list(names)
    while True:
        yield from names


def encoder(choice: Choice) -> Maker:
    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Reading:
        tiny = small(ENCODERS, choice, dim=8)
        module = make_module(lambda: build(ENCODERS, tiny, input_dim=5), seed, dtype, device)

        def read(x: Tensor, lengths: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
            encoded = module(x, lengths)
            return [encoded.states, *encoded.layers], [encoded.summary, *tensors(encoded.final)]

        return Reading(module, read, *rows(5, dtype, device))

    return make


MEMORY_DIM, FINAL_DIMS = 8, ((8, 8),)


def make_decoder(choice: Choice, seed: int, dtype: torch.dtype, device: str) -> nn.Module:
    tiny = small(DECODERS, choice, dim=8)
    sizes = {"input_dim": 5, "memory_dim": MEMORY_DIM, "final_dims": FINAL_DIMS}
    return make_module(lambda: build(DECODERS, tiny, **sizes), seed, dtype, device)


def encoded_of(states: Tensor, lengths: Tensor | None, row: int = 0) -> Encoded:
    """As an encoder might say it; summary and final states depend on real places alone."""
    extra = drawn(SENTENCES, 3, MEMORY_DIM, seed=4).to(states)[row : row + states.size(0)]
    return Encoded(states=states, lengths=lengths, summary=extra[:, 0], final=((extra[:, 1], extra[:, 2]),))


def decoder(choice: Choice) -> Maker:
    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Stepping:
        module = make_decoder(choice, seed, dtype, device)
        states, lengths = rows(MEMORY_DIM, dtype, device)

        def begin(width: int, room: int | None) -> State:
            return module.begin(encoded_of(states, lengths), width, room)

        return Stepping(module, begin, module, lambda r, t: drawn(r, t, 5).to(device, dtype))

    return make


def decoder_reads(choice: Choice) -> Maker:
    """A decoder as a reader of the encoder's states."""

    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Reading:
        module = make_decoder(choice, seed, dtype, device)
        written = drawn(SENTENCES, 3, 5).to(device, dtype)

        def read(x: Tensor, lengths: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
            row = 0 if x.size(0) == SENTENCES else LENGTHS.index(x.size(1))
            tokens = written[row : row + x.size(0)]
            # The states must matter, also to a decoder that is given the summary alone.
            vector = encoded_of(x, lengths, row)
            total = vector.summary + x[:, 0]
            encoded = Encoded(states=x, lengths=lengths, summary=total, final=((total, vector.final[0][1]),))
            return [], [module(tokens, module.begin(encoded))[0]]

        return Reading(module, read, *rows(MEMORY_DIM, dtype, device))

    return make


def tiny_model(encoder: Choice, decoder: Choice, **options: Any) -> Seq2Seq:
    """A Seq2Seq whose widths fit each other, whatever the two are."""
    told = complete(ENCODERS, encoder)
    two = told.get("directions") == 2
    read = small(ENCODERS, encoder, dim=4 if two else 8)
    written = small(DECODERS, decoder, dim=8)
    return Seq2Seq(VOCABULARY, VOCABULARY, read, written, **{"embedding": 6, "dropout": 0.0, **options})


def source_rows(device: str = "cpu") -> Padded:
    generator = torch.Generator().manual_seed(2)
    return pad([torch.randint(3, VOCABULARY, (n,), generator=generator).tolist() for n in LENGTHS]).to(device)


def model(encoder: Choice, decoder: Choice) -> Maker:
    """A whole model, stepping from tokens to logits."""

    def make(seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Stepping:
        module = make_module(lambda: tiny_model(encoder, decoder), seed, dtype, device)
        source = source_rows(device)

        def draw(r: int, t: int) -> Tensor:
            return torch.randint(VOCABULARY, (r, t), generator=torch.Generator().manual_seed(8)).to(device)

        return Stepping(module, lambda width, room: module.start(source, width=width, room=room), module.step, draw)

    return make
