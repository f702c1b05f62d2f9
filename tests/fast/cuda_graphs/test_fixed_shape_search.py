"""Searches with fixed shapes find what the plain ones find."""

import random

import pytest
import torch

from seqloom.data.batches.collate import pad
from seqloom.data.tokenizers.tokenizers import EOS
from seqloom.decoding.search import decode
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError
from seqloom.fast.cuda_graphs import fixed_shape_search as fixed_search
from seqloom.fast.cuda_graphs.decoding_graphs import DecodingGraphs, using
from seqloom.fast.cuda_graphs.fixed_shape_decoder import FixedShapeDecoder, Shape
from seqloom.fast.cuda_graphs.fixed_shape_search import FixedShapeBeam
from tests.laws import VOCABULARY, shake, tiny_model

SEARCHES = [
    Search(),
    Search(first=5),
    Search(close=True, never=(4, 6)),
    Search(beam=2),
    Search(beam=2, alpha=0.0, n_best=2),
    Search(beam=4, alpha=0.6, n_best=3),
    Search(beam=3, alpha=2.0, n_best=3, first=5, close=True, never=(6,)),
    Search(beam=7, n_best=7, close=True),
    Search(beam=16, n_best=5),
]


def model_of(seed, sure=3.0, ending=0.5):
    torch.manual_seed(seed)
    model = shake(tiny_model("transformer", {"kind": "transformer", "layers": 1}).double(), seed)
    with torch.no_grad():
        model.output.weight.mul_(sure)
        model.output.bias[EOS] += ending
    return model


def sources(draw, count):
    return pad([[draw.randrange(3, VOCABULARY) for _ in range(draw.randint(1, 20))] for _ in range(count)])


def same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        assert [answer.tokens for answer in one] == [answer.tokens for answer in other]
        for part in ("score", "log_probability"):
            values = [[getattr(answer, part) for answer in answers] for answers in (one, other)]
            assert values[0] == pytest.approx(values[1], abs=1e-5)


def by_graphs(graphs, model, *request):
    with using(graphs, model):
        return decode(model, *request)


@pytest.mark.parametrize("chunk", [2, 128])
@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_fixed_shapes_find_the_same(search, chunk, monkeypatch):
    """For any number of sentences with any limits; earlier requests leave no traces."""
    monkeypatch.setattr(fixed_search, "CHUNK", chunk)
    lengths = set()
    for seed in range(3):
        model, draw, graphs = model_of(seed), random.Random(seed), DecodingGraphs(any_device=True)
        for count in (1, 3, 17, 3):
            source, limits = sources(draw, count), [draw.randint(1, 45) for _ in range(count)]
            wanted = by_graphs(None, model, source, limits, search)
            same(by_graphs(graphs, model, source, limits, search), wanted)
            lengths |= {len(answer.tokens) for answers in wanted for answer in answers}
        assert graphs.shapes
    assert len(lengths) > 8


def test_the_host_stops_soon_after_the_last_has_ended(monkeypatch):
    steps, step = [], FixedShapeBeam.step
    monkeypatch.setattr(FixedShapeBeam, "step", lambda self, visible: steps.append(visible) or step(self, visible))
    model, graphs = model_of(0, ending=50.0), DecodingGraphs(any_device=True)
    found = by_graphs(graphs, model, sources(random.Random(0), 3), [90] * 3, Search(beam=2))
    assert [answers[0].tokens for answers in found] == [()] * 3
    assert len(steps) <= 6
    steps.clear()
    model = model_of(0, ending=-50.0)
    by_graphs(graphs, model, sources(random.Random(0), 3), [70, 5, 90], Search(beam=2))
    assert steps == [32] * 32 + [64] * 32 + [96] * 26


def test_top_codes_are_a_top_k(monkeypatch):
    monkeypatch.setattr(fixed_search, "CHUNK", 4)
    beam = FixedShapeBeam(FixedShapeDecoder(model_of(0), Shape(2, 3, 32, 16)), False, False)
    beam.size, beam.candidates = 400, 6
    beam.rows = torch.arange(6)[:, None] * 400
    beam.chunk = (beam.rows + torch.arange(4))[:, None]
    logits = torch.randn(6, 400, generator=torch.Generator().manual_seed(1))
    value, code = beam.top_codes(logits)
    wanted, token = logits.topk(6)
    assert torch.equal(value, wanted)
    assert torch.equal(code, token + beam.rows)


@pytest.mark.parametrize("beam", [1, 2])
def test_scores_that_are_not_finite(beam):
    model = model_of(0)
    with torch.no_grad():
        model.output.bias[5] = float("nan")
    source, graphs = sources(random.Random(0), 2), DecodingGraphs(any_device=True)
    if beam == 1:
        same_length = by_graphs(graphs, model, source, [3, 2], Search())
        assert [len(one.tokens) for (one,) in same_length] == [3, 2]
    else:
        with pytest.raises(SeqloomError, match="not finite"):
            by_graphs(graphs, model, source, [3, 2], Search(beam=beam))
    # A repaired model is not disturbed by NaN from earlier requests.
    with torch.no_grad():
        model.output.bias[5] = 0.0
    wanted = by_graphs(None, model, source, [3, 2], Search(beam=beam))
    same(by_graphs(graphs, model, source, [3, 2], Search(beam=beam)), wanted)
