"""Kernels are off until they are known to run."""

import pytest
import torch

from seqloom.fast.triton_common import runtime
from tests.fast.triton_common import DEVICE


@pytest.fixture
def off(monkeypatch):
    monkeypatch.setattr(runtime, "READY", False)
    monkeypatch.setattr(runtime, "MIXED_ADDMM", False)


def test_a_cpu_has_none(off):
    runtime.prepare(torch.device("cpu"))
    assert not runtime.READY
    assert not runtime.usable(torch.zeros(1))


def test_without_triton_nothing_changes(off, monkeypatch, recwarn):
    monkeypatch.setattr(runtime, "find_spec", lambda name: None)
    runtime.prepare(torch.device("cuda"))
    assert not runtime.READY
    assert not recwarn


def test_a_compiler_error_is_one_warning(off, monkeypatch):
    def fail():
        raise RuntimeError("Failed to find C compiler.\nPlease specify one")

    monkeypatch.setattr(runtime, "find_spec", lambda name: True)
    monkeypatch.setattr(runtime, "_compile_driver", fail)
    with pytest.warns(UserWarning, match="steps are slower than they could be: .*: Failed to find C compiler.$"):
        runtime.prepare(torch.device("cuda"))
    assert not runtime.READY


@pytest.mark.skipif(DEVICE == "cpu", reason="needs CUDA")
def test_a_gpu_has_them(off):
    runtime.prepare(torch.device("cuda"))
    assert (torch.cuda.get_device_capability() >= (8, 0)) == runtime.READY
    assert runtime.usable(torch.zeros(1, device="cuda")) == runtime.READY
    assert not runtime.INTERPRETED
