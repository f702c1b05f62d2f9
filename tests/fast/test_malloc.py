"""Freed memory stays with a process that trains on a CPU. How often pages are cleared anew is up to the machine."""

import platform
import subprocess
import sys
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from seqloom.acceleration import plain
from seqloom.training.forward_backward import make_forward_backward
from seqloom.training.settings import Training

ASK = "from seqloom.fast.malloc import retain_freed_memory; print(retain_freed_memory())"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc")
def test_the_c_library_takes_the_three_limits():
    """In a process of its own: what it is told it cannot be told to forget."""
    told = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "True"


def test_elsewhere_nothing_is_asked(monkeypatch):
    from seqloom.fast import malloc

    monkeypatch.setattr(sys, "platform", "darwin")
    assert malloc.retain_freed_memory() is False


def test_training_on_a_cpu_asks(monkeypatch):
    from seqloom.fast.cuda_graphs import training_passes

    asked = []
    monkeypatch.setattr(training_passes, "retain_freed_memory", lambda: asked.append(1))
    for switch, count in ((nullcontext, 1), (plain, 1)):
        with switch():
            make_forward_backward(nn.Linear(1, 1), Training(), torch.device("cpu"))
        assert len(asked) == count
