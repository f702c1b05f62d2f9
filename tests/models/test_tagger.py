"""The laws, for taggers: any encoder, any spelling, either output; and what the baselines say."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqloom.build import build, complete
from seqloom.data.batches.tags import TagOptions
from seqloom.data.encoding.tag_schemes import violations
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.prepare.tags import prepare_tags
from seqloom.data.tokenizers.tokenizers import UNK
from seqloom.errors import SeqloomError
from seqloom.models.encoders import ENCODERS
from seqloom.models.encoders.characters import CHARACTER_ENCODERS
from seqloom.models.tagger import TAGGERS, Tagger
from seqloom.parts.layers.crf import TAG_OUTPUTS
from seqloom.tasks.tag.presets import ABOUT, PRESETS, SIZES, preset, suited
from seqloom.training.checkpoint import load_weights, read_tensors, save_weights, weights
from seqloom.training.loop import Loop
from seqloom.training.objectives.tags import TagLikelihood, allowed_moves, tag_scores
from seqloom.training.settings import Training
from tests.laws import close, shake, small
from tests.tagging import names, sentences, write_tags

CPU = torch.device("cpu")
PAIRS = [
    *(("lstm", spelling, output) for spelling in CHARACTER_ENCODERS for output in TAG_OUTPUTS),
    *((encoder, "convolution", "crf") for encoder in ENCODERS),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    file = write_tags(tmp_path_factory.mktemp("tags") / "x.tsv", sentences(60))
    return prepare_tags(PrepareRequest([str(file)], 0.0, TagOptions(), seed=1))


@pytest.fixture(scope="module")
def spans(tmp_path_factory):
    file = write_tags(tmp_path_factory.mktemp("tags") / "x.tsv", names(60))
    return prepare_tags(PrepareRequest([str(file)], 0.0, TagOptions(), seed=1))


def sizes(data):
    lexicon = data.lexicon
    known = {"source_size": lexicon.words.size, "characters_size": lexicon.characters.size}
    return {**known, "tags": len(data.tags.names), "rare": data.rare}


def tagger(data, encoder="lstm", spelling="lstm", output="crf", seed=0) -> Tagger:
    choices = {"encoder": small(ENCODERS, encoder, dim=8), "characters": small(CHARACTER_ENCODERS, spelling, dim=6)}
    model = Tagger(**sizes(data), **choices, output=output, embedding=8, dropout=0.0).double()
    return shake(model, seed)  # pyright: ignore[reportReturnType]


def test_the_straight_path_adds_what_a_word_says_by_itself(data):
    plain = tagger(data).eval()
    wide = Tagger(**sizes(data), encoder=small(ENCODERS, "lstm", dim=8),
                  characters=small(CHARACTER_ENCODERS, "lstm", dim=6),
                  embedding=8, dropout=0.0, skip_connection=True).double().eval()  # fmt: skip
    missing = wide.load_state_dict(plain.state_dict(), strict=False).missing_keys
    assert missing == ["straight.weight"]
    words = data.train.batch(np.arange(5)).source
    wanted = plain.scores(words) + plain.read(words) @ wide.straight.weight.mT  # pyright: ignore
    torch.testing.assert_close(wide.scores(words), wanted)


def alone(data, row):
    return data.train.batch(np.array([row]))


@pytest.mark.parametrize(("encoder", "spelling", "output"), PAIRS)
def test_a_sentence_says_the_same_alone_and_in_any_batch(data, encoder, spelling, output):
    model, batch = tagger(data, encoder, spelling, output), data.train.batch(np.arange(6))
    found, likelihood = model.best(batch.source), model(batch.source, batch.tags)
    for row, length in enumerate(batch.source.tokens.host):
        one = alone(data, row)
        close(model(one.source, one.tags), likelihood[row : row + 1], 1e-9)
        own = model.best(one.source)
        assert own.tags[0].tolist() == found.tags[row, :length].tolist()
        close(own.marginals[0], found.marginals[row, :length], 1e-9)
        close(own.likelihood[0], found.likelihood[row], 1e-9)


@pytest.mark.parametrize("spelling", CHARACTER_ENCODERS)
def test_padding_changes_nothing(data, spelling):
    model, batch = tagger(data, spelling=spelling), data.train.batch(np.arange(6))
    wanted = model(batch.source, batch.tags)
    words, characters = batch.source.tokens, batch.source.characters
    for padded in (words, characters):
        for row, length in enumerate(padded.host):
            padded.tokens[row, length:] = 5
    for row, length in enumerate(words.host):
        batch.source.index[row, length:] = 1
        batch.tags[row, length:] = 2
    close(model(batch.source, batch.tags), wanted)


@pytest.mark.parametrize("output", TAG_OUTPUTS)
def test_single_precision_and_saving(data, output, tmp_path):
    model, batch = tagger(data, output=output), data.train.batch(np.arange(6))
    wanted = model(batch.source, batch.tags)
    save_weights(tmp_path / "weights.safetensors", weights(model))
    other = tagger(data, output=output, seed=3)
    assert not torch.equal(other(batch.source, batch.tags), wanted)
    load_weights(other, read_tensors(tmp_path / "weights.safetensors"), "weights.safetensors")
    assert torch.equal(other(batch.source, batch.tags), wanted)
    found = model.float()(batch.source, batch.tags)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        half = model(batch.source, batch.tags)
    torch.testing.assert_close(half.double(), wanted, rtol=0.05, atol=0.5)


@pytest.mark.parametrize("output", TAG_OUTPUTS)
def test_two_guesses_should_agree_about_every_word(data, output):
    """Without dropout there is nothing to disagree about; with it, by hand from what both passes say."""
    model, batch = tagger(data, output=output).train(), data.train.batch(np.arange(7))
    model.unk_rate = 0.0
    plain, twice = TagLikelihood(model)(batch), TagLikelihood(model, r_drop=5.0)(batch)
    close(twice.total, plain.total, 1e-9)
    assert twice.count == plain.count
    model.dropout = 0.4
    torch.manual_seed(1)
    found = TagLikelihood(model, r_drop=5.0)(batch).total
    torch.manual_seed(1)
    wanted = 0.0
    both = [model.scores(batch.source) for _ in range(2)]
    for row, length in enumerate(batch.source.tokens.host):
        one, other = (scores[row : row + 1, :length] for scores in both)
        p, q = (model.output.marginals(scores, None)[0] for scores in (one, other))
        apart = ((p.exp() * (p - q)).sum() + (q.exp() * (q - p)).sum()) / 2
        nats = sum(-model.output(scores, batch.tags[row : row + 1, :length], None).sum() for scores in (one, other))
        wanted += (nats + 5.0 * apart) / 2
    close(found, wanted, 1e-9)
    judged = TagLikelihood(model, r_drop=5.0).eval()
    close(judged(batch).total, -model(batch.source, batch.tags).sum(), 1e-9)


@pytest.mark.parametrize("agreement", [0.0, 2.0])
def test_a_batch_in_pieces_has_the_same_gradient(data, agreement):
    model, batch = tagger(data), data.train.batch(np.arange(7))
    model.unk_rate = 0.0
    objective = TagLikelihood(model, r_drop=agreement)

    def gradient(parts):
        model.zero_grad()
        for part in parts:
            objective(part).total.backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    whole = gradient([batch])
    close(gradient(batch.micro_batches(3)), whole, 1e-9)
    close(gradient([*batch.micro_batches(2), batch.zero_weight_row()]), whole, 1e-9)
    assert objective(batch.zero_weight_row()).count == 0
    assert all(not slope.any() for slope in gradient([batch.zero_weight_row()]))


def test_rare_words_become_unknown_in_training_alone(data):
    model, batch = tagger(data, spelling="none"), data.train.batch(np.arange(40))
    tokens = batch.source.tokens.tokens
    vectors = model.source.weight
    rare, seen = tokens >= data.rare, model.read(batch.source)
    assert rare.sum() > 20
    close(seen, vectors[tokens])
    model.train()
    torch.manual_seed(1)
    trained = model.read(batch.source)
    hidden = (trained == vectors[UNK]).all(-1)
    assert not (hidden & ~rare).any()
    assert 0.3 < hidden[rare].double().mean() < 0.7
    torch.manual_seed(1)
    assert torch.equal(model.read(batch.source), trained)  # all chance comes from the global generator


def test_unseen_words_are_told_apart_by_their_characters(data):
    model = tagger(data)
    words = data.lexicon.words_of([["the", "wotzo"], ["the", "wotzas"]])
    assert (words.tokens.tokens[:, 1] == UNK).all()
    scores = model.scores(words)
    assert not torch.allclose(scores[0, 1], scores[1, 1])
    plain = tagger(data, spelling="none").scores(words)
    close(plain[0], plain[1])


def trained(data, config, steps, rate=1e-2):
    torch.manual_seed(1)
    model = build(TAGGERS, complete(TAGGERS, config), **sizes(data))
    settings = Training(max_steps=steps, batch_rows=16, learning_rate=rate, warmup=10, seed=3)
    objective = TagLikelihood(model)
    for _ in Loop(objective, data.train, settings, CPU):
        pass
    return objective, settings


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in ("majority", "window")])
def test_thirty_two_sentences_are_learned_by_heart(name, tmp_path):
    data = prepare_tags(PrepareRequest([str(write_tags(tmp_path / "x.tsv", sentences(32)))], 0.0, TagOptions(), seed=1))
    config = {"kind": "tagger", **preset(name, "tiny"), "dropout": 0.0, "unk_rate": 0.0}
    config["encoder"] |= {"dropout": 0.0}
    steps, rate = (150, 2e-3) if "transformer" in name else (60, 1e-2)
    objective, settings = trained(data, config, steps, rate)
    assert tag_scores(objective, data.train, data.tags, settings, CPU)["accuracy"] == 100.0


def test_spans_are_learned_by_heart_and_never_broken(spans):
    objective, settings = trained(spans, {"kind": "tagger", **preset("lstm-crf", "tiny"), "dropout": 0.0}, 150)
    scores = tag_scores(objective, spans.train, spans.tags, settings, CPU)
    assert scores["f1"] == 100.0
    allowed = allowed_moves(spans.tags)
    fresh = tagger(spans, output="softmax").float()
    batch = spans.train.batch(np.arange(40))
    for row, length in zip(fresh.best(batch.source, allowed).tags.tolist(), batch.source.tokens.host, strict=True):
        assert not list(violations([spans.tags.names[tag] for tag in row[:length]], "bio"))


def test_majority_counts(tmp_path):
    rows = [[("a", "X"), ("a", "X"), ("a", "Y"), ("b", "Y")], [("c", "X"), ("b", "Y"), ("d", "X")]]
    data = prepare_tags(PrepareRequest([str(write_tags(tmp_path / "x.tsv", rows))], 0.0, TagOptions(), seed=1))
    model = build(TAGGERS, "majority", **sizes(data))
    model.fit(data.train)
    found = model.best(data.lexicon.words_of([["a", "b", "c", "new"]]))
    assert [data.tags.names[tag] for tag in found.tags[0]] == ["X", "Y", "X", "X"]
    assert model.scores(data.lexicon.words_of([["a", "new"]])).exp().sum(-1)[0].tolist() == pytest.approx([1, 1])
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_presets_are_whole(data):
    assert set(PRESETS) == set(ABOUT)
    for name in PRESETS:
        for size in SIZES["recurrent"]:
            config = {"kind": "tagger", **preset(name, size)}
            Training.of(suited(config))
            if size == "tiny":
                model = build(TAGGERS, complete(TAGGERS, config), **sizes(data))
                batch = data.train.batch(np.arange(3))
                assert model(batch.source, batch.tags).shape == (3,)


def test_wrong_settings():
    with pytest.raises(SeqloomError, match="unk_rate is a probability"):
        Tagger(9, 9, 3, 9, unk_rate=1.5)
    with pytest.raises(SeqloomError, match="window is odd"):
        build(ENCODERS, {"kind": "window", "window": 4}, input_dim=3)
    with pytest.raises(SeqloomError, match="did you mean 'crf'"):
        complete(TAGGERS, {"kind": "tagger", "output": "crff"})
