"""Mixers: what each equals where it is exact, that no fast path makes all pairs, and what does not fit."""

from contextlib import nullcontext
from functools import partial
from itertools import product

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import seqloom.fast.attention.mixers.linear_cpu
import seqloom.fast.attention.mixers.window_cpu
import seqloom.parts.mixers.window
from seqloom.acceleration import plain, plain_of
from seqloom.build import build, complete, set_by_path
from seqloom.data.batches.collate import pad
from seqloom.errors import SeqloomError
from seqloom.fast.attention.mixers.by_heads import by_heads
from seqloom.fast.attention.mixers.window_chunks import chunked_window_attention
from seqloom.fast.attention.mixers.window_cpu import sliced_window_attention
from seqloom.fast.attention.mixers.window_gpu import _block_mask
from seqloom.models.decoders.stacks import TransformerStack
from seqloom.models.decoders.transformer import TransformerDecoder
from seqloom.models.encoders.transformer import TransformerEncoder
from seqloom.models.language_model import LanguageModel
from seqloom.models.protocols import Encoded
from seqloom.parts.attention.multi_head import MultiHeadAttention, split_heads
from seqloom.parts.mixers.efficient_attention import EfficientAttention
from seqloom.parts.mixers.linear_attention import attend_sums, causal_attention, orthogonal, reference, sum_keys
from seqloom.parts.mixers.mixer_table import MIXERS
from seqloom.parts.mixers.window import window_attention
from seqloom.parts.positions.position import Position
from seqloom.parts.positions.rotary import Rotary
from seqloom.parts.probe import watch
from seqloom.parts.transformer.block import Block
from seqloom.parts.visibility import Visibility
from tests.laws import COMPILED, close, drawn, gradients, mixer_choices, named, shake, two_of_a_kind

