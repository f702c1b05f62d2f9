"""`attend` against torch's kernel and against a softmax written out, and the two layers made of it."""

import math

import pytest
import torch
from torch.nn import functional as F

from seqloom.errors import SeqloomError
from seqloom.parts.attention import Attention, MultiHead, attend
from seqloom.parts.probe import watch
from seqloom.parts.score import Dot, Scaled
from seqloom.parts.see import See
from seqloom.parts.state import Cache
from tests.laws import close, drawn, shake

B, HEADS, T, S, D = 3, 2, 5, 5, 4
SCALED = Scaled(D, D)
LENGTHS = torch.tensor([5, 2, 3])


def qkv(t=T, s=S, heads=HEADS):
    shape = (B, heads) if heads else (B,)
    return drawn(*shape, t, D), drawn(*shape, s, D, seed=12), drawn(*shape, s, D, seed=13)


def naive(q, k, v, see):
    """One query and one key at a time: only what may be seen enters the sum; nothing seen gives zeros."""
    out = torch.zeros(*q.shape[:-1], v.size(-1), dtype=q.dtype)
    heads = q.dim() == 4
    for b in range(q.size(0)):
        for h in range(q.size(1) if heads else 1):
            at = (b, h) if heads else (b,)
            for t in range(q.size(-2)):
                seen = [s for s in range(k.size(-2)) if allowed(see, b, t, s)]
                if seen:
                    bias = torch.zeros(q.size(-2), k.size(-2), dtype=q.dtype) if see.bias is None else see.bias
                    bias = bias.expand(*q.shape[:-1], k.size(-2))[at]
                    scores = torch.stack([q[at][t] @ k[at][s] / math.sqrt(D) + bias[t, s] for s in seen])
                    weights = scores.exp() / scores.exp().sum()
                    out[(*at, t)] = sum(w * v[at][s] for w, s in zip(weights, seen, strict=True))
    return out


def allowed(see, b, t, s):
    place = t + see.offset
    return (
        (see.lengths is None or s < see.lengths[b])
        and (not see.causal or s <= place)
        and (see.window is None or abs(place - s) < see.window)
    )


BIAS = drawn(T, S, seed=14)
SEES = {
    "all": See(),
    "causal": See(causal=True),
    "lengths": See(lengths=LENGTHS),
    "window": See(window=2),
    "causal window": See(causal=True, window=2),
    "window lengths": See(window=2, lengths=LENGTHS),
    "bias": See(bias=BIAS),
    "causal bias": See(causal=True, bias=BIAS),
    "lengths bias": See(lengths=LENGTHS, bias=BIAS),
    "everything": See(causal=True, window=3, lengths=LENGTHS, bias=BIAS),
    "nothing": See(lengths=torch.tensor([5, 0, 3])),
    "nothing bias": See(lengths=torch.tensor([5, 0, 3]), bias=BIAS),
}


@pytest.mark.parametrize("path", ["fused", "plain"])
@pytest.mark.parametrize("heads", [2, 0])
@pytest.mark.parametrize("name", list(SEES))
def test_attend_equals_a_softmax_written_out(name, heads, path):
    see, (q, k, v) = SEES[name], qkv(heads=heads)
    found = attend(q, k, v, SCALED, see, None if path == "fused" else lambda weights: None)
    close(found, naive(q, k, v, see))


@pytest.mark.parametrize("path", ["fused", "plain"])
@pytest.mark.parametrize("offset", [0, 2, 4])
@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("t", [1, 3])
def test_queries_after_cached_keys(t, window, offset, path):
    """The first query stands at `offset`: a triangle aligned to the upper left would see too little."""
    q, k, v = qkv(t, offset + t)
    see = See(causal=True, offset=offset, window=window)
    close(attend(q, k, v, SCALED, see, None if path == "fused" else lambda weights: None), naive(q, k, v, see))


def test_one_query_over_five_cached_keys_sees_them_all():
    q, k, v = qkv(1, 5)
    found = attend(q, k, v, SCALED, See(causal=True, offset=4))
    close(found, ((q / 2) @ k.mT).softmax(-1) @ v)
    trap = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    close(trap, v[:, :, :1].expand_as(trap))  # what torch's own flag would do: key 0 alone
    assert not torch.allclose(found, trap)


@pytest.mark.parametrize("path", ["fused", "plain"])
@pytest.mark.parametrize("bias", [None, BIAS], ids=["", "bias"])
def test_a_query_that_sees_nothing_gets_zeros_and_no_nan_in_its_gradients(bias, path):
    q, k, v = (part.requires_grad_() for part in qkv())
    see = See(lengths=torch.tensor([5, 0, 3]), bias=bias)
    out = attend(q, k, v, SCALED, see, None if path == "fused" else lambda weights: None)
    assert out[1].eq(0).all()
    out.sum().backward()
    assert all(part.grad.isfinite().all() for part in (q, k, v))
    assert (((q / 2) @ k.mT).masked_fill(torch.ones(5, 5) > 0, -torch.inf).softmax(-1)).isnan().all()  # the trap


