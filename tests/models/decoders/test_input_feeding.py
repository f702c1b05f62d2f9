"""The loop of input feeding, with one product for both shares of the gates, is the plain one."""

import pytest
import torch

from seqloom.data.batches.collate import Batch, pad
from seqloom.fast.linear import cpu as linear_cpu
from seqloom.models.seq2seq import Seq2Seq
from seqloom.training.objectives.teacher_forcing import TeacherForcing

BATCH = Batch.of(pad([[4, 5, 6], [5, 2], [7, 7, 2]]), pad([[1, 4, 5, 6, 2], [1, 5, 2], [1, 4, 2]]))


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize(
    "decoder", [{"input_feeding": True}, {"query": "previous"}, {}], ids=["feeding", "previous", "luong"]
)
@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("layers", [1, 2])
def test_the_quick_loop_is_the_plain_one(cell, layers, decoder, monkeypatch):
    torch.manual_seed(0)
    decoder = {"kind": "attentive", "cell": cell, "dim": 16, "layers": layers, **decoder}
    model = Seq2Seq(9, 11, {"kind": "lstm", "dim": 8}, decoder, embedding=16, dropout=0.0)
    found = []
    for have in (True, False):
        monkeypatch.setattr(linear_cpu, "_ONEDNN", have)
        total = TeacherForcing(model)(BATCH).total
        total.backward()
        found.append([total.detach(), *(part.grad for part in model.parameters())])
        model.zero_grad()
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
