"""Models of rows: padding and neighbours change nothing, what is saved comes back, and they learn what they should."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch

from seqloom.build import build, complete
from seqloom.data.batches.collate import Padded
from seqloom.data.batches.table import Fields
from seqloom.data.formats.table import TableOptions
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.prepare.table import prepare_table
from seqloom.models.encoders import ENCODERS
from seqloom.models.table_model import ROW_MODELS
from seqloom.parts.layers.pooling import POOLINGS
from seqloom.tasks.table.presets import ABOUT, PRESETS, SIZES, preset, suited
from seqloom.training.checkpoint import load_weights, read_tensors, save_weights, weights
from seqloom.training.loop import Loop
from seqloom.training.objectives.objective_table import make_objective
from seqloom.training.settings import Training

SIZE = {"value_count": 5, "text_count": 2, "source_size": 20, "label_count": 3}
SMALL = {"embedding": 8, "encoder": {"kind": "gru", "dim": 8}, "hidden": 6}
LENGTHS = ((3, 1, 5), (2, 4, 1))


def make(**options):
    torch.manual_seed(1)
    return build(ROW_MODELS, {"kind": "rows", **SMALL, **options}, **SIZE).double().eval()


def fields(fill: int = 0) -> Fields:
    """Three rows; what stands in padded places is `fill`."""
    torch.manual_seed(2)
    texts = []
    for lengths in LENGTHS:
        tokens = torch.randint(4, 20, (3, max(lengths)))
        for row, length in zip(tokens, lengths, strict=True):
            row[length:] = fill
        texts.append(Padded(tokens, torch.tensor(lengths), lengths))
    return Fields(torch.randn(3, 5, dtype=torch.float64), tuple(texts))


@pytest.mark.parametrize("encoder", sorted(ENCODERS))
@pytest.mark.parametrize("summary", sorted(POOLINGS))
def test_padding_and_neighbours_change_nothing(encoder, summary):
    known = complete(ENCODERS, encoder)
    small = {"dim": 8, "heads": 2, "hidden": 8, "layers": 1}
    sizes = {name: size for name, size in small.items() if name in known}
    model = make(encoder={"kind": encoder, **sizes}, summary=summary)
    whole = model(fields())
    assert whole.shape == (3, 3)
    assert torch.equal(whole, model(fields(fill=7)))
    for row in range(3):
        torch.testing.assert_close(model(fields().part(row, row + 1)), whole[row : row + 1])


def test_what_is_saved_comes_back(tmp_path):
    model = make()
    save_weights(tmp_path / "model.safetensors", weights(model))
    other = make()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    load_weights(other, read_tensors(tmp_path / "model.safetensors"), tmp_path / "model.safetensors")
    assert torch.equal(model(fields()), other(fields()))


def test_of_two_classes_the_first_has_no_weights():
    torch.manual_seed(1)
    model = build(ROW_MODELS, "linear", value_count=5, text_count=0, source_size=4, label_count=2)
    source = Fields(torch.randn(3, 5), ())
    logits = model(source)
    assert (logits[:, 0] == 0).all()
    found, bias = model.weights()
    assert found.shape == (1, 5)
    torch.testing.assert_close(logits[:, 1], source.values @ found[0] + bias[0])
    assert sum(p.numel() for p in model.parameters()) == 6
    assert make(hidden=[4, 4]).weights() is None


def test_without_texts_there_is_no_encoder():
    model = build(ROW_MODELS, "mlp", value_count=5, text_count=0, source_size=4, label_count=1)
    assert not hasattr(model, "encoder")
    assert model(Fields(torch.zeros(2, 5), ())).shape == (2, 1)


@pytest.mark.parametrize("name", sorted(PRESETS))
@pytest.mark.parametrize("size", ["tiny", "small", "base"])
def test_every_preset_builds(name, size):
    config = {"kind": "rows", **preset(name, size)}
    whole = complete(ROW_MODELS, config)
    assert whole == complete(ROW_MODELS, whole)
    model = build(ROW_MODELS, whole, **SIZE)
    assert model(Fields(torch.zeros(3, 5), fields().texts)).shape == (3, 3)
    Training.of({**suited(config), "select": "loss"})
    assert ABOUT.keys() == PRESETS.keys() == SIZES.keys()


def write_rows(path, count, target):
    """A table of all kinds of columns."""
    draw = random.Random(3)
    lines = ["x,y,member,colour,note,target"]
    for _ in range(count):
        x, y, member = draw.uniform(-5, 20), draw.gauss(0, 1), draw.choice(["yes", "no"])
        colour, note = draw.choice(["red", "green", "blue"]), " ".join(draw.choices("abcdefgh", k=4))
        lines.append(f"{x},{y},{member},{colour},{note},{target(x, y, member, colour, note)}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def train(ready, config, **settings):
    torch.manual_seed(5)
    schema = ready.schema
    sizes = {"value_count": len(schema.labels), "text_count": len(schema.texts), "source_size": schema.codec.size}
    model = build(ROW_MODELS, config, **sizes, label_count=schema.prediction.size)
    objective = make_objective(model, Training.of({}), "table", schema.prediction.kind)
    how = {"learning_rate": 2e-2, "warmup": 10, "weight_decay": 0.0, "batch_rows": 32, "select": "loss", **settings}
    for _ in Loop(objective, ready.train, Training.of(how), torch.device("cpu")):
        pass
    model.eval()
    batch = ready.train.batch(np.arange(len(ready.train)))
    with torch.no_grad():
        return model, model(batch.source), batch.target


MLP = {"kind": "mlp", "hidden": 32, "embedding": 16, "encoder": {"kind": "gru", "dim": 16}}


def test_32_rows_of_any_class_are_learned_by_heart(tmp_path):
    draw = random.Random(4)
    file = write_rows(tmp_path / "t.csv", 32, lambda *_: draw.choice(["p", "q", "r"]))
    ready = prepare_table(PrepareRequest([file], 0.0, TableOptions(), seed=1))
    assert [c.kind for c in ready.schema.columns] == ["number", "number", "yes", "category", "text"]
    _, logits, target = train(ready, MLP, max_steps=150)
    assert logits.argmax(1).tolist() == target.tolist()


def test_32_numbers_are_learned_by_heart(tmp_path):
    draw = random.Random(4)
    file = write_rows(tmp_path / "t.csv", 32, lambda *_: draw.uniform(1e5, 2e5))
    ready = prepare_table(PrepareRequest([file], 0.0, TableOptions(), seed=1))
    _, said, target = train(ready, MLP, max_steps=300)
    assert (said[:, 0] - target).square().mean() < 1e-3  # of a deviation of 1


def test_majority_says_the_prior(tmp_path):
    file = write_rows(tmp_path / "t.csv", 60, lambda x, *_: "p" if x < 0 else "q")
    ready = prepare_table(PrepareRequest([file], 0.0, TableOptions(), seed=1))
    model = build(ROW_MODELS, "majority", value_count=6, text_count=1, source_size=12, label_count=2)
    model.fit(ready.train)
    share = float((ready.train.values == 0).mean())
    said = model(ready.train.batch(np.arange(3)).source)
    assert said.softmax(-1)[:, 0].tolist() == pytest.approx([share] * 3)
    assert said.shape == (3, 2)


def test_logistic_regression_finds_the_likeliest_weights(tmp_path):
    """At the maximum of the likelihood the errors sum to nothing along every value: the score equations."""
    draw = random.Random(6)

    def target(x, y, *_):
        return "yes" if draw.random() < 1 / (1 + math.exp(-(0.3 * x - y - 2))) else "no"

    file = write_rows(tmp_path / "t.csv", 300, target)
    ready = prepare_table(PrepareRequest([file], 0.0, TableOptions(exclude="note,colour"), seed=1))
    _, logits, wanted = train(ready, "linear", max_steps=300, batch_rows=300, learning_rate=5e-2)
    errors = logits.softmax(-1)[:, 1] - wanted
    values = torch.from_numpy(ready.train.dense(np.arange(300)))
    assert (values.T @ errors).abs().max() / 300 < 1e-3
    assert errors.sum().abs() / 300 < 1e-3