def test_equals_torchs_kernel():
    q, k, v = qkv()
    close(attend(q, k, v, SCALED, See()), F.scaled_dot_product_attention(q, k, v))
    close(attend(q, k, v, SCALED, See(causal=True)), F.scaled_dot_product_attention(q, k, v, is_causal=True))
    mask = (torch.arange(S) < LENGTHS[:, None])[:, None, None]
    close(attend(q, k, v, SCALED, See(lengths=LENGTHS)), F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    close(attend(q, k, v, Dot(D, D), See()), F.scaled_dot_product_attention(q, k, v, scale=1.0))


def test_causal_attention_on_padded_rows_takes_the_kernel_without_a_mask(monkeypatch):
    given = {}

    def spy(q, k, v, **options):
        given.update(options)
        return torch.zeros_like(q)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    monkeypatch.setattr("seqloom.parts.short.CELLS", {4: 0})  # rows as short as these go another way
    attend(*qkv(), SCALED, See(causal=True, lengths=LENGTHS))
    assert given["is_causal"]
    assert given.get("attn_mask") is None
    given.clear()
    attend(*qkv(1, 5), SCALED, See(causal=True, offset=4))
    assert given.get("attn_mask") is None
    assert not given.get("is_causal")


def test_reported_weights_are_a_distribution_over_what_is_seen():
    weights = []
    see = See(causal=True, window=3, lengths=LENGTHS)
    attend(*qkv(), SCALED, see, weights.append)
    (found,) = weights
    assert found.shape == (B, HEADS, T, S)
    for b in range(B):
        for t in range(T):
            seen = torch.tensor([bool(allowed(see, b, t, s)) for s in range(S)])
            assert found[b, 0, t, ~seen].eq(0).all()
            assert found[b, 0, t].sum().item() == pytest.approx(float(seen.any()))


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("value_dim", [0, 6])
def test_hypotheses_are_extra_queries(width, value_dim):
    """R rows over B sentences say what they would say over sentences that were repeated."""
    attention = shake(Attention(4, 5, "additive", value_dim).double(), 1)
    states, query = drawn(B, S, 5), drawn(B * width, 2, 4, seed=3)
    found = attention(query, attention.remember(states), See(lengths=LENGTHS))
    repeated = attention.remember(states.repeat_interleave(width, 0))
    close(found, attention(query, repeated, See(lengths=LENGTHS.repeat_interleave(width))))
    assert found.shape == (B * width, 2, value_dim or 5)
    assert attention.dim == (value_dim or 5)


def test_multi_head_cross_attention_folds_hypotheses():
    cross = shake(MultiHead(8, 2, key_dim=5).double(), 1)
    states, x = drawn(B, S, 5), drawn(B * 4, 2, 8, seed=3)
    found = cross.read(x, cross.remember(states), See(lengths=LENGTHS))
    repeated = cross.remember(states.repeat_interleave(4, 0))
    close(found, cross.read(x, repeated, See(lengths=LENGTHS.repeat_interleave(4))))


@pytest.mark.parametrize("causal", [True, False])
def test_multi_head_equals_torch(causal):
    ours = shake(MultiHead(8, 2).double(), 1)
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64)
    theirs.in_proj_weight.data, theirs.in_proj_bias.data = ours.project.weight.data, ours.project.bias.data
    theirs.out_proj.load_state_dict(ours.out.state_dict())
    x = drawn(B, T, 8)
    hidden = ~torch.ones(T, T).tril().bool() if causal else None
    wanted, weights = theirs(x, x, x, attn_mask=hidden, average_attn_weights=False)
    with watch(ours) as seen:
        close(ours(x, See(causal=causal))[0], wanted)
    close(seen[""][0], weights)


def test_multi_head_cross_attention_equals_torch():
    ours = shake(MultiHead(8, 2, key_dim=5).double(), 1)
    theirs = torch.nn.MultiheadAttention(8, 2, kdim=5, vdim=5, batch_first=True, dtype=torch.float64)
    key, value = ours.project.weight.data.chunk(2)
    theirs.q_proj_weight.data, theirs.k_proj_weight.data, theirs.v_proj_weight.data = ours.query.weight.data, key, value
    theirs.in_proj_bias.data = torch.cat([ours.query.bias.data, ours.project.bias.data])
    theirs.out_proj.load_state_dict(ours.out.state_dict())
    x, states = drawn(B, T, 8), drawn(B, S, 5, seed=2)
    hidden = ~(torch.arange(S) < LENGTHS[:, None])
    wanted, _ = theirs(x, states, states, key_padding_mask=hidden)
    close(ours.read(x, ours.remember(states), See(lengths=LENGTHS)), wanted)


def test_heads_that_do_not_divide_are_named_with_those_that_do():
    with pytest.raises(SeqloomError, match="3 heads do not divide the width 8; choose from: 1, 2, 4, 8"):
        MultiHead(8, 3)


def test_a_model_whose_heads_do_not_divide_says_so():
    """The same sentence reaches whoever builds a model, also with positions that look at the width of a head."""
    from seqloom.models.encoders import TransformerEncoder

    for position in ("sinusoidal", "rotary"):
        with pytest.raises(SeqloomError, match="3 heads do not divide the width 8"):
            TransformerEncoder(8, dim=8, heads=3, position=position)


def test_without_bias():
    layer = MultiHead(8, 2, key_dim=5, bias=False)
    assert {name for name, _ in layer.named_parameters()} == {"query.weight", "project.weight", "out.weight"}


def test_self_attention_with_a_cache_stands_after_what_it_holds():
    layer, cache = shake(MultiHead(8, 2).double(), 1), Cache()
    x = drawn(B, T, 8)
    whole, _ = layer(x, See(causal=True))
    layer(x[:, :4], See(causal=True), cache)
    close(layer(x[:, 4:], See(causal=True), cache)[0], whole[:, 4:])
    assert cache.used == T


def test_stacked_matrices_start_as_separate_ones_would():
    torch.manual_seed(0)
    layer, cross = MultiHead(64, 4), MultiHead(64, 4, key_dim=32)
    assert layer.project.weight.abs().max().item() == pytest.approx((6 / 128) ** 0.5, rel=0.02)
    assert cross.project.weight.abs().max().item() == pytest.approx((6 / 96) ** 0.5, rel=0.02)
    assert layer.project.bias.eq(0).all()
