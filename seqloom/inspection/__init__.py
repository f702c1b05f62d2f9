"""Looking inside a model: what it attends to, its gates and gradients, how far back it remembers, what it costs."""

from seqloom.inspection.attention_maps import AttentionMap, attention_maps
from seqloom.inspection.column_importance import importance
from seqloom.inspection.cost import cost
from seqloom.inspection.gates import Gates, gates, looked_back
from seqloom.inspection.gradients import gradient_norms
from seqloom.inspection.memory_reach import reach, said_by

# Some functions have the name of the file that they stand in: these imports, all at once, leave the functions here.
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
    "looked_back",
    "reach",
    "said_by",
]
