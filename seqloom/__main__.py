"""`python -m seqloom`, and so `torchrun -m seqloom`."""

from __future__ import annotations

from seqloom.cli.main import run

if __name__ == "__main__":
    run()
