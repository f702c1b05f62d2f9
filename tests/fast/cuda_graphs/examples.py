"""Calls by which recorded and compiled passes are compared with the plain ones."""

from __future__ import annotations

from typing import Any

import torch

from seqloom.data.batches.collate import Batch, pad
from seqloom.data.tokenizers.tokenizers import BOS, EOS
from seqloom.training.forward_backward import ForwardBackward
from seqloom.training.objectives.teacher_forcing import TeacherForcing
from seqloom.training.settings import Training
from tests.fast.triton_common import DEVICE
from tests.fast.twin_law import Call, call
from tests.laws import shake, tiny_model

BATCH = Batch.of(pad([[4, 5, EOS], [6, EOS]]), pad([[BOS, 4, EOS], [BOS, 7, 8, EOS]]))


def training() -> Call:
    def same(found: ForwardBackward, wanted: ForwardBackward) -> None:
        results = []
        for passes in (found, wanted):
            for _ in range(4):  # of which the last are recorded on a GPU
                passes.clear_gradients()
                loss = passes(BATCH)
            results.append([loss.total, *(p.grad for p in passes.objective.parameters())])
        torch.testing.assert_close(*results, rtol=1e-3, atol=1e-4)

    torch.manual_seed(3)
    model: Any = shake(tiny_model("transformer", "transformer"), 1)
    return call(TeacherForcing(model.to(DEVICE)), Training.of({"max_steps": 4}), torch.device(DEVICE), same=same)


EXAMPLES = {"seqloom.training.forward_backward.make_forward_backward": [training]}
