"""The modules that register twins; `seqloom.acceleration` imports them at the first call of an accelerated function."""

from __future__ import annotations

from importlib import import_module

MODULES = (
    "attention.softmax",
    "cuda_graphs.training_passes",
    "feedforward.gpu",
    "feedforward.relu",
    "linear.cpu",
    "loss.chunked",
    "loss.crf",
    "residual_norm.batch_norm",
    "residual_norm.gpu_blocks",
    "residual_norm.reversible",
    "residual_norm.dropout_cpu",
)

for module in MODULES:
    import_module(f"seqloom.fast.{module}")
