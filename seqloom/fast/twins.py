"""The modules that register twins; `seqloom.acceleration` imports them at the first call of an accelerated function."""

from __future__ import annotations

from importlib import import_module

MODULES = (
    "attention.softmax",
    "linear.cpu",
    "recurrent.lstm_gpu",
    "recurrent.history_gpu",
    "recurrent.history_blocks",
    "recurrent.all_steps",
    "recurrent.cell_steps",
    "recurrent.attentive_decoder",
)

for module in MODULES:
    import_module(f"seqloom.fast.{module}")
