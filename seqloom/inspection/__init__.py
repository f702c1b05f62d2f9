"""Looking inside a model: what it attends to, its gates and gradients, how far back it remembers, what it costs."""

from seqloom.inspection.attention_maps import AttentionMap, attention_maps
from seqloom.inspection.column_importance import importance
from seqloom.inspection.cost import cost
from seqloom.inspection.gates import Gates, gates, self_attention_weights
from seqloom.inspection.gradients import gradient_norms
from seqloom.inspection.memory_reach import outputs_of, reach

# Some functions have the name of their file: these imports leave the function, not the module, under that name.
gradients = gradient_norms

__all__ = [
    "AttentionMap",
    "Gates",
    "attention_maps",
    "cost",
    "gates",
    "gradient_norms",
    "gradients",
    "importance",
    "outputs_of",
    "reach",
    "self_attention_weights",
]
