"""Looking inside a model: what it attends to, its gates and gradients, how far back it remembers, what it costs."""

from seqloom.looking.attention import AttentionMap, attention_maps
from seqloom.looking.cost import cost
from seqloom.looking.gates import Gates, gates, looked_back
from seqloom.looking.gradients import gradient_norms
from seqloom.looking.importance import importance
from seqloom.looking.reach import reach, said_by

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
