"""The modules that register twins; `seqloom.acceleration` imports them at the first call of an accelerated function."""

from __future__ import annotations

from importlib import import_module

MODULES = (
    "attention.softmax",
    "cuda_graphs.decoding_graphs",
    "decoding.search",
    "decoding.token_table",
    "decoding.transformer",
    "linear.cpu",
)

for module in MODULES:
    import_module(f"seqloom.fast.{module}")
