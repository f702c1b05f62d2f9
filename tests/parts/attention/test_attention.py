"""`attend` against torch's kernel and against a softmax written out, and the two layers made of it."""

import math

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from seqloom.errors import SeqloomError
from seqloom.fast.attention import short_gpu
from seqloom.fast.attention.multi_head_gpu import DeferredCache, standard
from seqloom.parts.attention.attend import attend
from seqloom.parts.attention.kv_cache import Cache
from seqloom.parts.attention.multi_head import MultiHeadAttention
from seqloom.parts.attention.normalizers import NORMALIZERS
from seqloom.parts.attention.scores import Dot, Scaled
from seqloom.parts.attention.single_head import Attention
from seqloom.parts.positions.position_table import POSITIONS
from seqloom.parts.probe import watch
from seqloom.parts.visibility import Visibility
from tests.laws import close, drawn, shake

B, HEADS, T, S, D = 3, 2, 5, 5, 4
SCALED = Scaled(D, D)
LENGTHS = torch.tensor([5, 2, 3])


def qkv(t=T, s=S, heads=HEADS):
    shape = (B, heads) if heads else (B,)
    return drawn(*shape, t, D), drawn(*shape, s, D, seed=12), drawn(*shape, s, D, seed=13)


def naive(q, k, v, visible):
    """One query and one key at a time: only visible keys enter the sum; without any the output is zero."""
    out = torch.zeros(*q.shape[:-1], v.size(-1), dtype=q.dtype)
    heads = q.dim() == 4
    for b in range(q.size(0)):
        for h in range(q.size(1) if heads else 1):
            at = (b, h) if heads else (b,)
            for t in range(q.size(-2)):
                seen = [s for s in range(k.size(-2)) if allowed(visible, b, t, s)]
                if seen:
                    bias = torch.zeros(q.size(-2), k.size(-2), dtype=q.dtype) if visible.bias is None else visible.bias
                    bias = bias.expand(*q.shape[:-1], k.size(-2))[at]
                    scores = torch.stack([q[at][t] @ k[at][s] / math.sqrt(D) + bias[t, s] for s in seen])
                    weights = scores.exp() / scores.exp().sum()
                    out[(*at, t)] = sum(w * v[at][s] for w, s in zip(weights, seen, strict=True))
    return out


def allowed(visible, b, t, s):
    query = t + visible.offset
    return (
        (visible.lengths is None or s < visible.lengths[b])
        and (not visible.causal or s <= query)
        and (visible.window is None or abs(query - s) < visible.window)
    )


BIAS = drawn(T, S, seed=14)
VISIBILITIES = {
    "all": Visibility(),
    "causal": Visibility(causal=True),
    "lengths": Visibility(lengths=LENGTHS),
    "window": Visibility(window=2),
    "causal window": Visibility(causal=True, window=2),
    "window lengths": Visibility(window=2, lengths=LENGTHS),
    "bias": Visibility(bias=BIAS),
    "causal bias": Visibility(causal=True, bias=BIAS),
    "lengths bias": Visibility(lengths=LENGTHS, bias=BIAS),
    "everything": Visibility(causal=True, window=3, lengths=LENGTHS, bias=BIAS),
    "nothing": Visibility(lengths=torch.tensor([5, 0, 3])),
    "nothing bias": Visibility(lengths=torch.tensor([5, 0, 3]), bias=BIAS),
}


@pytest.mark.parametrize("path", ["fused", "plain"])
@pytest.mark.parametrize("heads", [2, 0])
@pytest.mark.parametrize("name", list(VISIBILITIES))
def test_attend_equals_a_softmax_written_out(name, heads, path):
    visible, (q, k, v) = VISIBILITIES[name], qkv(heads=heads)
    found = attend(q, k, v, SCALED, visible, None if path == "fused" else lambda weights: None)
    close(found, naive(q, k, v, visible))


@pytest.mark.parametrize("path", ["fused", "plain"])
@pytest.mark.parametrize("offset", [0, 2, 4])
@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("t", [1, 3])
def test_queries_after_cached_keys(t, window, offset, path):
    """The first query is at `offset`: a causal mask aligned to the upper left would hide too much."""
    q, k, v = qkv(t, offset + t)
    visible = Visibility(causal=True, offset=offset, window=window)
    close(attend(q, k, v, SCALED, visible, None if path == "fused" else lambda weights: None), naive(q, k, v, visible))


def test_one_query_over_five_cached_keys_sees_them_all():
    q, k, v = qkv(1, 5)
    found = attend(q, k, v, SCALED, Visibility(causal=True, offset=4))
    close(found, ((q / 2) @ k.mT).softmax(-1) @ v)
    trap = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    close(trap, v[:, :, :1].expand_as(trap))  # what torch's own flag would do: key 0 alone
    assert not torch.allclose(found, trap)


