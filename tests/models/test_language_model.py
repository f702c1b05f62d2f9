"""Language models: laws of stepping, what the AWD regularisers do, memory that does not grow."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional as F

from seqloom.build import build, complete
from seqloom.data.batches.collate import pad
from seqloom.errors import SeqloomError
from seqloom.models.decoders.stacks import STACKS, RecurrentStack
from seqloom.models.language_model import LANGUAGE_MODELS, LanguageModel
from seqloom.parts.layers.dropout import locked_dropout
from seqloom.parts.layers.output_layers import Adaptive
from seqloom.parts.positions.position_table import POSITIONS
from seqloom.tasks.generate.presets import ABOUT, PRESETS, preset, suited

SIZE, ROWS, STEPS = 11, 3, 12
TRANSFORMER = {"kind": "transformer", "dim": 8, "layers": 2, "heads": 2, "hidden": 12, "dropout": 0.0}


def make(encoder="lstm", dtype=torch.float64, **more) -> LanguageModel:
    torch.manual_seed(0)
    small = {"dropout": 0.0, "layers": 2, "dim": 8}
    encoder = (
        encoder
        if isinstance(encoder, dict)
        else TRANSFORMER
        if encoder == "transformer"
        else {"kind": encoder, **small}
    )
    return LanguageModel(SIZE, 2, encoder, **{"embedding": 8, "dropout": 0.0, **more}).to(dtype).eval()


def tokens(rows=ROWS, steps=STEPS) -> torch.Tensor:
    return torch.randint(0, SIZE + 2, (rows, steps), generator=torch.Generator().manual_seed(1))


def nothing(rows=ROWS):
    return pad([[]] * rows)


def stepped(model, x, pieces, room=None):
    state, found = model.start(nothing(x.size(0)), room=room), []
    for part in x.split(pieces, 1):
        logits, state = model.step(part, state)
        found.append(logits)
    return torch.cat(found, 1), state


@pytest.mark.parametrize("room", [None, 20])
@pytest.mark.parametrize("kind", STACKS)
def test_steps_at_once_are_the_same_in_any_pieces(kind, room):
    model, x = make(kind), tokens()
    whole, _ = stepped(model, x, STEPS)
    for pieces in ([1] * STEPS, [5, 7], [2, 9, 1]):
        with torch.no_grad():
            found, state = stepped(model, x, pieces, room)
        assert torch.allclose(found, whole, atol=1e-10)
        rows = torch.tensor([2, 0, 0])
        more, _ = model.step(x[rows, :1], state.pick(rows))
        assert torch.allclose(more, stepped(model, torch.cat([x, x[:, :1]], 1)[rows], STEPS + 1)[0][:, -1:], atol=1e-10)


@pytest.mark.parametrize("kind", STACKS)
def test_training_says_what_steps_say(kind):
    model, x = make(kind), tokens()
    x[:, 1:] %= SIZE
    guess = model(x[:, :-1], x[:, 1:])
    logits, _ = stepped(model, x[:, :-1], STEPS - 1)
    by_hand = F.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten(), reduction="none")
    assert torch.allclose(guess.nats, by_hand)
    index = torch.tensor([0, 5, 17])
    assert torch.allclose(model(x[:, :-1], x[:, 1:], index).nats, by_hand[index])


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_probabilities_of_all_strings_sum_to_one(kind):
    """Of every length by itself: the next token is always some token."""
    model = make(kind)
    for length in (1, 2, 3):
        strings = torch.tensor(list(itertools.product(range(SIZE), repeat=length)))
        x = torch.cat([torch.full((len(strings), 1), SIZE), strings], 1)  # after a label
        nats = model(x[:, :-1], x[:, 1:]).nats.view(len(strings), length)
        assert torch.allclose((-nats.sum(1)).exp().sum(), torch.tensor(1.0, dtype=torch.float64))


@pytest.mark.parametrize("position", POSITIONS)
def test_a_full_room_is_read_again_from_its_last_half(position):
    """Whatever the pieces; and a token is seen from where the room began, at the places that training knows."""
    model, room = make({**TRANSFORMER, "position": position}), 6
    x = tokens(2, 23) % SIZE
    with torch.no_grad():
        whole, _ = stepped(model, x, 23, room)
        for pieces in ([1] * 23, [6, 3, 14], [7, 16]):
            assert torch.allclose(stepped(model, x, pieces, room)[0], whole, atol=1e-10)
        for t in range(23):
            begin = 0 if t < room else (t - room) // 3 * 3 + 3
            assert room // 2 <= t - begin + 1 <= room or t < room
            alone, _ = stepped(model, x[:, begin : t + 1], t + 1 - begin)
            assert torch.allclose(whole[:, t], alone[:, -1], atol=1e-10), t


def test_memory_does_not_grow():
    for model in (make("lstm", torch.float32), make("transformer", torch.float32)):
        state, sizes = model.start(nothing(1), room=16), []
        with torch.inference_mode():
            for step in range(200):
                _, state = model.step(torch.tensor([[step % SIZE]]), state)
                if step > 40:
                    sizes.append(held(state.rows))
        assert max(sizes) <= 16 * 8 * (1 + 2 * 2)
        assert len(set(sizes)) <= 2 * 16


def held(state) -> int:
    if isinstance(state, torch.Tensor):
        return state.numel()
    if isinstance(state, tuple):
        return sum(map(held, state))
    return held(state.inputs) + sum(held(cache.keys) + held(cache.values) for cache in state.caches)


def test_labels_have_vectors_of_their_own():
    model = make("lstm")
    first, second, bos = (model.step(torch.tensor([[one]]), model.start(nothing(1)))[0] for one in (SIZE, SIZE + 1, 1))
    assert not torch.allclose(first, second)
    assert not torch.allclose(first, bos)
    assert model.source.weight.shape == (SIZE, 8)


def test_a_state_goes_on_but_some_rows_begin_afresh():
    model, x = make("gru", state_reset=0.5).train(), tokens(64, 2) % SIZE
    _, state, _ = model(x[:, :1], x[:, 1:])
    torch.manual_seed(1)
    mixed = model(x[:, :1], x[:, 1:], None, state).nats
    kept = model.eval()(x[:, :1], x[:, 1:], None, state).nats
    fresh = model(x[:, :1], x[:, 1:]).nats
    from_state, from_zero = torch.isclose(mixed, kept), torch.isclose(mixed, fresh)
    assert (from_state | from_zero).all()
    assert 16 < int(from_zero.sum()) < 48


def test_dropped_weights_are_drawn_once_and_learn():
    torch.manual_seed(0)
    stack = RecurrentStack(4, "lstm", dim=6, weight_drop=0.5).double().train()
    x = torch.randn(2, 5, 4, dtype=torch.float64)
    y, _ = stack(x)
    assert not torch.allclose(y, stack(x)[0])
    assert torch.equal(stack.eval()(x)[0], stack(x)[0])
    stack.train()
    matrix = stack.recurrent.layers[0].cells[0].recurrent
    y.sum().backward()
    zero = (matrix.grad == 0).double().mean()
    assert 0.2 < zero < 0.8, "what was dropped has no gradient"
    assert "recurrent.layers.0.cells.0.recurrent" in dict(stack.named_parameters())


def test_a_locked_mask_is_the_same_at_all_steps():
    torch.manual_seed(0)
    x = locked_dropout(torch.ones(50, 7, 20), 0.25, True)
    assert torch.equal(x, x[:, :1].expand_as(x))
    assert abs(float(x.mean()) - 1) < 0.05
    assert torch.equal(locked_dropout(x, 0.25, False), x)


def test_dropped_words_are_zero_everywhere():
    model = make("lstm", torch.float32, embedding_dropout=0.5).train()
    torch.manual_seed(3)
    x = torch.arange(SIZE).repeat(2, 2)
    read = model.read(x)
    gone = read.eq(0).all(-1)
    assert torch.equal(gone[0], gone[1])
    assert torch.equal(gone[:, :SIZE], gone[:, SIZE:])
    assert 0 < int(gone[0, :SIZE].sum()) < SIZE
    assert torch.allclose(read[~gone], 2 * model.source(x)[~gone])


@pytest.mark.parametrize(("share", "wanted"), [(None, 0.25), (0.75, 0.75), (0.0, 0.0)])
def test_what_enters_has_a_dropout_of_its_own(share, wanted):
    model = make("lstm", torch.float32, embedding=400, dropout=0.25, input_dropout=share, locked_dropout=True).train()
    torch.manual_seed(3)
    gone = model.read(tokens() % SIZE).eq(0)
    assert float(gone.float().mean()) == pytest.approx(wanted, abs=0.05)
    assert torch.equal(gone, gone[:, :1].expand_as(gone)), "one mask a row"
    assert model.dropout == 0.25


def test_penalties_are_added_in_training_alone():
    model, x = make("lstm", activation_penalty=2.0, temporal_penalty=1.0), tokens() % SIZE
    assert model(x[:, :-1], x[:, 1:]).penalty is None
    penalty = model.train()(x[:, :-1], x[:, 1:]).penalty
    states, _ = model.encoder(model.read(x[:, :-1]))
    by_hand = 2 * states.pow(2).mean() + states.diff(dim=1).pow(2).mean()
    assert torch.allclose(penalty.double(), by_hand.float().double(), rtol=1e-5)


@pytest.mark.parametrize("cutoffs", [[], [3], [2, 5, 40]])
def test_adaptive_softmax_equals_torchs(cutoffs):
    torch.manual_seed(0)
    ours = Adaptive(16, 60, cutoffs, divide=2.0).double()
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 60, ours.bounds[1:-1], div_value=2.0).double()
    theirs.head.weight.data = ours.head.weight.data
    for mine, other in zip(ours.tails, theirs.tail, strict=True):
        for a, b in zip(mine, other, strict=True):
            b.weight.data = a.weight.data
    states, labels = torch.randn(50, 16, dtype=torch.float64, requires_grad=True), torch.randint(0, 60, (50,))
    assert torch.allclose(ours(states), theirs.log_prob(states))
    assert torch.allclose(ours(states).exp().sum(-1), torch.ones(50, dtype=torch.float64))
    nats = ours.nats(states, labels)
    assert torch.allclose(nats, -theirs(states, labels).output)
    (slope,) = torch.autograd.grad(nats.sum(), states)
    (wanted,) = torch.autograd.grad(-theirs(states, labels).output.sum(), states)
    assert torch.allclose(slope, wanted)


def test_adaptive_softmax_in_a_model():
    model, x = make("lstm", output={"kind": "adaptive", "cutoffs": [4]}), tokens() % SIZE
    logits, _ = stepped(model, x[:, :-1], STEPS - 1)
    by_hand = -logits.flatten(0, 1).gather(1, x[:, 1:].reshape(-1, 1))[:, 0]
    assert torch.allclose(model(x[:, :-1], x[:, 1:]).nats, by_hand)


def test_a_tied_matrix_is_one():
    model = make("lstm", tie_embeddings=True)
    assert model.output.linear.weight is model.source.weight
    with pytest.raises(
        SeqloomError, match="tie_embeddings needs the width of the last layer equal to embedding, here 8 and 4"
    ):
        make("lstm", tie_embeddings=True, embedding=4)
    with pytest.raises(SeqloomError, match="tie_embeddings goes with output: softmax"):
        make("lstm", tie_embeddings=True, output="adaptive")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"embedding_dropout": 1.0}, "embedding_dropout is at least 0 and below 1"),
        ({"input_dropout": 1.5}, "input_dropout is at least 0 and below 1"),
        ({"state_reset": -1}, "state_reset is at least 0 and below 1"),
        ({"output": {"kind": "adaptive", "cutoffs": [5, 3]}}, "cutoffs rise"),
        ({"encoder": {"kind": "lstm", "weight_drop": 2.0}}, "weight_drop is at least 0 and below 1"),
        ({"encoder": {"kind": "lsmt"}}, "did you mean 'lstm'"),
    ],
)
def test_wrong_settings_are_named(more, message):
    with pytest.raises(SeqloomError, match=message):
        LanguageModel(SIZE, 0, **more)


@pytest.mark.parametrize("model", PRESETS)
@pytest.mark.parametrize("size", ["tiny", "small", "base"])
def test_every_preset_is_complete(model, size):
    whole = complete(LANGUAGE_MODELS, {"kind": "language", **preset(model, size)})
    assert complete(LANGUAGE_MODELS, whole) == whole
    assert model in ABOUT
    assert (suited(preset(model, size)) == {}) == (model == "ngram")
    if size == "tiny":
        build(LANGUAGE_MODELS, whole, source_size=30, labels=0)


def test_weights_fit_an_encoder_that_reads_one_way():
    from seqloom.models.encoders import ENCODERS

    for kind in ("lstm", "transformer"):
        more = {"directions": 1} if kind == "lstm" else {"position": "rotary", "activation": "gelu"}
        sizes = TRANSFORMER if kind == "transformer" else {"kind": kind, "dim": 8, "layers": 2}
        encoder = build(ENCODERS, {**sizes, **more}, input_dim=8).double()
        encoder.load_state_dict(make(kind).encoder.state_dict())
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    states = make("lstm").encoder(x)[0]
    other = build(ENCODERS, {"kind": "lstm", "dim": 8, "layers": 2, "directions": 1}, input_dim=8).double()
    other.load_state_dict(make("lstm").encoder.state_dict())
    assert torch.allclose(other(x, None).states, states)


def test_without_biases():
    model, x = make({**TRANSFORMER, "bias": False}), tokens()
    assert not [
        name for name, _ in model.encoder.blocks.named_parameters() if name.endswith("bias") and "norm" not in name
    ]
    whole, _ = stepped(model, x, STEPS)
    with torch.no_grad():
        assert torch.allclose(stepped(model, x, 1)[0], whole)
    model.train().encoder(torch.randn(2, 5, 8, dtype=torch.float64))[0].square().sum().backward()
    assert all(weight.grad is not None for weight in model.encoder.blocks.parameters())
