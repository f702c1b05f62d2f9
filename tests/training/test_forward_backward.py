"""ForwardBackward in few shapes, and recorded ones: the same losses, gradients and random numbers as plain ones."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from copy import deepcopy
from functools import partial

import numpy as np
import pytest
import torch

from seqloom.acceleration import plain
from seqloom.data.batches.collate import Batch, bucket_size, bucket_width, pad
from seqloom.data.batches.labels import LabelBatch
from seqloom.data.batches.language import LanguageBatch
from seqloom.data.batches.words import Lexicon, TagBatch
from seqloom.data.tokenizers.tokenizers import BOS, EOS, PAD
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.errors import SeqloomError
from seqloom.fast.cuda_graphs.compiled_blocks import CompiledForwardBackward
from seqloom.fast.cuda_graphs.training_graphs import GraphedForwardBackward
from seqloom.models.classifier import Classifier
from seqloom.models.language_model import LanguageModel
from seqloom.models.tagger import Tagger
from seqloom.training.forward_backward import ForwardBackward, make_forward_backward
from seqloom.training.loop import Loop
from seqloom.training.objectives.labels import CrossEntropy
from seqloom.training.objectives.next_token import NextToken
from seqloom.training.objectives.tags import TagLikelihood
from seqloom.training.objectives.teacher_forcing import TeacherForcing
from seqloom.training.settings import Training
from tests.laws import heads_of, shake, tiny_model

CPU = torch.device("cpu")
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="records on a GPU only")
FAMILIES = {
    "lstm": ("lstm", {"kind": "attentive", "cell": "lstm", "input_feeding": True}),
    "transformer": ("transformer", {"kind": "transformer"}),
}
KINDS = {
    "relative": {"position": "relative", "mixer": heads_of(1), "score": "cosine"},
    "alibi": {"position": "alibi", "mixer": heads_of(normalizer="relu"), "score": "gaussian"},
    "floater": {"position": "floater", "mixer": heads_of(projections="v")},
}
FAMILIES |= {name: ("transformer", {"kind": "transformer", **kind}) for name, kind in KINDS.items()}


def batch_of(seed, rows=9, longest=30):
    draw = np.random.default_rng(seed)
    sides = [[draw.integers(4, 9, draw.integers(1, longest)).tolist() for _ in range(rows)] for _ in range(2)]
    return Batch.of(pad([[*row, EOS] for row in sides[0]]), pad([[BOS, *row, EOS] for row in sides[1]]))


def model_of(family):
    torch.manual_seed(0)
    return shake(tiny_model(*FAMILIES[family]).double(), 1)


def settings(**more):
    return Training.of({"max_steps": 4, **more})


def test_few_numbers_remain():
    found = {bucket_size(number) for number in range(1, 1025)}
    assert all(bucket_size(number) == number for number in found)
    assert all(number <= bucket_size(number) <= 1.125 * number + 1 for number in range(1, 5000))
    assert len(found) == 16 + 6 * 8
    assert sorted({bucket_width(width) for width in range(1, 49)}) == list(range(4, 49, 4))
    assert [bucket_width(width, 30) for width in (1, 29, 30, 31)] == [4, 30, 30, 31]  # what is too long is told later


@pytest.mark.parametrize("seed", range(4))
def test_a_rounded_batch_holds_the_same_labels(seed):
    batch = batch_of(seed)
    other = batch.pad_to_bucket()
    labels, more = (one.target.tokens[:, 1:].flatten()[one.index] for one in (batch, other))
    assert torch.equal(more[: other.count], labels)
    assert (more[other.count :] == PAD).all()
    assert other.count == batch.count == len(labels)
    assert other.source.host == batch.source.host
    for one in (other.source.tokens.shape[1], other.target.tokens.shape[1] - 1):
        assert bucket_size(one) == one


def test_what_is_full_stays_full_and_what_is_empty_stays_empty():
    for width, wanted, whole in ((20, 20, True), (19, 20, False), (37, 37, True)):
        full = Batch.of(pad([[5] * (width - 1) + [EOS]] * 3), pad([[BOS, *[5] * 15, EOS]] * 3))
        assert full.source.full
        assert full.pad_to_bucket().source.full == whole, "a mask costs less than a further shape, where rows are short"
        assert full.pad_to_bucket().source.tokens.shape == (3, wanted)
        assert full.pad_to_bucket().padding == 0
    assert batch_of(1).zero_weight_row().pad_to_bucket().count == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_a_rounded_batch_gives_the_same_loss_and_gradients(family):
    found = []
    for one in (batch_of(2), batch_of(2).pad_to_bucket()):
        objective = TeacherForcing(model_of(family), 0.1).train()
        loss = ForwardBackward(objective, settings(), CPU)(one)
        found.append([loss.total, *(p.grad for p in objective.parameters())])
        assert loss.count == batch_of(2).count
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-9)


def same(objectives, batches):
    """Loss and gradients of a batch and of the rounded one."""
    found = []
    for objective, one in zip(objectives, batches, strict=True):
        loss = ForwardBackward(objective.double().train(), settings(), CPU)(one)
        found.append([loss.total, *(p.grad for p in objective.parameters())])
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-9)


def sentences(characters="none", output="softmax"):
    """A tagger's objective, and a batch for it."""
    texts = [["the", "cat", "sat"], ["a", "dog"], ["the", "catastrophe", "a", "a", "sat"]]
    text = " ".join(word for one in texts for word in one)
    words = Lexicon(Codec.build("words", [text]), Codec.build("chars", [text])).words_of(texts)
    torch.manual_seed(0)
    tagger = Tagger(20, 40, 3, 99, {"kind": "gru", "dropout": 0.0}, characters, output, dropout=0.0, unk_rate=0.0)
    batch = TagBatch(words, torch.tensor([[0, 1, 2, 0, 0], [1, 2, 0, 0, 0], [0, 1, 2, 1, 2]]), (0, 1, 2))
    return TagLikelihood(tagger, 0.1), batch