@pytest.mark.parametrize("path", ["fused", "plain"])
@pytest.mark.parametrize("bias", [None, BIAS], ids=["", "bias"])
def test_a_query_that_sees_nothing_gets_zeros_and_no_nan_in_its_gradients(bias, path):
    q, k, v = (part.requires_grad_() for part in qkv())
    visible = Visibility(lengths=torch.tensor([5, 0, 3]), bias=bias)
    out = attend(q, k, v, SCALED, visible, None if path == "fused" else lambda weights: None)
    assert out[1].eq(0).all()
    out.sum().backward()
    assert all(part.grad.isfinite().all() for part in (q, k, v))
    assert (((q / 2) @ k.mT).masked_fill(torch.ones(5, 5) > 0, -torch.inf).softmax(-1)).isnan().all()  # the trap


def test_equals_torchs_kernel():
    q, k, v = qkv()
    close(attend(q, k, v, SCALED, Visibility()), F.scaled_dot_product_attention(q, k, v))
    close(attend(q, k, v, SCALED, Visibility(causal=True)), F.scaled_dot_product_attention(q, k, v, is_causal=True))
    mask = (torch.arange(S) < LENGTHS[:, None])[:, None, None]
    close(attend(q, k, v, SCALED, Visibility(lengths=LENGTHS)), F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    close(attend(q, k, v, Dot(D, D), Visibility()), F.scaled_dot_product_attention(q, k, v, scale=1.0))


def test_causal_attention_on_padded_rows_takes_the_kernel_without_a_mask(monkeypatch):
    given = {}

    def spy(q, k, v, **options):
        given.update(options)
        return torch.zeros_like(q)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    monkeypatch.setattr("seqloom.fast.attention.short_cpu.MAX_WEIGHTS", {4: 0})  # rows as short as these go another way
    attend(*qkv(), SCALED, Visibility(causal=True, lengths=LENGTHS))
    assert given["is_causal"]
    assert given.get("attn_mask") is None
    given.clear()
    attend(*qkv(1, 5), SCALED, Visibility(causal=True, offset=4))
    assert given.get("attn_mask") is None
    assert not given.get("is_causal")


def test_reported_weights_are_a_distribution_over_what_is_seen():
    weights = []
    visible = Visibility(causal=True, window=3, lengths=LENGTHS)
    attend(*qkv(), SCALED, visible, weights.append)
    (found,) = weights
    assert found.shape == (B, HEADS, T, S)
    for b in range(B):
        for t in range(T):
            seen = torch.tensor([bool(allowed(visible, b, t, s)) for s in range(S)])
            assert found[b, 0, t, ~seen].eq(0).all()
            assert found[b, 0, t].sum().item() == pytest.approx(float(seen.any()))


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("value_dim", [0, 6])
def test_hypotheses_are_extra_queries(width, value_dim):
    """R rows over B sentences give what they give over repeated sentences."""
    attention = shake(Attention(4, 5, "additive", value_dim).double(), 1)
    states, query = drawn(B, S, 5), drawn(B * width, 2, 4, seed=3)
    found = attention(query, attention.project_memory(states), Visibility(lengths=LENGTHS))
    repeated = attention.project_memory(states.repeat_interleave(width, 0))
    close(found, attention(query, repeated, Visibility(lengths=LENGTHS.repeat_interleave(width))))
    assert found.shape == (B * width, 2, value_dim or 5)
    assert attention.dim == (value_dim or 5)


def test_multi_head_cross_attention_folds_hypotheses():
    cross = shake(MultiHeadAttention(8, 2, key_dim=5).double(), 1)
    states, x = drawn(B, S, 5), drawn(B * 4, 2, 8, seed=3)
    found = cross.cross_attend(x, cross.project_memory(states), Visibility(lengths=LENGTHS))
    repeated = cross.project_memory(states.repeat_interleave(4, 0))
    close(found, cross.cross_attend(x, repeated, Visibility(lengths=LENGTHS.repeat_interleave(4))))


@pytest.mark.parametrize("causal", [True, False])
def test_multi_head_equals_torch(causal):
    ours = shake(MultiHeadAttention(8, 2).double(), 1)
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64)
    theirs.in_proj_weight.data, theirs.in_proj_bias.data = ours.project.weight.data, ours.project.bias.data
    theirs.out_proj.load_state_dict(ours.out.state_dict())
    x = drawn(B, T, 8)
    hidden = ~torch.ones(T, T).tril().bool() if causal else None
    wanted, weights = theirs(x, x, x, attn_mask=hidden, average_attn_weights=False)
    with watch(ours) as seen:
        close(ours(x, Visibility(causal=causal))[0], wanted)
    close(seen[""][0], weights)


