"""Every encoder with every variant of every decoder: one product, no special cases."""

from itertools import product

import pytest
import torch

from seqloom.data.batches.collate import Batch, pad
from seqloom.data.tokenizers.tokenizers import BOS, EOS
from seqloom.decoding.search import decode
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError
from seqloom.training.checkpoint import load_weights, read_tensors, save_weights, weights
from seqloom.training.objectives.teacher_forcing import TeacherForcing
from tests.laws import close, decoder_choices, encoder_choices, named, shake, source_rows, tiny_model

ENCODERS, DECODERS = encoder_choices(), decoder_choices()
TARGET = pad([[BOS, 4, 5, 6, EOS], [BOS, 7, EOS], [BOS, 8, 8, 4, 5, EOS]])
LIMITS = [7, 4, 6]
# Each decoder's whole life once, with the encoders in turn, and each kind of decoder once with every encoder.
LIVES = [(ENCODERS[i % len(ENCODERS)], choice) for i, choice in enumerate(DECODERS)]
LIVES += [pair for pair in product(ENCODERS, DECODERS[4::13]) if pair not in LIVES]


def both(pair):
    return f"{pair[0]['kind']}+{named(pair[1])}"


@pytest.mark.parametrize("decoder", DECODERS, ids=named)
@pytest.mark.parametrize("encoder", ENCODERS, ids=named)
def test_stepping_is_teacher_forcing(encoder, decoder):
    torch.manual_seed(0)
    model = shake(tiny_model(encoder, decoder).double(), 1)
    source, tokens = source_rows(), TARGET.tokens[:, :-1]
    with torch.no_grad():
        wanted = model(source, tokens)
        state, found = model.start(source, room=tokens.size(1)), []
        for t in range(tokens.size(1)):
            logits, state = model.step(tokens[:, t : t + 1], state)
            found.append(logits)
    close(torch.cat(found, 1), wanted)


@pytest.mark.parametrize("pair", LIVES, ids=both)
def test_trains_decodes_saves_and_loads(pair, tmp_path):
    torch.manual_seed(0)
    model, source = tiny_model(*pair), source_rows()
    learn(model, Batch.of(source, TARGET))
    searches = (Search(), Search(beam=3, n_best=2))
    found = [decode(model, source, LIMITS, search) for search in searches]
    for answers in found:
        assert [len(hypotheses) for hypotheses in answers] == ([1] * 3 if answers is found[0] else [2] * 3)
        assert all(len(answer[0].tokens) <= limit for answer, limit in zip(answers, LIMITS, strict=True))
    save_weights(tmp_path / "w", weights(model))
    torch.manual_seed(1)
    other = tiny_model(*pair).eval()
    assert [decode(other, source, LIMITS, search) for search in searches] != found
    load_weights(other, read_tensors(tmp_path / "w"), "w")
    assert [decode(other, source, LIMITS, search) for search in searches] == found


def learn(model, batch, steps=4):
    """The loss falls, and every weight that can matter has moved."""
    objective, before = TeacherForcing(model.train()), {n: p.clone() for n, p in model.named_parameters()}
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(steps):
        loss = objective(batch)
        optimiser.zero_grad()
        (loss.total / loss.count).backward()
        optimiser.step()
        losses.append(loss.total.item())
    assert losses[-1] < losses[0]
    still = [name for name, p in model.named_parameters() if torch.equal(p, before[name]) or p.grad is None]
    assert not still, f"these never learn: {still}"
    model.eval()


def test_a_source_reads_the_same_in_any_company():
    """What stands in padded places of the source never shows in the logits, nor do the other rows."""
    for encoder, decoder in LIVES[::4]:
        torch.manual_seed(0)
        model = shake(tiny_model(encoder, decoder).double(), 1)
        source, tokens = source_rows(), TARGET.tokens[:, :-1]
        junk = source.tokens.masked_fill(source.tokens == 0, 5)
        together = model(source, tokens)
        close(model(type(source)(junk, source.lengths, source.host), tokens), together)
        for row in range(3):
            close(model(source.part(row, row + 1), tokens[row : row + 1]), together[row : row + 1])


def test_index_takes_real_places_only():
    torch.manual_seed(0)
    model = tiny_model("gru", "attentive").double().eval()
    batch = Batch.of(source_rows(), TARGET)
    tokens = batch.target.tokens[:, :-1]
    whole = model(batch.source, tokens)
    close(model(batch.source, tokens, batch.index), whole.flatten(0, 1)[batch.index])
    real = batch.target.tokens[:, 1:] != 0
    close(whole[real], whole.flatten(0, 1)[batch.index])


def test_the_loss_is_the_sum_over_real_tokens():
    torch.manual_seed(0)
    model = tiny_model("lstm", "attentive").eval()
    batch = Batch.of(source_rows(), TARGET)
    loss = TeacherForcing(model).eval()(batch)
    total = 0.0
    for row in range(3):
        one = TARGET.tokens[row, : TARGET.host[row]]
        logits = model(batch.source.part(row, row + 1), one[None, :-1])[0].log_softmax(-1)
        total -= logits.gather(1, one[1:, None]).sum().item()
    assert loss.count == sum(TARGET.host) - 3
    assert loss.total.item() == pytest.approx(total, rel=1e-5)


def test_smoothing_belongs_to_training_alone():
    torch.manual_seed(0)
    model = tiny_model("lstm", "attentive")
    batch = Batch.of(source_rows(), TARGET)
    plain, smooth = TeacherForcing(model), TeacherForcing(model, label_smoothing=0.3)
    assert smooth.eval()(batch).total.item() == pytest.approx(plain.eval()(batch).total.item())
    assert smooth.train()(batch).total.item() != pytest.approx(plain.train()(batch).total.item())
    logits = model(batch.source, batch.target.tokens[:, :-1], batch.index).log_softmax(-1)
    labels = batch.target.tokens[:, 1:].flatten()[batch.index]
    wanted = -(0.7 * logits.gather(1, labels[:, None])[:, 0] + 0.3 * logits.mean(-1)).sum().item()
    assert smooth.train()(batch).total.item() == pytest.approx(wanted, rel=1e-5)


def test_tied_weights_are_one_matrix():
    model = tiny_model("transformer", "transformer", embedding=8, tie_embeddings=True)
    assert model.output.weight is model.target.weight
    assert sum(name in ("output.weight", "target.weight") for name in weights(model)) == 1
    with pytest.raises(SeqloomError, match=r"tie_embeddings needs decoder\.dim equal to embedding, here 8 and 6"):
        tiny_model("transformer", "transformer", tie_embeddings=True)


def test_two_requests_do_not_meet():
    """Nothing is remembered on the model: two decodings that take turns say what each says alone."""
    for decoder in ("recurrent", "attentive", "transformer"):
        torch.manual_seed(0)
        model = shake(tiny_model("gru", decoder).double(), 1)
        one, other = source_rows().part(0, 1), source_rows().part(1, 2)
        tokens = torch.tensor([[BOS, 4, 5]])
        alone = [model(source, tokens) for source in (one, other)]
        states, found = [model.start(one), model.start(other)], [[], []]
        for t in range(3):
            for i in (0, 1):
                logits, states[i] = model.step(tokens[:, t : t + 1], states[i])
                found[i].append(logits)
        close([torch.cat(part, 1) for part in found], alone)