def texts(encoder="lstm"):
    """A classifier's objective, and a batch for it."""
    torch.manual_seed(0)
    model = Classifier(20, 2, {"kind": encoder, "dropout": 0.0}, embedding=16, dropout=0.0)
    batch = LabelBatch(pad([[5, 6, 7], [8, 5], [6] * 5]), torch.tensor([0, 1, -1]), None, 2, (0, 1, 2))
    return CrossEntropy(model, 0.1), batch


@pytest.mark.parametrize("output", ["softmax", "crf"])
@pytest.mark.parametrize("characters", ["none", "lstm", "convolution"])
def test_rounded_sentences_give_the_same_loss_and_gradients(output, characters):
    objective, batch = sentences(characters, output)
    wide = batch.pad_to_bucket()
    assert (wide.source.tokens.tokens.shape, wide.tags.shape, wide.count) == ((3, 8), (3, 8), batch.count)
    assert wide.source.characters.tokens.shape == (6, 16)
    assert batch.zero_weight_row().pad_to_bucket() is None
    same([deepcopy(objective), objective], [batch, wide])


@pytest.mark.parametrize("encoder", ["lstm", "transformer", "convolution"])
def test_rounded_texts_give_the_same_loss_and_gradients(encoder):
    objective, batch = texts(encoder)
    assert batch.pad_to_bucket().source.tokens.shape == (3, 8)
    same([deepcopy(objective), objective], [batch, batch.pad_to_bucket()])


@GPU
@pytest.mark.parametrize("made", [sentences, partial(sentences, "lstm", "crf"), texts, partial(texts, "transformer")])
def test_sentences_and_texts_are_recorded(made):
    found = []
    for capture in ("on", "off"):
        objective, batch = made()
        passes = make_forward_backward(objective.cuda().train(), settings(cuda_graphs=capture), torch.device("cuda"))
        for _ in range(4):
            passes.clear_gradients()
            loss = passes(batch)
        assert bool(getattr(passes, "graphs", ())) == (capture == "on")
        found.append([loss.total, *(p.grad for p in objective.parameters())])
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)  # cuDNN's products are rounded to TF32


