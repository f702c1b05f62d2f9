"""Weights of a Transformer under our names and under those of Hugging Face's encoder-decoders.

Four of their families are one architecture with three switches, each a keyword of ours: where the norms stand, whether
embeddings are normed on entering, and where positions come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqloom.errors import SeqloomError

Tensors = dict[str, Tensor]
ATTENTION = {"kind": "attention"}  # the mixer of runs from before there was a choice
SIDES = ("encoder", "decoder")
OFFSET = 2  # rows before the first place in the tables of BART and mBART


@dataclass(frozen=True)
class Family:
    """What all models of one model_type have in common."""

    architecture: str
    norm: str
    enter_norm: bool
    learned: bool  # positions are trained, in a table with OFFSET; else all sines, then all cosines


FAMILIES = {
    "marian": Family("MarianMTModel", "after", False, False),
    "pegasus": Family("PegasusForConditionalGeneration", "before", False, False),
    "bart": Family("BartForConditionalGeneration", "after", True, True),
    "mbart": Family("MBartForConditionalGeneration", "before", True, True),
}

# Ours is one matrix where several of theirs stand: they lie one below the other.
BLOCK = {
    "mix.project": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mix.out": ("self_attn.out_proj",),
    "mix_around.norm": ("self_attn_layer_norm",),
    "feed.up": ("fc1",),
    "feed.down": ("fc2",),
    "feed_around.norm": ("final_layer_norm",),
}
CROSS = {
    "cross.query": ("encoder_attn.q_proj",),
    "cross.project": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross.out": ("encoder_attn.out_proj",),
    "cross_around.norm": ("encoder_attn_layer_norm",),
}


# What no Transformer of theirs has a word for, and how it has to be.
REQUIRED = {"key_heads": 0, "projections": "qkv", "normalizer": "softmax"}


def unsupported_setting(model: Mapping[str, Any]) -> str | None:
    """The first setting of a complete config that only ours has, as `encoder.mixer.key_heads=1`."""
    if model["views"] != "last":
        return f"views={model['views']}"
    for side in SIDES:
        if model[side].get("global_tokens"):
            return f"{side}.global_tokens={model[side]['global_tokens']}"
        for slot, (name, usual) in product(("mixer", "cross"), REQUIRED.items()):
            value = model[side].get(slot, {}).get(name, usual)
            if value != usual and not (name == "key_heads" and value == model[side]["heads"]):
                return f"{side}.{slot}.{name}={value}"
    return None


def name_map(family: Family, layers: tuple[int, int]) -> dict[str, tuple[str, ...]]:
    """Ours -> theirs, for everything but embeddings, positions and output; `layers` of encoder and decoder."""
    parts: dict[str, tuple[str, ...]] = {}
    for side, count in zip(SIDES, layers, strict=True):
        for number in range(count):
            for mine, others in (BLOCK | CROSS if side == "decoder" else BLOCK).items():
                there = tuple(f"model.{side}.layers.{number}.{other}" for other in others)
                parts[f"{side}.blocks.{number}.{mine}"] = there
        if family.norm == "before":
            parts[f"{side}.norm"] = (f"model.{side}.layer_norm",)
        if family.enter_norm:
            parts[f"{side}.enter.norm"] = (f"model.{side}.layernorm_embedding",)
    return {
        f"{mine}.{kind}": tuple(f"{other}.{kind}" for other in others)
        for mine, others in parts.items()
        for kind in ("weight", "bias")
    }


class UnusedTensors:
    """Their tensors, each handed out once by name and shape; what is missing, odd or left over is named."""

    def __init__(self, tensors: Tensors, where: Path) -> None:
        self.left, self.where = dict(tensors), where

    def take(self, name: str, *shape: int) -> Tensor:
        if name not in self.left:
            raise SeqloomError(f"{self.where}: the tensor {name} is missing")
        found = self.left.pop(name)
        if tuple(found.shape) != shape:
            raise SeqloomError(f"{self.where}: the tensor {name} is {tuple(found.shape)}, config.json asks for {shape}")
        return found.float()

    def one_of(self, aliases: tuple[str, ...], *shape: int) -> Tensor:
        """A matrix that is stored under one of several names, or under more of them if it is the same each time."""
        present = [name for name in aliases if name in self.left]
        first = self.take(present[0] if present else aliases[0], *shape)
        for name in present[1:]:
            if not torch.equal(self.take(name, *shape), first):
                raise SeqloomError(f"{self.where}: {present[0]} and {name} differ, config.json says they are one")
        return first

    def done(self) -> None:
        if self.left:
            raise SeqloomError(f"{self.where}: the tensor {sorted(self.left)[0]} has no place in this model_type")


def from_hf(taken: UnusedTensors, table: dict[str, tuple[str, ...]], shapes: dict[str, tuple[int, ...]]) -> Tensors:
    """Ours from theirs; `shapes` are those of our model."""
    found = {}
    for mine, others in table.items():
        rows, *rest = shapes[mine]
        found[mine] = torch.cat([taken.take(other, rows // len(others), *rest) for other in others])
    return found


def to_hf(tensors: Tensors, table: dict[str, tuple[str, ...]]) -> Tensors:
    """Theirs from ours: the inverse of `from_hf`."""
    pieces = {mine: zip(others, tensors[mine].chunk(len(others)), strict=True) for mine, others in table.items()}
    return {other: piece.clone() for part in pieces.values() for other, piece in part}


def deinterleaved(tensors: Tensors) -> Tensors:
    """The same function with every vector of width dim in another order: even features first, then the odd ones.

    Sinusoids that were interleaved are in halves then. Attention, feed-forward networks and norms do not care in which
    order features come, if whatever reads (columns) and whatever writes (rows, biases, norms) agree about it.
    """
    reads, writes = ("project", "query", "up", "source", "target", "output"), ("out", "down", "norm")
    found = {}
    for name, tensor in tensors.items():
        *_, part, kind = name.split(".")
        axis = 0 if part in writes else 1 if part in reads and kind == "weight" else None
        if axis is not None:
            order = torch.arange(tensor.size(axis))
            tensor = tensor.index_select(axis, torch.cat([order[0::2], order[1::2]]))
        found[name] = tensor
    return found
