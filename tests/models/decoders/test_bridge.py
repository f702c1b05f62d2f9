"""How a decoder starts from what was read, and the conventions of each decoder."""

import pytest
import torch

from seqloom.errors import SeqloomError
from seqloom.models.decoders.attentive import AttentiveDecoder
from seqloom.models.decoders.bridge import Bridge
from seqloom.models.decoders.recurrent import RecurrentDecoder
from seqloom.models.decoders.transformer import TransformerDecoder
from seqloom.models.encoders.recurrent import RecurrentEncoder
from seqloom.models.encoders.transformer import TransformerEncoder
from seqloom.models.protocols import Encoded
from seqloom.parts.visibility import Visibility
from tests.laws import close, drawn, shake

LENGTHS = torch.tensor([4, 2])
TWO_LAYERS = ((6, 6), (6, 6))


def encoded(final_dims=TWO_LAYERS):
    states = drawn(2, 4, 6)
    final = tuple(
        tuple(drawn(2, d, seed=10 * layer + part) for part, d in enumerate(dims))
        for layer, dims in enumerate(final_dims)
    )
    return Encoded(states=states, lengths=LENGTHS, summary=drawn(2, 6, seed=99), final=final)


def test_last_hands_states_over_as_they_are():
    bridge, read = Bridge("last", 6, TWO_LAYERS, TWO_LAYERS), encoded()
    assert not list(bridge.parameters())
    for found, wanted in zip(bridge(read), read.final, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_layers_are_matched_from_the_top():
    read = encoded()
    (top,) = Bridge("last", 6, TWO_LAYERS, ((6, 6),))(read)
    assert torch.equal(top[0], read.final[1][0])
    below, middle, top = Bridge("last", 6, TWO_LAYERS, ((6, 6),) * 3).double()(read)
    assert torch.equal(top[0], read.final[1][0])
    assert torch.equal(middle[1], read.final[0][1])
    assert below[0].shape == (2, 6)


def test_a_part_the_encoder_does_not_have_comes_from_the_summary():
    """A GRU has no c: an LSTM decoder's c is a linear map of the summary."""
    bridge, read = shake(Bridge("last", 6, ((6,),), ((6, 6),)).double(), 1), encoded(((6,),))
    ((h, c),) = bridge(read)
    assert torch.equal(h, read.final[0][0])
    close(c, bridge.maps["0-1"](read.summary))


def test_other_widths_go_through_a_linear_map():
    bridge, read = shake(Bridge("last", 6, TWO_LAYERS, ((5, 5), (5, 5))).double(), 1), encoded()
    close(bridge(read)[0][1], bridge.maps["0-1"](read.final[0][1]))


def test_transform_squashes_h_and_not_c():
    bridge, read = shake(Bridge("transform", 6, TWO_LAYERS, TWO_LAYERS).double(), 1), encoded()
    h, c = bridge(read)[1]
    close(h, bridge.maps["1-0"](read.final[1][0]).tanh())
    close(c, bridge.maps["1-1"](read.final[1][1]))


def test_pool_takes_the_mean_over_real_places():
    bridge, read = shake(Bridge("pool", 6, TWO_LAYERS, ((6, 6),)).double(), 1), encoded()
    ((h, c),) = bridge(read)
    mean = torch.stack([read.states[0].mean(0), read.states[1, :2].mean(0)])
    close(h, bridge.maps["0-0"](mean).tanh())
    close(c, bridge.maps["0-1"](mean))


def test_zero_hands_nothing_over():
    bridge = Bridge("zero", 6, TWO_LAYERS, ((5, 5),))
    assert not list(bridge.parameters())
    ((h, c),) = bridge(encoded())
    assert h.shape == c.shape == (2, 5)
    assert not h.any()
    assert not c.any()


def test_an_encoder_without_states_gives_its_summary():
    bridge, read = shake(Bridge("last", 6, (), ((5, 5),)).double(), 1), encoded(())
    close(bridge(read)[0][0], bridge.maps["0-0"](read.summary))


@pytest.mark.parametrize("given", ["initial", "input", "both"])
@pytest.mark.parametrize("context", ["last", "transform", "pool"])
def test_where_the_context_goes(context, given):
    decoder = shake(RecurrentDecoder(3, 6, ((6,),), "gru", 6, context=context, context_to=given).double(), 1)
    read, x = encoded(((6,),)), drawn(2, 3, 3)
    y, _ = decoder(x, decoder.begin(read))
    mean = torch.stack([read.states[0].mean(0), read.states[1, :2].mean(0)])
    start = {"last": read.final[0][0], "transform": read.final[0][0], "pool": mean}[context]
    vector = {"last": read.summary, "transform": read.summary, "pool": mean}[context]
    if given == "input":
        start = torch.zeros_like(start)
    elif context != "last":
        start = decoder.bridge.maps["0-0"](start).tanh()
    if given != "initial":
        vector = decoder.transform(vector).tanh() if context == "transform" else vector
        x = torch.cat([x, vector[:, None].expand(-1, 3, -1)], -1)
    close(y, decoder.recurrent(x, Visibility(), ((start,),))[0])


def naive_attentive(decoder, x, read):
    """The papers' loops, one step and one row of tensors at a time."""
    stack, memory = decoder.bridge(read), decoder.attention.project_memory(read.states)
    visible, fed, out = Visibility(lengths=read.lengths), x.new_zeros(x.size(0), decoder.dim), []
    for t in range(x.size(1)):
        word = x[:, t]
        if decoder.query == "previous":  # c_t from s_{t−1}; s_t = cell([y; c_t], s_{t−1})
            context = decoder.attention(stack[-1][0][:, None], memory, visible)[:, 0]
            _, stack = decoder.recurrent(torch.cat([word, context], -1)[:, None], Visibility(), stack)
        else:  # h_t = cell([y; h̃_{t−1}], h_{t−1}); c_t from h_t
            word = torch.cat([word, fed], -1) if decoder.input_feeding else word
            _, stack = decoder.recurrent(word[:, None], Visibility(), stack)
            context = decoder.attention(stack[-1][0][:, None], memory, visible)[:, 0]
        fed = torch.tanh(torch.cat([context, stack[-1][0]], -1) @ decoder.combine.weight.T)
        out.append(fed)
    return torch.stack(out, 1)


@pytest.mark.parametrize(("query", "feeding"), [("previous", False), ("current", False), ("current", True)])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("value_dim", [0, 5])
def test_attentive_decoder_is_the_papers_loop(query, feeding, cell, value_dim):
    made = AttentiveDecoder(
        3, 6, TWO_LAYERS, cell, 6, 2, score="additive", query=query, input_feeding=feeding, value_dim=value_dim
    )
    decoder, read, x = shake(made.double(), 1), encoded(), drawn(2, 5, 3)
    close(decoder(x, decoder.begin(read))[0], naive_attentive(decoder, x, read))


def test_feeding_goes_with_the_current_state():
    with pytest.raises(SeqloomError, match="input_feeding goes with query=current"):
        AttentiveDecoder(3, 6, (), query="previous", input_feeding=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AttentiveDecoder(3, 6, (), query="curent"), "unknown query 'curent'; did you mean 'current'"),
        (lambda: AttentiveDecoder(3, 6, (), initial_state="lst"), "unknown initial_state 'lst'; did you mean 'last'"),
        (lambda: RecurrentDecoder(3, 6, (), context="mean"), "unknown context 'mean'.*last, pool, transform"),
        (lambda: RecurrentDecoder(3, 6, (), context="zero"), "unknown context 'zero'.*last, pool, transform"),
        (lambda: RecurrentDecoder(3, 6, (), context_to="inputs"), "unknown context_to 'inputs'; did you mean 'input'"),
        (lambda: AttentiveDecoder(3, 6, (), dim=5, score="dot"), "'dot' needs queries and keys of one width"),
        (lambda: TransformerDecoder(8, 8, (), dim=8, heads=3), "3 heads do not divide"),
    ],
)
def test_wrong_settings_are_named(make, message):
    with pytest.raises(SeqloomError, match=message):
        make()


def test_the_summary_of_a_recurrent_encoder_is_the_last_real_state_of_each_direction():
    encoder = shake(RecurrentEncoder(3, "lstm", 4, layers=2).double(), 1)
    read = encoder(drawn(2, 4, 3), LENGTHS)
    close(read.summary[1, :4], read.states[1, 1, :4])
    close(read.summary[1, 4:], read.states[1, 0, 4:])
    assert [tuple(part.shape[1] for part in layer) for layer in read.final] == [tuple(d) for d in encoder.final_dims]
    assert len(read.layers) == 2
    assert torch.equal(read.layers[-1], read.states)


def test_the_summary_of_a_transformer_is_the_mean_over_real_places():
    encoder = shake(TransformerEncoder(8, 8, 2, 2, 12, dropout=0.0).double(), 1)
    read = encoder(drawn(2, 4, 8), LENGTHS)
    close(read.summary[1], read.states[1, :2].mean(0))
    assert encoder.final_dims == ()
    close(read.states, encoder.norm(read.layers[-1]))
