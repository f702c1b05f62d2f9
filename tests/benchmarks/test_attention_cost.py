"""What attention costs, measured on toys; exponents of costs that are known."""

from __future__ import annotations

import pytest
import torch
from attention_cost import FLEX, FUSED, Cost, costs, entries, exponent, read, told

from seqloom.parts.attention.multi_head import MultiHeadAttention
from seqloom.parts.mixers.efficient_attention import EfficientAttention
from seqloom.parts.mixers.mixer_table import MIXERS

CPU = {"device": "cpu", "dtype": torch.float32}


def test_every_mixer_that_attends_is_measured():
    found = dict(costs([], [16, 32], 1, CPU, 1))
    attends = {kind for kind, make in MIXERS.items() if issubclass(make, MultiHeadAttention | EfficientAttention)}
    assert {kind for _, kind, _ in entries([], gpu=False)} == attends | {FUSED}
    assert {kind for _, kind, _ in entries([], gpu=True)} == attends | {FUSED, FLEX}
    assert all(set(of) == {16, 32} and all(cost.time > 0 for cost in of.values()) for of in found.values())
    text = "\n".join(told(found, [16, 32]))
    assert all(f"| {label} | " in text for label in found)
    assert {label: list(of) for label, of in read(text).items()} == {label: list(of) for label, of in found.items()}


def test_tables_are_read_back():
    found = {"window, writes": {512: Cost(0.0011, 0.0022, 1234.0), 1024: Cost(0.002, 0.004, 2500.0)}}
    text = "\n".join(["# Any title", "", *told(found, [512, 1024, 2048])])
    assert read(text) == {"window, writes": {n: pytest.approx(cost) for n, cost in found["window, writes"].items()}}


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_exponents(power):
    grown = {n: Cost((n / 1000) ** power, 0.0, 1.0) for n in (512, 4096, 8192, 16384)}
    assert exponent(grown, lambda cost: cost.time) == pytest.approx(power)


def test_only_some():
    assert [label for label, _, _ in entries(["linear"], gpu=True)] == ["linear, writes", "linear, reads"]