def test_multi_head_cross_attention_equals_torch():
    ours = shake(MultiHeadAttention(8, 2, key_dim=5).double(), 1)
    theirs = torch.nn.MultiheadAttention(8, 2, kdim=5, vdim=5, batch_first=True, dtype=torch.float64)
    key, value = ours.project.weight.data.chunk(2)
    theirs.q_proj_weight.data, theirs.k_proj_weight.data, theirs.v_proj_weight.data = ours.query.weight.data, key, value
    theirs.in_proj_bias.data = torch.cat([ours.query.bias.data, ours.project.bias.data])
    theirs.out_proj.load_state_dict(ours.out.state_dict())
    x, states = drawn(B, T, 8), drawn(B, S, 5, seed=2)
    hidden = ~(torch.arange(S) < LENGTHS[:, None])
    wanted, _ = theirs(x, states, states, key_padding_mask=hidden)
    close(ours.cross_attend(x, ours.project_memory(states), Visibility(lengths=LENGTHS)), wanted)


def test_heads_that_do_not_divide_are_named_with_those_that_do():
    with pytest.raises(SeqloomError, match="3 heads do not divide the width 8; choose from: 1, 2, 4, 8"):
        MultiHeadAttention(8, 3)


def test_a_model_whose_heads_do_not_divide_says_so():
    """The same message comes from a model, also with positions that depend on the width of a head."""
    from seqloom.models.encoders.transformer import TransformerEncoder

    for position in POSITIONS:
        for heads in (3, 16):
            with pytest.raises(SeqloomError, match=f"{heads} heads do not divide the width 8"):
                TransformerEncoder(8, dim=8, heads=heads, position=position)


def test_without_bias():
    layer = MultiHeadAttention(8, 2, key_dim=5, bias=False)
    assert {name for name, _ in layer.named_parameters()} == {"query.weight", "project.weight", "out.weight"}


def test_self_attention_with_a_cache_stands_after_what_it_holds():
    layer, cache = shake(MultiHeadAttention(8, 2).double(), 1), Cache()
    x = drawn(B, T, 8)
    whole, _ = layer(x, Visibility(causal=True))
    layer(x[:, :4], Visibility(causal=True), cache)
    close(layer(x[:, 4:], Visibility(causal=True), cache)[0], whole[:, 4:])
    assert cache.used == T


def test_stacked_matrices_start_as_separate_ones_would():
    torch.manual_seed(0)
    layer, cross = MultiHeadAttention(64, 4), MultiHeadAttention(64, 4, key_dim=32)
    assert layer.project.weight.abs().max().item() == pytest.approx((6 / 128) ** 0.5, rel=0.02)
    assert cross.project.weight.abs().max().item() == pytest.approx((6 / 96) ** 0.5, rel=0.02)
    assert layer.project.bias.eq(0).all()


