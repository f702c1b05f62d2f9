"""Several models as one: the mean of their probabilities, by hand; and the laws that every model obeys."""

from __future__ import annotations

import itertools

import pytest
import torch

from seqloom.data.batches.collate import Batch, pad
from seqloom.data.batches.tags import Tags
from seqloom.data.batches.words import Lexicon
from seqloom.data.tokenizers.tokenizers import BOS, EOS
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.models.classifier import Bag, Classifier
from seqloom.models.ensemble import ClassifierEnsemble, StepperEnsemble, TaggerEnsemble, log_mean
from seqloom.models.tagger import Tagger
from seqloom.training.objectives.tags import allowed_moves
from seqloom.training.objectives.teacher_forcing import TeacherForcing
from seqloom.training.validation import validation_loss
from tests import laws
from tests.laws import VOCABULARY, Stepping, make_module, shake, source_rows, tiny_model

FAMILIES = (
    ("rnn", {"kind": "recurrent", "cell": "rnn"}),
    ("transformer", {"kind": "transformer"}),
    ("lstm", {"kind": "attentive", "cell": "lstm"}),
)


def writers(seed=0, dtype=torch.float64, device="cpu"):
    return make_module(lambda: StepperEnsemble([tiny_model(*family) for family in FAMILIES]), seed, dtype, device)


def stepping(seed=0, dtype=torch.float64, device="cpu"):
    module, source = writers(seed, dtype, device), source_rows(device)

    def draw(r, t):
        return torch.randint(VOCABULARY, (r, t), generator=torch.Generator().manual_seed(8)).to(device)

    return Stepping(module, lambda width, room: module.start(source, width=width, room=room), module.step, draw)


@pytest.mark.parametrize("law", [laws.prefix, laws.causality, laws.picking, laws.devices])
def test_an_ensemble_steps_by_the_laws(law):
    law(stepping)


def test_every_step_is_the_mean_of_the_probabilities():
    model, source = writers(), source_rows()
    tokens = torch.randint(3, VOCABULARY, (3, 5), generator=torch.Generator().manual_seed(1))
    state, own = model.start(source), [member.start(source) for member in model.members]
    for t in range(5):
        said, state = model.step(tokens[:, t : t + 1], state)
        total = 0.0
        for place, member in enumerate(model.members):
            logits, own[place] = member.step(tokens[:, t : t + 1], own[place])
            total = total + logits.exp() / logits.exp().sum(-1, keepdim=True)
        assert torch.allclose(said.exp(), total / 3, atol=1e-12)
        assert not torch.allclose(said, logits.log_softmax(-1), atol=1e-3), "members that agree would prove nothing"
    forced = model(source, tokens)
    assert torch.allclose(forced[:, -1:], said, atol=1e-12)
    assert torch.equal(model(source, tokens, torch.tensor([0, 7])), forced.flatten(0, 1)[[0, 7]])


def test_no_probability_is_lost():
    far = torch.tensor([[0.0, -2000.0]], dtype=torch.float64)
    assert log_mean([far, far])[0].tolist() == pytest.approx([0.0, -2000.0])
    assert log_mean([far.to(torch.bfloat16)]).dtype == torch.float32


def test_perplexity_is_that_of_the_mean():
    model, source, target = writers(), source_rows(), pad([[BOS, 5, 6, EOS], [BOS, EOS], [BOS, 7, EOS]])
    found = validation_loss(TeacherForcing(model), [Batch.of(source, target)], torch.device("cpu"))
    total = count = 0
    for row, length in enumerate(target.host):
        for t in range(length - 1):
            one = source.part(row, row + 1), target.tokens[row : row + 1, : t + 1]
            each = [member(*one)[0, -1].softmax(-1)[target.tokens[row, t + 1]] for member in model.members]
            total, count = total - (sum(each) / len(each)).log().item(), count + 1
    assert found["loss"] == pytest.approx(total / count, abs=1e-6)  # the loss is counted in float32


