"""The benchmarks are scripts beside one another, no package: they find each other by their folders."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path += [
    str(Path(__file__).parents[2] / "benchmarks" / folder) for folder in ("race", "quality", "mixers", "speed", "gpu")
]