@pytest.mark.parametrize("key_heads", [1, 2])
@pytest.mark.parametrize("path", ["fused", "plain"])
@pytest.mark.parametrize("name", [*VISIBILITIES, "bias of heads"])
def test_heads_that_share_keys_equal_repeated_keys(name, path, key_heads):
    visible = VISIBILITIES.get(name, Visibility(bias=drawn(4, T, S, seed=14), lengths=LENGTHS))
    q, k, v = drawn(B, 4, T, D), drawn(B, key_heads, S, D, seed=12), drawn(B, key_heads, S, D, seed=13)
    found = attend(q, k, v, SCALED, visible, None if path == "fused" else lambda weights: None)
    several = [part.repeat_interleave(4 // key_heads, 1) for part in (k, v)]
    close(found, attend(q, *several, SCALED, visible))


def test_heads_that_share_keys_take_the_fused_kernel_and_repeat_no_key(monkeypatch):
    given, kernel = [], F.scaled_dot_product_attention

    def spy(q, k, v, **options):
        given.append((q.shape, k.shape, options.get("enable_gqa", False)))
        return kernel(q, k, v, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    k, v = drawn(B, 1, S, D), drawn(B, 1, S, D)
    attend(drawn(B, 4, T, D), k, v, SCALED, Visibility(causal=True))
    attend(drawn(B, 4, 1, D), k, v, SCALED, Visibility(causal=True, offset=4))
    assert given == [((B, 4, T, D), k.shape, True), ((B, 1, 4, D), k.shape, False)]


@pytest.mark.parametrize("score", ["scaled", "cosine", "gaussian", "general"])
@pytest.mark.parametrize("position", ["rotary", "alibi", "relative"])
def test_dot_product_scores_run_fused_with_any_position(score, position):
    """The fused CPU kernel accepts the inputs: no mask of three axes, no values of another width than keys."""
    layer, rotary = MultiHeadAttention(8, 2, score=score), POSITIONS[position](8, 4)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), torch.no_grad():
        layer(drawn(B, T, 8).float(), Visibility(causal=True), None, rotary)
        layer(drawn(B, T, 8).float(), Visibility(lengths=LENGTHS), None, rotary)


@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_grouped_heads_are_heads_with_equal_matrices(key_heads):
    """A layer whose heads of keys and values are the same within a group (Ainslie et al. 2023)."""
    few, many = shake(MultiHeadAttention(8, 4, key_heads=key_heads).double(), 1), MultiHeadAttention(8, 4).double()
    many.out.load_state_dict(few.out.state_dict())
    for ours, theirs in ((few.project.weight, many.project.weight), (few.project.bias, many.project.bias)):
        q, *others = ours.data.split(few.widths)
        repeated = [part.unflatten(0, (key_heads, 2)).repeat_interleave(4 // key_heads, 0) for part in others]
        theirs.data = torch.cat([q, *(part.flatten(0, 1) for part in repeated)])
    x, cache = drawn(B, T, 8), Cache()
    close(few(x, Visibility(causal=True), cache)[0], many(x, Visibility(causal=True))[0])
    assert cache.keys.shape == cache.values.shape == (B, key_heads, T, 2)  # what decoding has to hold
    cross = MultiHeadAttention(8, 4, key_dim=5, key_heads=key_heads)
    assert [part.shape for part in cross.project_memory(torch.zeros(B, S, 5))] == [(B, key_heads, S, 2)] * 2


def test_key_heads_that_do_not_divide_are_named_with_those_that_do():
    with pytest.raises(SeqloomError, match="key_heads=3 do not divide 4 heads; choose from: 1, 2, 4"):
        MultiHeadAttention(8, 4, key_heads=3)
    with pytest.raises(SeqloomError, match="key_heads=-1 do not divide 4 heads"):
        MultiHeadAttention(8, 4, key_heads=-1)


@pytest.mark.parametrize("those", ["", "q", "k", "v", "qk", "qv", "kv", "qkv"])
@pytest.mark.parametrize("key_dim", [0, 8])
def test_projections_left_out_are_the_identity(those, key_dim):
    some = shake(MultiHeadAttention(8, 2, key_dim=key_dim, projections=those).double(), 1)
    whole = MultiHeadAttention(8, 2, key_dim=key_dim).double()
    whole.out.load_state_dict(some.out.state_dict())
    made = iter(
        [] if some.project is None else zip(some.project.weight.split(8), some.project.bias.split(8), strict=True)
    )
    same = torch.eye(8).double(), torch.zeros(8).double()
    parts = [next(made) if part in those else same for part in ("kv" if key_dim else "qkv")]
    whole.project.weight.data, whole.project.bias.data = (
        torch.cat(stack).detach() for stack in zip(*parts, strict=True)
    )
    x, states = drawn(B, T, 8), drawn(B, S, 8, seed=2)
    if not key_dim:
        close(some(x, Visibility())[0], whole(x, Visibility())[0])
        return
    whole.query.weight.data, whole.query.bias.data = same if some.query is None else some.query.parameters()
    close(
        some.cross_attend(x, some.project_memory(states), Visibility()),
        whole.cross_attend(x, whole.project_memory(states), Visibility()),
    )


def test_projections_that_cannot_be_left_out_or_are_none_are_named():
    with pytest.raises(SeqloomError, match="letters of qkv in that order, here 'vk'"):
        MultiHeadAttention(8, 2, projections="vk")
    with pytest.raises(SeqloomError, match=r"leaves v as wide as what is read, 5, but 2 heads of 4 .* add v to proj"):
        MultiHeadAttention(8, 2, key_dim=5, projections="qk")
    with pytest.raises(SeqloomError, match="leaves k and v as wide as what is read, 8, but 1 heads of 4"):
        MultiHeadAttention(8, 2, key_heads=1, projections="q")


@pytest.mark.parametrize("name", list(VISIBILITIES))
def test_weights_by_relu_are_divided_by_the_number_of_visible_keys(name):
    visible, (q, k, v) = VISIBILITIES[name], qkv()
    weights = []
    found = attend(q, k, v, SCALED, visible, weights.append, NORMALIZERS["relu"])
    scores = q @ k.mT / math.sqrt(D) + (0.0 if visible.bias is None else visible.bias)
    for b in range(B):
        for t in range(T):
            seen = torch.tensor([bool(allowed(visible, b, t, s)) for s in range(S)])
            close(weights[0][b, :, t], scores[b, :, t].relu() * seen / max(1, int(seen.sum())))
    close(found, weights[0] @ v)
    close(attend(q, k, v, SCALED, visible, None, NORMALIZERS["relu"]), found)


def test_keys_hidden_by_a_bias_do_not_count():
    """Hypotheses side by side are hidden from each other by −inf in a bias: nothing is divided by their number."""
    q, k, v = qkv()
    hidden = torch.zeros(T, S, dtype=torch.float64)
    hidden[:, 3:] = -torch.inf
    q.requires_grad_()
    found = attend(q, k, v, SCALED, Visibility(bias=hidden), None, NORMALIZERS["relu"])
    close(found, attend(q, k[:, :, :3], v[:, :, :3], SCALED, Visibility(), None, NORMALIZERS["relu"]))
    found.sum().backward()
    assert q.grad.isfinite().all()


def test_a_normalizer_that_is_none_is_named():
    with pytest.raises(SeqloomError, match="did you mean 'softmax'"):
        MultiHeadAttention(8, 2, normalizer="sofmax")


def test_the_standard_layer_has_the_names_and_numbers_it_always_had():
    """Runs saved before there was any choice load, and the same seed gives the same start."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(8, 2, key_dim=5)
    shapes = {name: tuple(part.shape) for name, part in layer.state_dict().items()}
    wide = {"query.weight": (8, 8), "query.bias": (8,), "project.weight": (16, 5), "project.bias": (16,)}
    assert shapes == {**wide, "out.weight": (8, 8), "out.bias": (8,)}
    assert standard(layer)
    torch.manual_seed(0)
    torch.nn.Linear(8, 8), torch.nn.Linear(5, 16), torch.nn.Linear(8, 8)
    bound = (6 / 16) ** 0.5
    close(layer.query.weight, torch.empty(8, 8).uniform_(-bound, bound), 1e-6)
    bound = (6 / 13) ** 0.5
    close(layer.project.weight, torch.empty(16, 5).uniform_(-bound, bound), 1e-6)


def test_dropout_of_weights():
    """In training alone, and what is left is scaled up: the mean over many draws is what attention gives without."""
    torch.manual_seed(0)
    plain = shake(MultiHeadAttention(8, 2).double(), 1)
    dropping = MultiHeadAttention(8, 2, dropout=0.4).double()
    dropping.load_state_dict(plain.state_dict())
    x, visible = torch.randn(1, 6, 8, dtype=torch.float64), Visibility(causal=True)
    wanted = plain(x, visible)[0]
    assert torch.equal(dropping.eval()(x, visible)[0], wanted)
    dropping.train()
    first = dropping(x, visible)[0]
    assert not torch.allclose(first, wanted)
    torch.manual_seed(1)
    many = dropping(x.expand(20_000, -1, -1), visible)[0].mean(0, keepdim=True)
    assert torch.allclose(many, wanted, atol=0.03)
    read = MultiHeadAttention(8, 2, key_dim=8, dropout=0.4).double()
    memory = read.project_memory(x)
    assert not torch.equal(read.cross_attend(x, memory, Visibility()), read.cross_attend(x, memory, Visibility()))


def test_keys_that_a_kernel_rotated_itself_are_made_if_the_cache_is_used(monkeypatch):
    """With the kernel's reference in its place. Values and gradients are those of the whole read at once."""
    layer, x, visible = MultiHeadAttention(8, HEADS), drawn(B, T, 8).float(), Visibility(causal=True)
    position = POSITIONS["rotary"](8, D).prepare(x)
    wanted, _ = layer(x, visible, None, position)
    with torch.no_grad():
        monkeypatch.setattr(short_gpu, "supported", lambda *_: True)
        monkeypatch.setattr(short_gpu, "attention", short_gpu.reference)
        assert layer(x, visible, cache := Cache(), position)[0] is not None
        assert cache.keys is not None, "decoding needs the cache"
    first, cache = layer(x[:, :3], visible, Cache(), position)
    assert isinstance(cache, DeferredCache)
    assert (cache.used, vars(cache).get("keys")) == (3, None)
    monkeypatch.undo()
    found = torch.cat([first, layer(x[:, 3:], visible, cache, position)[0]], 1)
    torch.testing.assert_close(found, wanted)
    grads = (torch.autograd.grad(y.cos().sum(), list(layer.parameters())) for y in (found, wanted))
    torch.testing.assert_close(*grads)