def test_nothing_is_padded_beyond_what_a_model_reaches():
    batch = batch_of(1, longest=26)
    width = batch.source.tokens.shape[1]
    assert batch.pad_to_bucket(width).source.tokens.shape[1] == width != batch.pad_to_bucket().source.tokens.shape[1]


def test_without_a_gpu_passes_are_plain():
    objective = TeacherForcing(model_of("lstm"))
    assert type(make_forward_backward(objective, settings(), CPU)) is ForwardBackward
    for switch in (nullcontext, plain):
        with switch():
            with pytest.raises(SeqloomError, match="CUDA"):
                make_forward_backward(objective, settings(cuda_graphs="on"), CPU)
            with pytest.raises(SeqloomError, match="one process"):
                make_forward_backward(objective, settings(compile=True), CPU, distributed=True)
    with pytest.raises(SeqloomError, match="auto"):
        settings(cuda_graphs="autp")


def test_only_blocks_are_compiled_and_only_in_a_pass(monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    found = []
    for compiled in (False, True):
        objective = TeacherForcing(model_of("transformer"), 0.1).train()
        passes = make_forward_backward(objective, settings(compile=compiled), CPU)
        loss = passes(batch_of(2))
        found.append([loss.total, *(p.grad for p in objective.parameters())])
        assert len(getattr(passes, "blocks", ())) == (4 if compiled else 0)
        assert not any("forward" in vars(part) for part in objective.modules())
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-9)
    objective = TeacherForcing(model_of("lstm"))
    assert make_forward_backward(objective, settings(compile=True), CPU).run is not objective


def test_the_first_pass_of_an_update_writes_and_the_others_add():
    """As passes on a GPU hold gradients, which stay in their place."""
    one, other = (TeacherForcing(model_of("transformer"), 0.1).train() for _ in range(2))
    never, seldom = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    one.model.register_parameter("never", never)
    one.model.register_parameter("seldom", seldom)
    plain, held = ForwardBackward(other, settings(), CPU), GraphedForwardBackward.__new__(GraphedForwardBackward)
    CompiledForwardBackward.__init__(held, one, settings(), CPU)
    held.parameters, held.first = list(one.parameters()), True
    seldom.grad = torch.ones(2)  # of a shape that used it
    places = {}
    for update in range(3):
        for seed in (update, update + 1):
            plain(batch_of(seed))
            ForwardBackward.__call__(held, batch_of(seed))
            held.first = False
        wanted, found = dict(other.named_parameters()), dict(one.named_parameters())
        for name, parameter in wanted.items():
            torch.testing.assert_close(found[name].grad, parameter.grad, rtol=0, atol=1e-12)
            assert places.setdefault(name, found[name].grad) is found[name].grad
        assert never.grad is None
        assert seldom.grad.tolist() == [0.0, 0.0]
        plain.clear_gradients()
        held.clear_gradients()


@pytest.mark.parametrize("output", ["softmax", "crf"])
def test_gradients_are_laid_out_as_their_parameters(output):
    """A chain's marginals hand over the gradient of its moves as a transpose, which a fused optimiser refuses."""
    objective, batch = sentences("lstm", output)
    objective.r_drop = 2.0
    plain, held = (
        ForwardBackward(deepcopy(objective).train(), settings(), CPU),
        GraphedForwardBackward.__new__(GraphedForwardBackward),
    )
    CompiledForwardBackward.__init__(held, objective.train(), settings(), CPU)
    held.parameters, held.first = list(objective.parameters()), True
    plain(batch)
    ForwardBackward.__call__(held, batch)
    for wanted, found in zip(plain.objective.parameters(), held.parameters, strict=True):
        assert found.grad.stride() == found.stride()
        torch.testing.assert_close(found.grad, wanted.grad)


