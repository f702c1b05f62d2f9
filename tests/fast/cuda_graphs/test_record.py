"""Recording without a GPU: torch.cuda.graph is replaced."""

from __future__ import annotations

import gc
from contextlib import contextmanager, suppress

import pytest
import torch

from seqloom.fast.cuda_graphs.record import recording


@pytest.mark.parametrize("was", [True, False])
@pytest.mark.parametrize("breaks", [True, False])
def test_no_garbage_is_collected_while_it_records(was, breaks, monkeypatch):
    heard = []

    @contextmanager
    def graph(*given, **ways):
        heard.append((given, ways))
        yield

    monkeypatch.setattr(torch.cuda, "graph", graph)
    (gc.enable if was else gc.disable)()
    try:
        with suppress(RuntimeError), recording("one", "pool", "stream"):
            assert not gc.isenabled()
            if breaks:
                raise RuntimeError("broken off")
        assert gc.isenabled() == was, "as it was found"
    finally:
        gc.enable()
    assert heard == [(("one", "pool", "stream"), {"capture_error_mode": "thread_local"})]
