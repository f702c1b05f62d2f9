"""Which errors are repeated in smaller micro-batches, and which are not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from seqloom.errors import SeqloomError
from seqloom.training.out_of_memory import check_recoverable

ONE, TWO = SimpleNamespace(distributed=False), SimpleNamespace(distributed=True)
FULL = torch.OutOfMemoryError("CUDA out of memory")


def test_a_batch_that_can_still_be_split_is_tried_again():
    check_recoverable(FULL, ONE, 1, 2)
    check_recoverable(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), ONE, 4, 8)


@pytest.mark.parametrize(("error", "micro_batches"), [(FULL, 8), (RuntimeError("shapes do not match"), 1)])
def test_other_errors_and_single_rows_are_not(error, micro_batches):
    with pytest.raises(RuntimeError) as caught:
        check_recoverable(error, ONE, micro_batches, 8)
    assert caught.value is error


def test_with_several_processes_it_says_what_to_do():
    with pytest.raises(SeqloomError, match=r"lower training\.batch_rows"):
        check_recoverable(FULL, TWO, 1, 8)
