"""Kernels are off until they are known to run."""

import pytest
import torch

from seqloom.parts import kernels
from tests.parts.kernels import DEVICE


@pytest.fixture
def off(monkeypatch):
    monkeypatch.setattr(kernels, "READY", False)
    monkeypatch.setattr(kernels, "SUMS", False)


def test_a_cpu_has_none(off):
    kernels.prepare(torch.device("cpu"))
    assert not kernels.READY
    assert not kernels.usable(torch.zeros(1))


def test_without_triton_all_is_as_it_was(off, monkeypatch, recwarn):
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    kernels.prepare(torch.device("cuda"))
    assert not kernels.READY
    assert not recwarn


def test_where_triton_cannot_compile_one_line_says_so(off, monkeypatch):
    def fail():
        raise RuntimeError("Failed to find C compiler.\nPlease specify one")

    monkeypatch.setattr(kernels, "find_spec", lambda name: True)
    monkeypatch.setattr(kernels, "_compile", fail)
    with pytest.warns(UserWarning, match="steps are slower than they could be: .*: Failed to find C compiler.$"):
        kernels.prepare(torch.device("cuda"))
    assert not kernels.READY


@pytest.mark.skipif(DEVICE == "cpu", reason="needs CUDA")
def test_a_gpu_has_them(off):
    kernels.prepare(torch.device("cuda"))
    assert (torch.cuda.get_device_capability() >= (8, 0)) == kernels.READY
    assert kernels.usable(torch.zeros(1, device="cuda")) == kernels.READY
    assert not kernels.INTERPRETED