CAUSAL = [name for name, make in MIXERS.items() if make.causal]
LONG, DIM = 300, 8
LENGTHS = torch.tensor([LONG, 190, 1])
# Of sizes at which the long row has many chunks; and for the exact ones, of sizes that hold it whole.
CUT = {
    "blockwise": {"block": 64},
    "window": {"window": 20},
    "longformer": {"window": 20, "first": 2},
    "bigbird": {"block": 16, "random": 2},
    "performer": {"features": 16},
    "linformer": {"longest": LONG, "rank": 16},
    "reformer": {"chunk": 16, "buckets": 8, "rounds": 2},
}
WHOLE = {
    "attention": {},
    "blockwise": {"block": 7},
    "window": {"window": LONG},
    "longformer": {"window": LONG, "first": 2},
    "bigbird": {"block": LONG // 4},
}
every = pytest.mark.parametrize("kind", MIXERS)


def made(kind, dtype=torch.float64, **options):
    torch.manual_seed(0)
    return shake(build(MIXERS, {"kind": kind, **options}, dim=DIM, heads=2, score="scaled").double(), 1).to(dtype)


def long_rows():
    return drawn(3, LONG, DIM)


def seen(kind, lengths=None):
    return Visibility(causal=True) if MIXERS[kind].causal else Visibility(lengths=lengths)


@pytest.mark.parametrize("position", [None, Rotary(DIM, DIM // 2)], ids=["bare", "rotary"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", WHOLE)
def test_where_everything_is_in_reach_it_is_attention(kind, causal, position):
    """With the weights of plain attention, under the same names, and positions; values and gradients."""
    if causal and not MIXERS[kind].causal:
        return
    plain_one, x = made("attention"), long_rows()
    one = made(kind, **WHOLE[kind])
    found = one.load_state_dict(plain_one.state_dict(), strict=False)
    assert not found.unexpected_keys
    if kind == "longformer":  # the first positions have weights of their own
        weights, biases = (part.split([DIM, 2 * DIM]) for part in (plain_one.project.weight, plain_one.project.bias))
        for linear, weight, bias in zip((one.asking, one.asked), weights, biases, strict=True):
            linear.load_state_dict({"weight": weight, "bias": bias})
    visible = Visibility(causal=True) if causal else Visibility(lengths=LENGTHS)
    rows = torch.arange(LONG) < (torch.tensor([LONG] * 3) if causal else LENGTHS)[:, None]
    wanted, y = (part(x, visible, None, position)[0][rows] for part in (plain_one, one))
    close(y, wanted)
    for name, parameter in plain_one.named_parameters():
        grad = torch.autograd.grad(y.pow(2).sum(), dict(one.named_parameters())[name], retain_graph=True)[0]
        other = torch.autograd.grad(wanted.pow(2).sum(), parameter, retain_graph=True)[0]
        if kind != "longformer" or name.startswith("out"):
            close(grad, other, 1e-8)


@pytest.mark.parametrize("way_of", [nullcontext, plain], ids=["fast", "plain"])
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "padded"])
@every
def test_a_long_row_is_its_twin(kind, lengths, way_of):
    """Many chunks, a last one that is not full: each path says what all pairs say, with the same gradients."""
    layer, x, visible = made(kind, **CUT.get(kind, {})), long_rows(), Visibility(lengths=lengths)
    rows = torch.arange(LONG) < (torch.tensor([LONG] * 3) if lengths is None else lengths)[:, None]
    for way in (visible, Visibility(causal=True)) if layer.causal else (visible,):
        with way_of():
            fast = layer(x, way)[0][rows]
        with watch(layer):
            slow = layer(x, way)[0][rows]
        close(fast, slow)
        close(gradients(layer, [fast]), gradients(layer, [slow]), 1e-7)


class Largest(TorchDispatchMode):
    """Of all tensors that operations make, the most numbers in one."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for one in found if isinstance(found, tuple | list) else [found]:
            if isinstance(one, torch.Tensor):
                self.most = max(self.most, one.untyped_storage().nbytes() // one.element_size())
        return found


@pytest.mark.parametrize("way_of", [nullcontext, plain], ids=["fast", "plain"])
@pytest.mark.parametrize("kind", [kind for kind in MIXERS if kind != "attention" and hasattr(MIXERS[kind], "mix")])
def test_no_path_makes_all_pairs(kind, way_of):
    n = 2048
    options = {**CUT.get(kind, {}), **({"longest": n} if kind == "linformer" else {})}
    layer, x = made(kind, torch.float32, **options), torch.randn(1, n, DIM, requires_grad=True)
    with Largest() as largest, way_of():
        y, _ = layer(x, seen(kind))
        y.sum().backward()
    assert 0 < largest.most < n * n // 4


@pytest.mark.parametrize("kind", CAUSAL)
def test_single_steps_and_pieces_are_the_whole(kind):
    layer, x = made(kind, **CUT.get(kind, {})), long_rows()[:, :90]
    whole, _ = layer(x, Visibility(causal=True))
    with torch.no_grad():
        for pieces in ([1] * 90, [50, 1, 39]):
            state, found = layer.begin(90), []
            for piece in x.split(pieces, 1):
                y, state = layer(piece, Visibility(causal=True), state)
                found.append(y)
            close(torch.cat(found, 1), whole)


@pytest.mark.parametrize(
    "lowered", [plain_of(window_attention), chunked_window_attention, sliced_window_attention], ids=lambda f: f.__name__
)
def test_chunks_and_slices_of_any_size_are_all_pairs(lowered, monkeypatch):
    monkeypatch.setattr(seqloom.parts.mixers.window, "CHUNK", 8)
    monkeypatch.setattr(seqloom.fast.attention.mixers.window_cpu, "BLOCK", 8)
    monkeypatch.setattr(seqloom.fast.attention.mixers.window_cpu, "GROUP", 2)
    q, k, v, grad = (drawn(2, 2, 37, 4, seed=seed).requires_grad_() for seed in (1, 2, 3, 4))
    for causal, window, first in product((True, False), (1, 2, 5, 9, 36), (0, 3, 11)):
        keep = Visibility(window=window).keep(37, 37, q.device) | (torch.arange(37) < first)
        wanted = (q @ k.mT).masked_fill(~(keep.tril() if causal else keep), float("-inf")).softmax(-1) @ v
        found = lowered(q, k, v, Visibility(causal=causal, window=window), first)
        close(found, wanted)
        close(*(torch.autograd.grad(y, (q, k, v), grad) for y in (found, wanted)))


@pytest.mark.parametrize("causal", [True, False])
def test_slices_stand_where_rows_are_long_and_obey_lengths(causal, monkeypatch):
    monkeypatch.setattr(seqloom.fast.attention.mixers.window_cpu, "MIN_LENGTH", 200)
    lengths = torch.tensor([200, 3, 130])
    visible, rows = Visibility(causal=causal, window=64, lengths=lengths), torch.arange(200) < lengths[:, None]
    q, k, v, grad = (drawn(3, 2, 200, 4, seed=seed).requires_grad_() for seed in (1, 2, 3, 4))
    found, wanted = window_attention(q, k, v, visible, 2), chunked_window_attention(q, k, v, visible, 2)
    assert type(found.grad_fn).__name__ != type(wanted.grad_fn).__name__
    close(*(y.transpose(1, 2)[rows] for y in (found, wanted)))
    real = grad * rows[:, None, :, None]
    close(*(torch.autograd.grad(y, (q, k, v), real) for y in (found, wanted)))


def test_a_window_learns_in_half_precision_as_in_full(monkeypatch):
    monkeypatch.setattr(seqloom.fast.attention.mixers.window_cpu, "MIN_LENGTH", 500)
    q, k, v, grad = (drawn(2, 2, 500, 16, seed=seed) for seed in (1, 2, 3, 4))
    for visible in (Visibility(window=80, causal=True), Visibility(window=80, lengths=torch.tensor([500, 210]))):
        given = [[x.to(dtype).requires_grad_() for x in (q, k, v)] for dtype in (torch.float64, torch.bfloat16)]
        exact, half = (torch.autograd.grad(window_attention(*x, visible, 2), x, grad.to(x[0].dtype)) for x in given)
        for one, other in zip(half, exact, strict=True):
            assert one.dtype == torch.bfloat16
            assert (one.double() - other).norm() < 0.02 * other.norm()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize(("causal", "first"), [(True, 0), (False, 0), (False, 3)])
def test_the_kernel_of_a_gpu_is_its_twin(causal, first):
    q, k, v = (drawn(2, 2, 700, 64, seed=seed).float().cuda().requires_grad_() for seed in (1, 2, 3))
    q_small, visible = q * 0.125, Visibility(causal=causal, window=100)
    fast, slow = (
        window_attention(q_small, k, v, visible, first),
        chunked_window_attention(q_small, k, v, visible, first),
    )
    close(fast, slow, 1e-2)
    for one, other in zip(
        *(torch.autograd.grad(y.sum(), (q, k, v), retain_graph=True) for y in (fast, slow)), strict=True
    ):
        close(one, other, 2e-2)


def test_window_counts_itself():
    """A window of two is a position and the one before it."""
    layer = made("window", window=2)
    with watch(layer) as report:
        layer(drawn(1, 4, DIM), Visibility(causal=True))
    weights = report[""][0][0, 0]
    assert (weights > 0).tolist() == [[j in (i - 1, i) for j in range(4)] for i in range(4)]


@pytest.mark.parametrize("chunk", [1, 3, 8, 64])
def test_sums_in_chunks_are_all_pairs(chunk):
    q, k, v = (drawn(2, 2, 21, 5, seed=seed).abs() for seed in (1, 2, 3))
    begun = (drawn(2, 2, 5, 5, seed=4).abs(), drawn(2, 2, 5, seed=5).abs())
    for start in (None, begun):
        y, sums = causal_attention(q, k, v, start, chunk)
        wanted, other = reference(q, k, v, True, start, lambda weights: None)
        close([y, *sums], [wanted, *other])
    close(attend_sums(q, sum_keys(k, v)), reference(q, k, v, False, None, lambda weights: None)[0])


@pytest.mark.parametrize("causal", [True, False])
def test_features_in_pieces_are_those_at_once(causal, monkeypatch):
    layer, x = made("performer", **CUT.get("performer", {})), long_rows()
    visible, rows = Visibility(causal=causal, lengths=LENGTHS), torch.arange(LONG) < LENGTHS[:, None]
    found = []
    for most in (2**19, 2**11):
        monkeypatch.setattr(seqloom.fast.attention.mixers.linear_cpu, "CACHED", most)
        y = layer(x, visible)[0][rows]
        found.append([y, *gradients(layer, [y])])
    close(*found, 1e-9)


def test_linear_attention_by_hand():
    layer = made("linear")
    x = drawn(1, 5, DIM)
    q, k, v = (part.view(5, 2, 4).transpose(0, 1) for part in layer.project(x)[0].chunk(3, -1))
    weights = (torch.nn.functional.elu(q) + 1) @ (torch.nn.functional.elu(k) + 1).mT
    weights = weights.tril() / weights.tril().sum(-1, keepdim=True)
    close(layer(x, Visibility(causal=True))[0][0], layer.out((weights @ v).transpose(0, 1).flatten(1)))


def test_random_features_are_orthogonal_and_as_long_as_normal_vectors():
    omega = orthogonal(4096, 16, 3).double()
    pairs = omega[:16] @ omega[:16].T
    assert (pairs - pairs.diag().diag()).abs().max() < 1e-4
    assert abs(float(omega.pow(2).sum(-1).mean()) - 16) < 0.3
    assert omega.mean(0).abs().max() < 0.1  # no direction is preferred
    assert torch.equal(orthogonal(20, 16, 3), orthogonal(20, 16, 3))


@pytest.mark.parametrize("causal", [True, False])
def test_performer_comes_nearer_with_more_features(causal):
    x, visible = 0.3 * drawn(2, 40, DIM), Visibility(causal=causal)
    exact = made("attention")

    def error(features):
        found = []
        for seed in range(8):
            layer = made("performer", features=features, seed=seed)
            layer.load_state_dict(exact.state_dict())
            found.append(float((layer(x, visible)[0] - exact(x, visible)[0]).pow(2).mean().detach()))
        return sum(found) / len(found)

    few, some, many = (error(features) for features in (8, 64, 512))
    assert many < some / 4 < few / 16  # as one by their number


def test_performer_survives_large_keys():
    layer, x = made("performer", torch.float32), 60 * drawn(1, 50, DIM).float()
    for visible in (Visibility(), Visibility(causal=True)):
        assert layer(x, visible)[0].isfinite().all()


@every
def test_a_row_of_nothing_but_padding_is_finite(kind):
    layer, x = made(kind, **CUT.get(kind, {})), long_rows()[:2].requires_grad_()
    y = layer(x, Visibility(lengths=torch.tensor([LONG, 0])))[0]
    y.sum().backward()
    assert y.isfinite().all()
    assert x.grad.isfinite().all()


def test_linformer_of_full_rank_is_attention():
    layer, exact, x = made("linformer", longest=LONG, rank=LONG), made("attention"), long_rows()
    layer.load_state_dict(exact.state_dict(), strict=False)
    with torch.no_grad():
        layer.keys.copy_(torch.eye(LONG))
        layer.values.copy_(torch.eye(LONG))
    close(layer(x, Visibility())[0], exact(x, Visibility())[0])
    with torch.no_grad():  # twice F is twice v: keys and values have mixtures of their own
        layer.values.mul_(2)
        exact.project.weight[2 * DIM :] *= 2
        exact.project.bias[2 * DIM :] *= 2
    close(layer(x, Visibility())[0], exact(x, Visibility())[0])
    rotary = Rotary(DIM, DIM // 2)
    close(layer(x, Visibility(), None, rotary)[0], exact(x, Visibility(), None, rotary)[0])
    with pytest.raises(SeqloomError, match="reaches 300 tokens, here 301; set mixer"):
        layer(drawn(1, LONG + 1, DIM), Visibility())


@pytest.mark.parametrize("rounds", [1, 3])
def test_reformer_of_one_chunk_is_attention_with_shared_queries(rounds):
    layer, x = made("reformer", chunk=LONG, rounds=rounds), long_rows()
    for position in (None, Rotary(DIM, DIM // 2)):
        q, v = (split_heads(part, DIM // 2) for part in layer.project(x).chunk(2, -1))
        q = q if position is None else position.rotate(q, q)[0]
        scores = q @ torch.nn.functional.normalize(q, dim=-1).mT
        scores = scores.masked_fill(torch.eye(LONG).bool(), float("-inf"))
        wanted = layer.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        close(layer(x, Visibility(), None, position)[0], wanted, 1e-5)


def test_bigbird_sees_what_it_should():
    layer = made("bigbird", block=4, random=2)
    with watch(layer) as report:
        layer(drawn(1, 48, DIM), Visibility())
    blocks = (report[""][0][0] > 0).unflatten(1, (12, 4)).unflatten(3, (12, 4)).any(4).any(2)
    assert blocks[:, [0, -1]].all()
    assert blocks[:, :, [0, -1]].all()
    for row in range(1, 11):
        assert blocks[:, row, row - 1 : row + 2].all()
    middle = blocks[:, 2:10].sum(-1)
    assert int(middle.max()) == 7  # three beside, two at the ends, two drawn
    assert int(middle.min()) >= 6
    assert not torch.equal(blocks[0], blocks[1])


@pytest.mark.parametrize("kind", ["bigbird", "performer", "reformer"])
def test_what_is_drawn_depends_on_the_seed_alone(kind):
    one, again, other = (made(kind, **CUT[kind], seed=seed) for seed in (0, 0, 1))
    y, z, w = (layer(long_rows(), Visibility())[0] for layer in (one, again, other))
    assert torch.equal(y, z)
    assert not torch.allclose(y, w)


def test_one_head_after_the_other_is_all_at_once():
    """Where it would make much: here 32 MiB and more."""
    q, matrix, calls = drawn(1, 4, 1024, 64), drawn(1, 4, 64, 8), []

    def multiplied(q, matrix):
        calls.append(q.size(1))
        return q @ matrix

    close(by_heads(multiplied, q, matrix), q @ matrix)
    assert calls == [1, 1, 1, 1]
    by_heads(multiplied, q[:, :, :100], matrix)
    assert calls[4:] == [4]


@pytest.mark.parametrize("kind", CAUSAL)
def test_endless_generation_reads_nothing_again_where_states_are_bounded(kind):
    stack = {"kind": "transformer", "dim": 8, "layers": 2, "heads": 2, "hidden": 12, "dropout": 0.0}
    for position in ("rotary", "sinusoidal"):
        model = LanguageModel(
            11, 0, {**stack, "mixer": {"kind": kind, **CUT.get(kind, {})}, "position": position}
        ).eval()
        state, sizes = model.start(pad([[]]), room=16), []
        with torch.inference_mode():
            for step in range(80):
                _, state = model.step(torch.tensor([[step % 11]]), state)
                sizes.append(state.rows.used)
        assert max(sizes) == (80 if MIXERS[kind].bounded and position == "rotary" else 16)


@pytest.mark.parametrize("kind", CAUSAL)
def test_a_decoder_writes_with_it(kind):
    """Hypotheses that are picked and copied; on one path where nothing can be shared."""
    torch.manual_seed(0)
    mixer = {"kind": kind, **CUT.get(kind, {})}
    decoder = TransformerDecoder(5, 8, (), dim=8, layers=2, heads=2, hidden=12, mixer=mixer)
    decoder = shake(decoder.double(), 1)
    encoded, x = Encoded(states=drawn(2, 6, 8), lengths=None, summary=drawn(2, 8)), drawn(4, 3, 5)
    with torch.no_grad():
        whole, _ = decoder(x, decoder.begin(encoded, 2, 3))
        _, state = decoder(x[:, :2], decoder.begin(encoded, 2, 3))
        rows = torch.tensor([1, 0, 2, 2])
        close(decoder(x[rows, 2:], state.pick(rows))[0], whole[rows, 2:])


@pytest.mark.parametrize("choice", two_of_a_kind(mixer_choices()), ids=named)
def test_two_layers_learn_and_compile_alike(choice):
    """Two steps of training, eager and compiled: in a stack that writes where it can, else in an encoder."""
    x, lengths = drawn(3, 6, DIM).float(), torch.tensor([4, 6, 1])
    writes = MIXERS[choice["kind"]].causal and len(choice) > 1

    def trained(compile):
        torch.manual_seed(0)
        torch._dynamo.reset()
        model = (TransformerStack if writes else TransformerEncoder)(DIM, DIM, 2, 2, 12, dropout=0.0, mixer=choice)
        step = torch.compile(model, backend=COMPILED, fullgraph=True) if compile else model
        optimiser, losses = torch.optim.SGD(model.parameters(), 0.02), []
        for _ in range(3):
            said = step(x)[0] if writes else step(x, lengths).summary
            loss = (said - 1).pow(2).mean()
            losses.append(float(loss.detach()))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return losses

    eager = trained(False)
    assert eager[2] < eager[1] < eager[0]
    assert trained(True) == pytest.approx(eager, rel=1e-4)


def test_what_cannot_write_is_refused_where_tokens_are_written():
    for kind in MIXERS.keys() - CAUSAL:
        for make in (
            lambda kind=kind: TransformerStack(8, dim=8, heads=2, mixer=kind),
            lambda kind=kind: TransformerDecoder(8, 8, (), dim=8, heads=2, mixer=kind),
        ):
            with pytest.raises(SeqloomError, match=f"mixer '{kind}' sees what comes after.*choose from: attention, b"):
                make()
        TransformerEncoder(8, dim=8, heads=2, mixer=kind)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mixer": "windwo"}, "unknown kind 'windwo'; did you mean 'window'"),
        ({"mixer": {"kind": "window", "window": 0}}, "window is at least 1, here 0"),
        ({"mixer": {"kind": "longformer", "first": 0}}, "first is at least 1, here 0"),
        ({"mixer": {"kind": "linformer", "rank": 0}}, "rank is at least 1, here 0"),
        ({"mixer": {"kind": "performer", "features": 0}}, "features is at least 1, here 0"),
        ({"mixer": {"kind": "reformer", "buckets": 5}}, "buckets is even"),
        ({"mixer": {"kind": "bigbird", "random": -1}}, "random is at least 0, here -1"),
        (
            {"mixer": "window", "score": "additive"},
            "score of Window must be a dot product.*choose from: cosine, dot, gaussian, general, scaled",
        ),
        ({"mixer": "linear", "score": "dot"}, "score of LinearAttention is 'scaled'"),
    ],
)
def test_what_does_not_fit_is_named(options, message):
    with pytest.raises(SeqloomError, match=message):
        Block(8, 2, 12, **options)


@pytest.mark.parametrize("kind", [kind for kind in MIXERS if kind != "convolution"])  # which has no heads
def test_heads_that_do_not_divide_the_width(kind):
    with pytest.raises(SeqloomError, match="3 heads do not divide the width 8; choose from: 1, 2, 4, 8"):
        Block(8, 3, 12, mixer=kind)


@pytest.mark.parametrize("kind", [kind for kind in MIXERS if issubclass(MIXERS[kind], EfficientAttention)])
def test_what_adds_to_the_scores_of_pairs_is_refused(kind):
    class Sloped(Position):
        def bias(self, heads, t, s, offset=0, causal=False, dtype=torch.float32):
            return torch.zeros(1, heads, t, s, dtype=dtype)

    with pytest.raises(SeqloomError, match=r"position Sloped adds to the score.*choose position from: .*rotary"):
        made(kind)(drawn(1, 4, DIM), seen(kind), None, Sloped(DIM, DIM // 2))


@pytest.mark.parametrize("position", ["alibi", "relative"])
def test_what_adds_to_the_scores_of_pairs_is_refused_before_anything_is_read(position):
    sizes = {"dim": 8, "heads": 2, "position": position}
    for make in (partial(TransformerEncoder, 8), partial(TransformerStack, 8), partial(TransformerDecoder, 8, 8, ())):
        with pytest.raises(SeqloomError, match=r"adds to the score of every pair, of which Window makes few; choose"):
            make(**sizes, mixer="window")
        for fitting in ("attention", "convolution"):
            make(**sizes, mixer=fitting)


def test_by_name_and_setting():
    config = {"encoder": {"kind": "transformer"}}
    set_by_path(config, "encoder.mixer", "window")
    set_by_path(config, "encoder.mixer.window", 32)
    assert config["encoder"]["mixer"] == {"kind": "window", "window": 32}
    usual = {"key_heads": 0, "projections": "qkv", "normalizer": "softmax", "dropout": 0.0}
    assert complete(MIXERS, "attention") == {"kind": "attention", **usual}


def test_attention_keeps_its_names_and_its_way():
    """Weights and configs from before there was a choice fit."""
    block = Block(8, 2, 12)
    assert isinstance(block.mix, MultiHeadAttention)
    assert {"mix.project.weight", "mix.project.bias", "mix.out.weight", "mix.out.bias"} <= set(block.state_dict())


@pytest.mark.parametrize("n", [129, 256, 300, 1024])
@pytest.mark.parametrize("causal", [True, False])
def test_the_plan_of_a_window_is_the_one_torch_finds_by_looking_at_all_pairs(n, causal):
    from torch.nn.attention.flex_attention import create_block_mask

    for window, first in product((1, 50, 128, 129, 400), (0, 1, 128, 130)):
        made = _block_mask(n, window, causal, first, torch.device("cpu"))
        wanted = create_block_mask(made.mask_mod, None, None, n, n, device="cpu")
        assert torch.equal(made.to_dense(), wanted.to_dense())
        assert made.seq_lengths == wanted.seq_lengths
        for counted in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks"):
            assert torch.equal(getattr(made, counted), getattr(wanted, counted))