class Again:
    """A supply of a few batches, over and over."""

    fingerprint, folder = "", None

    def __init__(self, kinds=3, copies=8):
        self.kinds, self.copies = kinds, copies

    def plan(self, **_):
        from seqloom.data.batches.bucketing import Plan

        order = np.arange(self.kinds * self.copies)
        return Plan(order, order + 1)

    def batch(self, rows):
        return batch_of(int(rows[0]) % self.kinds)

    def count(self, rows):
        return self.batch(rows).count


def trained(family, steps, dropout, resumed=0, **more):
    """Losses of a training on the GPU, stopped and taken up again after `resumed` steps."""
    device, losses = torch.device("cuda"), []
    model = model_of(family).float().to(device)
    for module in model.modules():
        if hasattr(module, "dropout"):
            module.dropout = dropout

    def loop():
        return Loop(TeacherForcing(model, 0.1), Again(), settings(epochs=99, **more, max_steps=steps), device)  # pyright: ignore

    torch.manual_seed(5)
    one = loop()
    for update in one:
        losses.append(float(update.loss / update.count))
        if update.step == resumed:
            tensors, values = one.state()
            kept = {name: tensor.clone() for name, tensor in tensors.items()}
            torch.manual_seed(99)
            break
    if resumed:
        one = loop()
        one.restore(kept, values)
        losses += [float(update.loss / update.count) for update in one]
    return losses, one


@GPU
@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_steps_are_plain_ones(family):
    recorded, loop = trained(family, 200, 0.0, cuda_graphs="on")
    assert len(loop.forward_backward.graphs) == 3
    plain, _ = trained(family, 200, 0.0, cuda_graphs="off")
    assert np.allclose(recorded, plain, atol=2e-3)


@GPU
@pytest.mark.parametrize("family", FAMILIES)
def test_a_resumed_run_draws_the_same_numbers(family):
    """The first run replays where the second, which begins anew, still runs plainly."""
    through, _ = trained(family, 40, 0.3, cuda_graphs="on")
    resumed, _ = trained(family, 40, 0.3, resumed=20, cuda_graphs="on")
    assert np.allclose(through, resumed, atol=2e-4)


@GPU
def test_what_waits_for_the_device_is_not_recorded():
    model = LanguageModel(60, 0, "lstm", {"kind": "adaptive", "cutoffs": [9]}, embedding=16).cuda()
    passes = make_forward_backward(NextToken(model), settings(), torch.device("cuda"))
    batch, state = LanguageBatch(torch.randint(0, 60, (3, 8)), None, (0, 1, 2), 21, True), None
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(6):
            state = passes(batch, state).carried
    assert any("not recorded" in str(warning.message) for warning in said)
    assert passes.disabled
    assert not passes.graphs
    strict = make_forward_backward(NextToken(model), settings(cuda_graphs="on"), torch.device("cuda"))
    strict(batch)
    strict.clear()  # the first pass of another update, which is the same once more
    with pytest.raises(SeqloomError, match="cannot be recorded"):
        strict(batch)


@GPU
def test_a_carried_state_goes_through_a_recording():
    found = []
    for capture in ("on", "off"):
        torch.manual_seed(2)
        model, state, losses = LanguageModel(60, 0, "lstm", embedding=16, dropout=0.2).cuda(), None, []
        passes = make_forward_backward(NextToken(model), settings(cuda_graphs=capture), torch.device("cuda"))
        for seed in range(9):
            tokens = torch.randint(0, 60, (3, 8), generator=torch.Generator().manual_seed(seed))
            loss = passes(LanguageBatch(tokens, None, (0, 1, 2), 21, True), state)
            state = loss.carried
            losses.append(loss.total)
        assert bool(getattr(passes, "graphs", ())) == (capture == "on")
        found.append([torch.stack(losses), state[0][0], *(p.grad for p in model.parameters())])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


@GPU
def test_memory_does_not_grow():
    _, loop = trained("transformer", 60, 0.1, cuda_graphs="on")
    before = torch.cuda.memory_reserved()
    loop.settings = settings(epochs=99, max_steps=260)
    for _ in loop:
        pass
    assert torch.cuda.memory_reserved() == before