@pytest.mark.parametrize("kind", ["label", "labels", "number"])
def test_labels_and_numbers(kind):
    torch.manual_seed(3)
    outputs, source = 1 if kind == "number" else 4, source_rows()
    members = [Classifier(VOCABULARY, outputs, "gru", embedding=6), Bag(VOCABULARY, outputs)]
    members = [shake(member.double(), 5 + place).eval() for place, member in enumerate(members)]
    said, each = ClassifierEnsemble(members, kind)(source), [member(source) for member in members]
    by_hand = {
        "label": lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
        "labels": lambda x: 1 / (1 + (-x).exp()),
        "number": lambda x: x,
    }[kind]
    assert torch.allclose(by_hand(said), (by_hand(each[0]) + by_hand(each[1])) / 2, atol=1e-12)
    assert not torch.allclose(each[0], each[1], atol=1e-2)


NAMES = ("O", "B-X", "I-X")


def taggers(outputs):
    lexicon = Lexicon(Codec.build("words", ["a b c d"]), Codec.build("chars", ["abcd"]))
    torch.manual_seed(1)
    sizes = {"source_size": lexicon.words.size, "characters_size": lexicon.characters.size, "tags": 3, "rare": 99}
    encoders = itertools.cycle(("gru", "lstm"))
    members = [Tagger(**sizes, encoder=next(encoders), output=output, embedding=8) for output in outputs]
    members = [shake(member.double(), 7 + place).eval() for place, member in enumerate(members)]
    return members, lexicon.words_of([tuple("abc"), tuple("db"), tuple("c")])


def enumerated(member, source, row, length):
    """The marginals of one sentence from the likelihood of every row of tags."""
    alone = torch.zeros(length, 3, dtype=torch.float64)
    for tags in itertools.product(range(3), repeat=length):
        wanted = torch.zeros(len(source.lengths), int(source.lengths.max()), dtype=torch.long)
        wanted[row, :length] = torch.tensor(tags)
        probability = member(source, wanted)[row].exp()
        for place, tag in enumerate(tags):
            alone[place, tag] += probability
    return alone


@pytest.mark.parametrize("outputs", [("softmax", "softmax"), ("crf", "crf"), ("crf", "softmax", "crf")], ids="-".join)
@torch.no_grad()
def test_tags_are_the_best_of_the_mean_marginals(outputs):
    members, source = taggers(outputs)
    model = TaggerEnsemble(members)
    found = model.best(source)
    for row, length in enumerate(source.lengths.tolist()):
        each = [enumerated(member, source, row, length) for member in members]
        mean = sum(each) / len(each)
        assert torch.allclose(model.scores(source)[row, :length].exp(), mean, atol=1e-9)
        assert found.tags[row, :length].tolist() == mean.argmax(-1).tolist()
        assert found.marginals[row, :length].exp().tolist() == pytest.approx(mean.max(-1).values.tolist())


@torch.no_grad()
def test_a_scheme_is_kept_to():
    members, source = taggers(("crf", "softmax"))
    with torch.no_grad():
        members[0].score.bias += torch.tensor([0.0, -3.0, 3.0])  # I-X first, which no row may begin with
    model, allowed = TaggerEnsemble(members), allowed_moves(Tags(NAMES, "bio"))
    assert allowed is not None
    free, found, logs = model.best(source), model.best(source, allowed), model.scores(source)
    assert free.tags.tolist() != found.tags.tolist()
    for row, length in enumerate(source.lengths.tolist()):
        rows = [
            tags
            for tags in itertools.product(range(3), repeat=length)
            if allowed.start[tags[0]] and all(allowed.move[pair] for pair in itertools.pairwise(tags))
        ]
        best = max(rows, key=lambda tags: sum(logs[row, place, tag] for place, tag in enumerate(tags)))
        assert tuple(found.tags[row, :length].tolist()) == best
