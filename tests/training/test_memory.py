"""Freed memory stays with a process that trains on a CPU."""

import subprocess
import sys

import pytest

LOOK = """
import resource, sys
from seqloom.training.memory import keep_freed
if "keep" in sys.argv:
    assert keep_freed()
import torch
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        x = torch.ones(3_000_000)
        y = x + x
        del x, y
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_large_blocks_are_not_cleared_again_and_again():
    asked = subprocess.run([sys.executable, "-c", LOOK, "keep"], capture_output=True, text=True, check=True)
    assert int(asked.stdout) < 100  # 24 MB have 6,000 pages
