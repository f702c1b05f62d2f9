"""A compiled training step gives the eager step's loss and gradients, in one graph, for each family."""

import pytest
import torch

from seqloom.data.batches.collate import Batch, pad
from seqloom.data.tokenizers.tokenizers import BOS, EOS
from seqloom.models.language_model import LanguageModel
from seqloom.training.objectives.teacher_forcing import TeacherForcing
from tests.laws import CELL_CHOICES, COMPILED, close, named, shake, tiny_model

BATCH = Batch.of(pad([[4, 5, EOS], [6, EOS]]), pad([[BOS, 4, EOS], [BOS, 7, 8, EOS]]))

FAMILIES = {
    "lstm": ("lstm", {"kind": "recurrent", "cell": "lstm"}),
    "lstm-attention": ("lstm", {"kind": "attentive", "cell": "lstm"}),
    "lstm-attention-feeding": ("lstm", {"kind": "attentive", "cell": "lstm", "input_feeding": True}),
    "gru-attention": ("gru", {"kind": "attentive", "cell": "gru", "query": "previous", "score": "additive"}),
    "transformer": ("transformer", {"kind": "transformer"}),
}


def model_of(family, layers=1):
    torch.manual_seed(0)
    encoder, decoder = FAMILIES[family]
    return tiny_model({"kind": encoder, "layers": layers}, {**decoder, "layers": layers})


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def step(objective, batch, call):
    objective.zero_grad()
    loss = call(batch)
    loss.total.backward()
    return loss.total.detach(), loss.count, [parameter.grad.clone() for parameter in objective.parameters()]


def check(family, backend, dtype, bound, layers=1):
    model = shake(model_of(family, layers).double(), 1).to(dtype)
    objective, batch = TeacherForcing(model).train(), BATCH
    compiled = torch.compile(objective, backend=backend, fullgraph=True)
    total, count, slopes = step(objective, batch, objective)
    found, number, others = step(objective, batch, compiled)
    assert number == count
    close(found, total, bound)
    close(others, slopes, bound)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_compiled_step_is_the_eager_step(family):
    check(family, COMPILED, torch.float64, 1e-6)  # the loss itself is summed in float32


def two_steps(cell, compiled):
    """A two-layer language model and what two updates make of it; `compiled` runs the same, as one graph."""
    torch.manual_seed(0)
    stack = {"kind": "recurrent", "cell": cell, "dim": 4, "layers": 2}
    model = shake(LanguageModel(9, 0, stack, embedding=3, dropout=0.0).double(), 1)
    model.train()
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    run = torch.compile(model, backend=COMPILED, fullgraph=True) if compiled else model
    tokens = torch.randint(9, (3, 4), generator=torch.Generator().manual_seed(1))
    losses = []
    for _ in range(2):
        optimiser.zero_grad()
        loss = run(tokens[:, :-1], tokens[:, 1:]).nats.mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
    return torch.stack(losses), [p.detach().clone() for p in model.parameters()]


# Every cell and variant, but of those that look back only one score.
ONCE = [choice for choice in CELL_CHOICES if not (isinstance(choice, dict) and {"score", "zoneout"} & choice.keys())]
DRAWN = [{"kind": name, "zoneout": 0.3} for name in ("lstm", "mingru", "attentive-rnn")]


@pytest.mark.parametrize("cell", ONCE, ids=named)
def test_two_steps_of_every_cell(cell):
    losses, eager = two_steps(cell, False)
    found, compiled = two_steps(cell, True)
    assert losses[1] < losses[0]
    close(found, losses, 1e-6)
    close(compiled, eager, 1e-6)


@pytest.mark.parametrize("cell", DRAWN, ids=named)
def test_two_steps_with_zoneout(cell):
    """What is drawn differs, so only that it learns, in one graph too."""
    for compiled in (False, True):
        losses, _ = two_steps(cell, compiled)
        assert losses.isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("family", list(FAMILIES))
def test_inductor(family):
    check(family, "inductor", torch.float32, 2e-4, layers=2)


def test_watching_recompiles_nothing():
    """While somebody watches, the eager module runs; afterwards the compiled step is still the same graph."""
    from seqloom.parts.probe import watch

    model, batch = model_of("lstm-attention"), BATCH
    objective = TeacherForcing(model).train()
    graphs = []

    def counting(graph, example):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(objective, backend=counting, fullgraph=True)
    compiled(batch)
    for _ in range(3):
        with watch(model) as seen:
            objective(batch)
        assert any(seen.values())
        compiled(batch)
    assert len(graphs) == 1
