"""The next token: what is counted, how a whole text is scored, and that carried states survive a kill."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from seqloom.build import build
from seqloom.data.batches.language import StreamOptions
from seqloom.data.prepare.language import encode_files, prepare_language
from seqloom.data.prepare.request import PrepareRequest
from seqloom.models.baselines.ngram import Ngram
from seqloom.models.language_model import LANGUAGE_MODELS
from seqloom.parts.state import flatten
from seqloom.training.distributed.sharding import gather_states
from seqloom.training.loop import Loop
from seqloom.training.objectives.next_token import (
    NextToken,
    characters,
    language_metrics,
    token_losses,
    validation_loss,
)
from seqloom.training.settings import Training

CPU = torch.device("cpu")
TEXT = "the cat sat on the mat.\nthe dog sat on the log.\nwho sat on the frog?\n" * 12


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(TEXT)
    return str(file)


def make(ready, kind="lstm", **more):
    torch.manual_seed(0)
    sizes = {"heads": 2, "hidden": 32, "dropout": 0.0} if kind == "transformer" else {}
    encoder = {"kind": kind, "dim": 24, "layers": 1, **sizes}
    choice = {"kind": "language", "encoder": encoder, "embedding": 24, "dropout": 0.0, **more}
    return build(LANGUAGE_MODELS, choice, source_size=ready.codec.size, labels=len(ready.labels))


def make_loop(ready, model, **settings):
    training = Training.of({"max_steps": 40, "batch_rows": 4, "warmup": 1, "learning_rate": 1e-2, **settings})
    return Loop(NextToken(model), ready.train, training, CPU)


def test_the_loss_counts_real_labels_and_carries_only_streams(text):
    for way, carried in (("stream", True), ("blocks", False)):
        ready = prepare_language(PrepareRequest([text], 0.0, StreamOptions(batches=way, length=10), seed=1))
        model = make(ready).eval()
        batch = ready.train.batch(ready.train.plan(seed=1, epoch=0, batch_rows=4, batch_tokens=None)[0])
        loss = NextToken(model)(batch)
        assert loss.count == batch.count > 30
        assert (loss.carried is not None) == carried
        if carried:
            assert not any(part.requires_grad for part in loss.carried[0])
    assert NextToken(make(ready, "transformer"))(batch).carried is None
    emptied = NextToken(model.train())(batch.zero_weight_row())
    assert (emptied.total.item(), emptied.count) == (0.0, 0)
    emptied.total.backward()


def test_a_carried_state_is_one_long_text(text):
    """Two batches with the state handed on say what one batch of both lengths says."""
    long, short = (
        prepare_language(PrepareRequest([text], 0.0, StreamOptions(length=n), seed=1)).train for n in (20, 10)
    )
    model = NextToken(make(prepare_language(PrepareRequest([text], 0.0, StreamOptions(), seed=1))).double()).eval()
    plans = [one.plan(seed=1, epoch=0, batch_rows=2, batch_tokens=None) for one in (long, short)]
    whole = model(long.batch(plans[0][0])).total
    first = model(short.batch(plans[1][0]))
    second = model(short.batch(plans[1][1]), first.carried)
    assert torch.allclose(whole, first.total + second.total)


def test_pieces_of_streams_change_neither_loss_nor_gradient_nor_state(text):
    """Out of memory, every piece goes on from its own rows; a batch of five rows, two of them one after the other."""
    ready = prepare_language(PrepareRequest([text], 0.0, StreamOptions(length=10), seed=1))
    found = []
    for pieces in (1, 4, 8):
        loop = make_loop(ready, make(ready).double(), batch_rows=5)
        loop.objective.eval()
        loop.micro_batches = pieces
        loss = loop._accumulate([ready.train.batch(loop.plan[number]) for number in range(2)])
        gradients = [parameter.grad for parameter in loop.objective.parameters()]
        found.append([loss.total, *gradients, *flatten(loop.carried)[0]])
        assert loss.count == 100
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            assert torch.allclose(one, same, rtol=1e-9, atol=1e-12)


class Pair:
    """One of two ranks whose states are to hand: what `Ranks` would gather, without a second process."""

    def __init__(self, rank, states):
        self.rank, self.world, self.distributed, self.first = rank, 2, True, rank == 0
        self.states, self.turn = [flatten(state) for state in states], 0

    def all_gather(self, value):
        forms = [[layout, [[str(one.dtype), list(one.shape)] for one in tensors]] for tensors, layout in self.states]
        assert forms[self.rank] == value
        return forms

    def all_gather_tensors(self, tensor):
        number, self.turn = self.turn, self.turn + 1
        found = []
        for tensors, _ in self.states:
            rows = torch.zeros_like(tensor)
            if tensors:
                rows[: len(tensors[number])] = tensors[number]
            found.append(rows)
        assert torch.equal(found[self.rank], tensor), "one shape on all ranks"
        return found


@pytest.mark.parametrize("rows", [(2, 1), (1, 0)])
def test_states_of_unlike_rows_are_gathered(rows):
    states = [((torch.rand(n, 3), torch.rand(n, 3)), (torch.rand(n, 2),)) if n else None for n in rows]
    for rank, state in enumerate(states):
        tensors, layout = gather_states(state, Pair(rank, states))
        assert layout == [[0, 1], [2]]
        for other, wanted in enumerate(states):
            for number, one in enumerate(flatten(wanted)[0]):
                assert torch.equal(tensors[f"carried.{other}.{number}"], one)
        assert len(tensors) == 3 * sum(map(bool, rows))
    assert gather_states(None, Pair(0, [None, None])) == ({}, None)


@pytest.mark.parametrize("kind", ["lstm", "transformer", "ngram"])
def test_the_whole_text_is_scored_once(text, kind):
    ready = prepare_language(PrepareRequest([text], 0.0, StreamOptions(length=16), seed=1))
    model = Ngram(ready.codec.size, 0, 3) if kind == "ngram" else make(ready, kind)
    if kind == "ngram":
        model.fit(ready.train)
    found = token_losses(model, ready.train, 16, CPU)
    assert len(found.nats) == len(TEXT) - 1
    ids = torch.from_numpy(ready.train.ids.astype(np.int64))[None]
    if kind == "transformer":
        by_hand = [
            model.eval()(part[:, :-1], part[:, 1:]).nats
            for part in (ids[:, i : i + 17] for i in range(0, len(TEXT) - 1, 16))
        ]
        assert found.position.max() == 15
    else:
        by_hand = [model.eval()(ids[:, :-1], ids[:, 1:]).nats]
        assert np.array_equal(found.ids, ids[0, 1:].numpy())
    assert math.isclose(found.nats.sum(), float(torch.cat(by_hand).detach().double().sum()), rel_tol=1e-5)
    scores = validation_loss(NextToken(model), ready.train, 16, CPU)
    near = 1e-6 if kind == "transformer" else 0.05  # in eight streams
    assert abs(scores["loss"] - found.nats.mean()) < near


def test_bits_per_character_whatever_the_tokens(text):
    """A text has as many characters as it has, by any tokens; only the first token is given."""
    total = len(TEXT)
    for tokens in ("chars", "bytes", "bpe:280", "words"):
        ready = prepare_language(PrepareRequest([text], 0.0, StreamOptions(tokens=tokens), seed=1))
        assert ready.train.characters == total
        given = {"words": "the ", "bpe:280": "the"}.get(tokens, "t")
        assert characters(ready.train, ready.codec) == total - len(given)
    found = token_losses(make(ready), ready.train, 16, CPU)
    assert math.isclose(
        language_metrics(found, ready.train, ready.codec)["bits_per_character"],
        found.nats.sum() / math.log(2) / (total - len("the ")),
        rel_tol=1e-9,
    )


@pytest.mark.parametrize("tokens", ["chars", "words", "bytes", "bpe:280"])
def test_characters_are_those_of_the_text_known_or_not(tmp_path, text, tokens):
    """Empty lines and what is unknown count as well: their nats do."""
    codec = prepare_language(PrepareRequest([text], 0.0, StreamOptions(tokens=tokens), seed=1)).codec
    other = tmp_path / "other.txt"
    other.write_text("the é字\n\n\nzebra  sat\n")
    stream, _ = encode_files([str(other)], StreamOptions(tokens=tokens), codec, [])
    assert stream.characters == len("the é字\n\n\nzebra  sat\n")
    lines, _ = encode_files([str(other)], StreamOptions(tokens=tokens, batches="lines"), codec, [])
    assert characters(lines, codec) == len("the é字\nzebra  sat\n")
    held = prepare_language(PrepareRequest([text], [str(other)], StreamOptions(tokens=tokens), seed=1)).valid
    assert held.characters == stream.characters
    short, _ = encode_files([str(other)], StreamOptions(tokens=tokens, batches="lines", length=1), codec, [])
    given = {"words": "thezebra", "bpe:280": None}.get(tokens, "tz")
    assert given is None or characters(short, codec) == len(given), "of what is cut off, nothing"


@pytest.mark.parametrize("kind", ["gru", "transformer"])
def test_32_lines_are_learned_by_heart(tmp_path, kind):
    file = tmp_path / "lines.txt"
    lines = [f"{chr(97 + n % 26)}{n * n} {n * 7}" for n in range(32)]
    file.write_text("\n".join(lines))
    ready = prepare_language(PrepareRequest([str(file)], 0.0, StreamOptions(batches="lines"), seed=1))
    model = make(
        ready,
        kind,
        embedding=48,
        encoder={"kind": kind, "dim": 48, **({"layers": 2, "dropout": 0.0} if kind == "transformer" else {})},
    )
    for _ in make_loop(ready, model, max_steps=200, batch_rows=32, schedule="constant", weight_decay=0.0):
        pass
    found = token_losses(model, ready.train, 16, CPU)
    random = sum(math.log(32) for _ in lines) / len(found.nats)  # which line it is cannot be known
    assert found.nats.mean() < random + 0.15


@pytest.mark.parametrize("way", ["stream", "random"])
def test_kill_and_resume_are_bit_identical(text, way):
    ready = prepare_language(
        PrepareRequest([text], 0.0, StreamOptions(batches=way, length=10, vary_length=way == "stream"), seed=1)
    )
    more = {"dropout": 0.2, "state_reset": 0.3, "locked_dropout": True, "embedding_dropout": 0.1}

    def trained(stop):
        loop = make_loop(ready, make(ready, "lstm", **more))
        for update in loop:
            if update.step == stop:
                break
        return loop

    whole, half = trained(None), trained(17)
    tensors, values = half.state()
    weights = {name: value.clone() for name, value in half.objective.state_dict().items()}
    assert (half.carried is not None) == (way == "stream")
    torch.manual_seed(99)
    again = make_loop(ready, make(ready, "lstm", **more))
    again.objective.load_state_dict(weights)
    again.restore({name: value.clone() for name, value in tensors.items()}, values)
    for _ in again:
        pass
    for one, other in zip(whole.objective.parameters(), again.objective.parameters(), strict=True):
        assert torch.equal(one, other)
