"""The modules that register twins; `seqloom.acceleration` imports them at the first call of an accelerated function."""

from __future__ import annotations

from importlib import import_module

from seqloom.acceleration import TWINS

# Of several twins of one function, those that stand first here are asked first.
MODULES = (
    "attention.multi_head_gpu",
    "attention.rotary",
    "attention.softmax",
    "attention.mixers.dense",  # before the others: short rows
    "attention.mixers.window_cpu",
    "attention.mixers.window_gpu",
    "attention.mixers.window_chunks",
    "attention.mixers.blocks",
    "attention.mixers.groups",
    "attention.mixers.linear_cpu",
    "attention.mixers.reformer_cpu",
    "cuda_graphs.decoding_graphs",
    "decoding.search",
    "decoding.token_table",
    "decoding.transformer",
    "linear.cpu",
    "recurrent.lstm_gpu",
    "recurrent.history_gpu",
    "recurrent.history_blocks",
    "recurrent.all_steps",
    "recurrent.cell_steps",
    "recurrent.attentive_decoder",
    "cuda_graphs.training_passes",
    "feedforward.gpu",
    "feedforward.relu",
    "loss.chunked",
    "loss.crf",
    "residual_norm.batch_norm",
    "residual_norm.gpu_blocks",
    "residual_norm.reversible",
    "residual_norm.dropout_cpu",
)

for module in MODULES:
    import_module(f"seqloom.fast.{module}")
RANK = {f"seqloom.fast.{module}": rank for rank, module in enumerate(MODULES)}
for twins in TWINS.values():  # a module may have been imported earlier, by itself
    twins.sort(key=lambda twin: RANK.get(twin.fast.__module__, len(RANK)))
