"""The kinds of parts that have laws, in the order in which a class is recognized."""

from __future__ import annotations

from seqloom.laws.case import Kind
from seqloom.laws.cells import CELL
from seqloom.laws.mixers import MIXER
from seqloom.laws.norms import NORM
from seqloom.laws.scores import SCORE

KINDS: dict[str, Kind] = {kind.name: kind for kind in (CELL, MIXER, SCORE, NORM)}
