"""Every score, position and way to weigh inside a model of two layers, trained for two steps, plain and compiled."""

from itertools import zip_longest

import pytest
import torch

from seqloom.models.decoders.stacks import TransformerStack
from seqloom.parts.attention.normalizers import NORMALIZERS
from tests.laws import COMPILED, POSITION_CHOICES, SCORE_CHOICES, close, drawn, heads_of, named, shake

# Each choice of each table stands in one of these at least.
HEADS = [*(heads_of(normalizer=name) for name in NORMALIZERS), heads_of(1), heads_of(projections=""), heads_of(1, "kv")]
ROWS = zip_longest(SCORE_CHOICES, POSITION_CHOICES, HEADS)
ENTRIES = [
    {name: it for name, it in zip(("score", "position", "mixer"), row, strict=True) if it is not None} for row in ROWS
]
ENTRIES += [{"mixer": heads_of(1, "kv"), "position": "alibi"}]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def trained(stack, call, x):
    """The losses of two steps, and where the weights have gone."""
    optimiser, losses = torch.optim.SGD(stack.parameters(), 0.01), []
    for _ in range(2):
        y, _ = call(x)
        loss = (y - x.roll(1, 1)).square().sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
    return losses, [parameter.detach().clone() for parameter in stack.parameters()]


@pytest.mark.parametrize("options", ENTRIES, ids=named)
def test_two_steps_plain_and_compiled(options):
    x, found = drawn(2, 5, 8), []
    for compiled in (False, True):
        torch.manual_seed(0)
        sizes = {"dim": 8, "layers": 2, "heads": 2, "hidden": 12, "dropout": 0.0}
        stack = shake(TransformerStack(8, **sizes, **options).double(), 1).train()
        before = [parameter.detach().clone() for parameter in stack.parameters()]
        call = torch.compile(stack, backend=COMPILED, fullgraph=True) if compiled else stack
        found.append(trained(stack, call, x))
    (losses, weights), (others, ends) = found
    assert losses[1] < losses[0]
    still = [name for (name, p), was in zip(stack.named_parameters(), before, strict=True) if torch.equal(p, was)]
    assert still == [name for name, p in stack.named_parameters() if not p.requires_grad]
    close(others, losses, 1e-8)
    close(ends, weights, 1e-8)


@pytest.mark.parametrize("options", ENTRIES, ids=named)
def test_training_in_half_precision_is_near(options):
    """Under autocast, as `precision: bf16` trains: parameters stay float32 and meet activations that are not."""
    torch.manual_seed(0)
    stack = TransformerStack(8, dim=8, layers=2, heads=2, hidden=12, dropout=0.0, **options)
    x, found = drawn(2, 5, 8).float(), []
    for half in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            y, _ = stack(x)
        y.float().square().sum().backward()
        found.append((y.detach().float(), [p.grad.clone() for p in stack.parameters() if p.requires_grad]))
        stack.zero_grad()
    (exact, slopes), (rough, others) = found
    assert (exact - rough).abs().max() < 0.1
    assert all(other.isfinite().all() and other.dtype == torch.float32 for other in others)
    assert sum(s.abs().sum() for s in slopes) > 0


@pytest.mark.parametrize("options", ENTRIES, ids=named)
def test_steps_one_at_a_time_are_steps_all_at_once(options):
    torch.manual_seed(0)
    stack = shake(TransformerStack(8, dim=8, layers=2, heads=2, hidden=12, dropout=0.0, **options).double(), 1)
    x, state, said = drawn(2, 5, 8), stack.begin(8), []
    with torch.no_grad():
        for t in range(5):
            y, state = stack(x[:, t : t + 1], state)
            said.append(y)
        close(torch.cat(said, 1), stack(x)[0])
