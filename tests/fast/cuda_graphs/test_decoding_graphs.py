"""Which requests CUDA graphs support; on a GPU, recorded steps equal plain ones."""

import gc
import random
import threading
import weakref

import pytest
import torch

from seqloom.acceleration import plain
from seqloom.decoding.search import decode, release
from seqloom.decoding.search_options import Search
from seqloom.fast.cuda_graphs import decoding_graphs
from seqloom.fast.cuda_graphs.decoding_graphs import GRAPHS, DecodingGraphs, shape_of, using, visible_steps_at
from seqloom.fast.cuda_graphs.fixed_shape_decoder import matmul_attention
from seqloom.parts.probe import watch
from tests.fast.cuda_graphs.test_fixed_shape_search import SEARCHES, by_graphs, model_of, same, sources
from tests.laws import shake, tiny_model

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="records on a GPU only")


def test_few_shapes():
    found = {shape_of(1, 4, steps, source) for steps in range(1, 257) for source in range(1, 257)}
    assert len(found) < 100
    for steps in range(1, 700):
        shape = shape_of(steps, 2, steps, steps)
        assert shape.max_steps >= steps
        assert shape.source >= steps
        assert shape.sentences >= steps
        assert shape.max_steps % 16 == shape.source % 16 == 0
        visible = [visible_steps_at(t, shape.max_steps) for t in range(steps)]
        assert all(t < span <= max(32, 2 * t) for t, span in enumerate(visible))


@torch.inference_mode()
def test_unsupported_requests(monkeypatch):
    model, source = model_of(0), sources(random.Random(1), 2)
    ask = (source, [5, 6], Search(beam=2))
    assert DecodingGraphs()(model, *ask) is None  # no GPU
    any_device = DecodingGraphs(any_device=True)
    assert any_device(model, *ask) is not None
    assert any_device(model, *ask[:2], Search(sample=True)) is None
    assert any_device(tiny_model("lstm", "attentive").eval(), *ask) is None
    with watch(model):
        assert any_device(model, *ask) is None
    with any_device.lock:  # another request is being served
        assert any_device(model, *ask) is None
    assert any_device(model, *ask) is not None
    monkeypatch.setattr(decoding_graphs, "MAX_BYTES", 1000)
    assert DecodingGraphs(any_device=True)(model, *ask) is None


@torch.inference_mode()
def test_shapes_used_last_are_kept(monkeypatch):
    monkeypatch.setattr(decoding_graphs, "MAX_SHAPES", 2)
    model, graphs, draw = model_of(0), DecodingGraphs(any_device=True), random.Random(1)
    for count in (1, 2, 1, 3):
        graphs(model, sources(draw, count), [4] * count, Search())
    assert [key[0].sentences for key in graphs.shapes] == [1, 3]
    graphs.clear()
    assert not graphs.shapes


def test_weights_may_change_and_move():
    """New values are used; new addresses need new graphs."""
    model, source, graphs = model_of(0), sources(random.Random(1), 3), DecodingGraphs(any_device=True)
    search, limits = Search(beam=3), [9, 4, 12]
    by_graphs(graphs, model, source, limits, search)
    (shape_graphs,) = graphs.shapes.values()
    shake(model, 9)
    same(by_graphs(graphs, model, source, limits, search), by_graphs(None, model, source, limits, search))
    assert list(graphs.shapes.values()) == [shape_graphs]
    model.float()
    same(by_graphs(graphs, model, source, limits, search), by_graphs(None, model, source, limits, search))
    assert list(graphs.shapes.values()) != [shape_graphs]


def test_threads_do_not_interfere():
    model, graphs = model_of(0), DecodingGraphs(any_device=True)
    asked = [sources(random.Random(seed), 4) for seed in range(4)]
    wanted, found = [by_graphs(None, model, source, [9] * 4, Search(beam=2)) for source in asked], {}

    def serve(number):
        found[number] = [decode(model, asked[number], [9] * 4, Search(beam=2)) for _ in range(5)]

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(4)]
    with using(graphs, model):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for number, answers in found.items():
        for answer in answers:
            same(answer, wanted[number])


def test_graphs_are_released_and_leave_with_their_model():
    model, graphs = model_of(0), DecodingGraphs(any_device=True)
    kept = weakref.ref(model)
    GRAPHS[model] = graphs
    decode(model, sources(random.Random(1), 3), [9, 4, 12], Search(beam=2))
    assert graphs.shapes
    release(model)
    assert not graphs.shapes
    with plain():
        decode(model, sources(random.Random(1), 3), [9, 4, 12], Search(beam=2))
        assert not graphs.shapes
    with watch(model):
        decode(model, sources(random.Random(1), 3), [9, 4, 12], Search())
        assert not graphs.shapes
    decode(model, sources(random.Random(1), 3), [9, 4, 12], Search())
    assert graphs.shapes
    del model
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("attend", [None, matmul_attention])
@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "sinusoidal-rotary", "none"])
@pytest.mark.parametrize("encoder", ["transformer", "lstm"])
def test_recorded_steps_are_plain_steps(encoder, position, attend):
    """On a GPU recorded; elsewhere the same steps in the same shapes, one by one."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = shake(tiny_model(encoder, {"kind": "transformer", "position": position}).double(), 2).to(device)
    with torch.no_grad():
        model.output.weight.mul_(3.0)  # surer: without positions, the order of tokens hardly counts, and many tie
    graphs, draw = DecodingGraphs(attend=attend, any_device=device == "cpu"), random.Random(0)
    for search in SEARCHES:
        for count in (1, 5, 5) if device == "cuda" else (3,):
            source, limits = sources(draw, count).to(device), [draw.randint(1, 45) for _ in range(count)]
            wanted = by_graphs(None, model, source, limits, search)
            same(by_graphs(graphs, model, source, limits, search), wanted)
    if device == "cuda":
        recorded = set().union(*(set(shape_graphs.graphs) for shape_graphs in graphs.shapes.values()))
        assert {32} <= recorded
        assert ("begin" in recorded) == (encoder == "transformer")


@GPU
def test_recorded_steps_see_new_weights():
    model, source, graphs = model_of(0).cuda(), sources(random.Random(1), 3).to("cuda"), DecodingGraphs()
    for seed in range(4):
        shake(model, seed)
        for search in (Search(), Search(beam=3)):
            same(
                by_graphs(graphs, model, source, [9, 4, 12], search),
                by_graphs(None, model, source, [9, 4, 12], search),
            )
    assert all(shape_graphs.graphs for shape_graphs in graphs.shapes.values())


@GPU
def test_what_cannot_be_recorded_runs_plainly():
    model, source = model_of(0).cuda(), sources(random.Random(1), 3).to("cuda")

    def refusing(step):
        def run(span):
            if torch.cuda.is_current_stream_capturing():
                raise RuntimeError("not this one")
            step(span)

        return run

    with pytest.warns(UserWarning, match="not recorded, which costs speed: not this one"):
        found = by_graphs(DecodingGraphs(wrap_step=refusing), model, source, [9, 4, 12], Search())
    same(found, by_graphs(None, model, source, [9, 4, 12], Search()))
