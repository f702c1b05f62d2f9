"""Both ONNX files say what torch says, for every kind of model; a file that does not is not kept."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from seqloom import SeqloomError
from seqloom.build import build, complete
from seqloom.data.batches.collate import pad
from seqloom.decoding.search import decode
from seqloom.decoding.search_options import Search
from seqloom.models.seq2seq import MODELS
from seqloom.runs.config import compose
from seqloom.runs.interop.export_check import CLOSE
from seqloom.runs.interop.onnx_export import differences, max_positions_of, write_onnx
from seqloom.runs.interop.onnx_run import ENCODER, STEP, OnnxModel
from seqloom.training.distributed.sharding import saved_buffers
from tests.laws import heads_of

RECURRENT = {"encoder.dim": 8, "decoder.dim": 16, "embedding": 12}
TRANSFORMER = {f"{side}.{name}": 16 for side in ("encoder", "decoder") for name in ("dim", "hidden")} | {
    "embedding": 16,
    "tie_embeddings": False,  # a random one that is tied writes the same token again and again
    **{f"{side}.{name}": n for side in ("encoder", "decoder") for name, n in (("heads", 2), ("layers", 1))},
}


def sides(**keywords):
    return {f"{side}.{name}": value for side in ("encoder", "decoder") for name, value in keywords.items()}


QUICK = {
    "gru-attention": ("gru-attention", {}),
    "lstm-attention, feeding": ("lstm-attention", {"decoder.input_feeding": True, "encoder.directions": 1}),
    "transformer": ("transformer", {}),
    "transformer, sinusoidal and rotary": ("transformer", sides(position="sinusoidal-rotary")),
}
SLOW = {
    "lstm, two layers": ("lstm", sides(layers=2)),
    "rnn": ("rnn", {}),
    "rnn, relu": ("rnn", sides(cell={"kind": "rnn", "activation": "relu"})),
    "gru, mean": ("gru", {"decoder.context": "pool"}),
    "gru, reset before": ("gru-attention", sides(cell={"kind": "gru", "reset_gate": "before"})),
    "lstm-attention, additive": ("lstm-attention", {"decoder.score": "additive", "decoder.value_dim": 8}),
    "window": ("lstm-attention", {"encoder": {"kind": "window", "dim": 16}}),
    "transformer, after": ("transformer", sides(norm="after", activation="gelu", embedding_norm=True, scale=False)),
    "transformer, rotary": ("transformer", sides(position="rotary")),
    "transformer, learned": ("transformer", sides(position={"kind": "learned", "longest": 24})),
    "transformer, no positions": ("transformer", sides(position="none", score="additive")),
    "transformer, halves": ("transformer", sides(position={"kind": "sinusoidal", "layout": "halves"})),
    "transformer, dense": ("transformer", sides(residual="dense", norm_kind="rms")),
    "transformer, power and batch": ("transformer", {"encoder.norm_kind": "power", "decoder.norm_kind": "batch"}),
    "transformer, power": ("transformer", {"decoder.norm_kind": "power", "decoder.layers": 2}),
    "transformer, reversible": ("transformer", {"encoder.residual": "reversible", "encoder.layers": 2}),
    "convolution": ("lstm-attention", {"encoder": {"kind": "convolution", "dim": 16, "dilation": 2}}),
    "transformer, relative": ("transformer", sides(position="relative", mixer=heads_of(1))),
    "transformer, alibi": ("transformer", sides(position="alibi", score="cosine", layers=2) | {"views": "all"}),
    "transformer, relu": (
        "transformer",
        sides(mixer=heads_of(projections="v", normalizer="relu"), score="gaussian", position="rotary"),
    ),
    "transformer, network": ("transformer", sides(score="network") | {"encoder.globals": 2}),
    "gru read by a transformer": ("transformer", {"encoder": {"kind": "gru", "dim": 8}}),
    "transformer read by a gru": ("gru-attention", {"encoder": {"kind": "transformer", "dim": 8, "heads": 2}}),
}


def made(preset, settings):
    """A random model, whose logits are spread so that searches have something to find."""
    small = TRANSFORMER if preset == "transformer" else RECURRENT
    config = complete(MODELS, compose("translate", preset, "tiny", {}, {}, {**small, **settings})["model"])
    torch.manual_seed(3)
    model = build(MODELS, config, source_size=30, target_size=20).eval()
    with torch.no_grad():
        model.output.weight.mul_(2.0)
        for _, statistic in saved_buffers(model):  # as if it had been trained
            statistic.uniform_(0.5, 1.5)
    return SimpleNamespace(model=model, folder="runs/mine"), max_positions_of(config)


def check(case, folder):
    one, places = made(*case)
    assert write_onnx(one, folder, places, False) <= CLOSE
    sessions = OnnxModel(folder, places)
    with torch.no_grad():
        found = dict(differences(one.model, sessions))
    assert len(found) == 24
    assert max(found.values()) <= CLOSE
    source = pad([[5 + i % 7, *range(4, 4 + i), 2] for i in range(12)])
    limits = [8] * 12
    for search in (Search(), Search(beam=3, n_best=3), Search(sample=True, n_best=2)):
        ours, theirs = (decode(stepper, source, limits, search) for stepper in (one.model, sessions))
        assert [[h.tokens for h in row] for row in ours] == [[h.tokens for h in row] for row in theirs]
    assert len({row[0].tokens for row in ours}) > 3
    return one, sessions


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow if "rotary" in case else ()) for case in QUICK]
)
def test_it_says_what_torch_says(case, tmp_path):
    one, sessions = check(QUICK[case], tmp_path)
    source, tokens = pad([[4, 5, 6, 2], [9, 2]]), torch.tensor([[1, 5, 6], [1, 7, 8]])
    with torch.no_grad():
        assert torch.allclose(one.model(source, tokens), sessions(source, tokens), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW)
def test_so_does_every_other(case, tmp_path):
    check(SLOW[case], tmp_path)


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ("mingru", "mingru"),
        ("lstmn", "lstmn"),
        ({"kind": "lstm", "norm": True}, "lstm"),
        ({"kind": "rnn", "activation": "none"}, "rnn"),
        ({"kind": "gru", "zoneout": 0.1}, "gru"),
    ],
)
def test_a_cell_without_an_operator_is_named(cell, name, tmp_path):
    one, places = made("lstm", sides(cell=cell))
    with pytest.raises(SeqloomError, match=f"ONNX has no operator for the cell {name} as it is here; it has some for"):
        write_onnx(one, tmp_path, places, False)


def test_sinusoids_reach_beyond_their_table_and_learned_positions_say_where_they_end(tmp_path):
    one, _ = made("transformer", {"encoder.position": {"kind": "learned", "longest": 24}})
    write_onnx(one, tmp_path, [24, None], False)
    sessions = OnnxModel(tmp_path, [24, None])
    with pytest.raises(SeqloomError, match="reach 24 tokens of a source, here 25"):
        sessions.start(pad([[5] * 25]))
    state = sessions.start(pad([[5] * 24]))
    grown = tuple(torch.randn(1, 2, 600, 8) for _ in state.rows)  # as if 600 tokens had been written
    logits, after = sessions.step(torch.tensor([[5]]), state._replace(rows=grown))
    assert logits.isfinite().all()
    assert after.rows[0].size(2) == 601


def test_positions_that_flow_are_refused(tmp_path):
    one, places = made("transformer", sides(position="floater"))
    with pytest.raises(SeqloomError, match="position=floater flows from place to place"):
        write_onnx(one, tmp_path, places, False)
    assert not list(tmp_path.iterdir())


def test_int8_is_smaller_and_near(tmp_path):
    one, places = made("lstm-attention", {"encoder.dim": 64, "decoder.dim": 128})
    assert CLOSE < write_onnx(one, tmp_path, places, True) < 0.2
    whole = 4 * sum(parameter.numel() for parameter in one.model.parameters())
    assert sum((tmp_path / name).stat().st_size for name in (ENCODER, STEP)) < 0.8 * whole


def test_what_differs_is_refused(tmp_path, monkeypatch):
    from seqloom.runs.interop import onnx_graph

    one, places = made("gru", {})
    monkeypatch.setattr(onnx_graph, "_operator", lambda cell: ("GRU", {"linear_before_reset": 0}))
    with pytest.raises(
        SeqloomError, match=r"runs/mine: not exported: at \d × \d+ tokens, step \d it would differ"
    ) as e:
        write_onnx(one, tmp_path, places, False)
    assert "\n" not in str(e.value)


def test_other_mixers_are_refused_by_name(tmp_path):
    one, places = made("transformer", {"decoder.mixer": "window"})
    with pytest.raises(SeqloomError, match=r"ONNX would hold attention alone as decoder\.mixer, here Window"):
        write_onnx(one, tmp_path, places, False)


def test_a_file_that_is_no_model(tmp_path):
    for name in (ENCODER, STEP):
        (tmp_path / name).write_bytes(b"nothing")
    with pytest.raises(SeqloomError, match="onnxruntime cannot open it"):
        OnnxModel(tmp_path, [None, None])
