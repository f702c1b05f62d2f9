"""The table of positions, from which settings choose by name."""

from __future__ import annotations

from seqloom.parts.positions.absolute import Learned, Sinusoidal
from seqloom.parts.positions.floater import Floater
from seqloom.parts.positions.position import NoPosition
from seqloom.parts.positions.relative import Alibi, Relative
from seqloom.parts.positions.rotary import Rotary, SinusoidalRotary

POSITIONS = {
    "none": NoPosition,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rotary": Rotary,
    "sinusoidal-rotary": SinusoidalRotary,
    "relative": Relative,
    "alibi": Alibi,
    "floater": Floater,
}
