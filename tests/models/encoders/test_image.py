"""Eyes: shapes and sizes worked by hand, laws, and that heads and decoders read them."""

import pytest
import torch
from torch.nn import functional as F

from seqloom.build import build, complete
from seqloom.errors import SeqloomError
from seqloom.models.decoders import DECODERS
from seqloom.models.encoders.image import IMAGE_ENCODERS
from seqloom.parts.layers.norm import NORMS
from seqloom.parts.layers.output_head import Head
from seqloom.parts.layers.pooling import POOLINGS
from seqloom.parts.probe import watch
from seqloom.parts.vision.feature_maps import ConvNorm
from seqloom.training.checkpoint import load_weights, read_tensors, save_weights, weights
from tests.laws import COMPILED, close, drawn, gradients, named, shake, two_of_a_kind

# Small ones of every kind: pictures of two channels, 8 × 12.
TINY = {
    "convolution": {"dims": [3, 4], "size": 3},
    "resnet": {"dim": 4, "blocks": [1, 1], "stem": "small"},
    "densenet": {"blocks": [2, 1], "growth": 2, "stem": "small"},
    "patches": {"dim": 4, "layers": 2, "heads": 2, "hidden": 6, "dropout": 0.0},
    "grid": {"eye": {"kind": "convolution", "dims": [3, 4], "size": 3}, "layers": 2},
}
GRIDS = {"convolution": (2, 3), "resnet": (4, 6), "densenet": (4, 6), "patches": (2, 3), "grid": (2, 3)}
CHOICES = [{"kind": name, **TINY.get(name, {})} for name in IMAGE_ENCODERS]
CHOICES += [{"kind": "resnet", **TINY["resnet"], "norm_kind": kind} for kind in NORMS if kind != "batch"]
CHOICES += [
    {"kind": "convolution", **TINY["convolution"], "pool": "mean", "activation": "tanh"},
    {"kind": "resnet", "dim": 4, "blocks": [1, 2], "bottleneck": True, "stem": "large"},
    {"kind": "resnet", **TINY["resnet"], "residual": "none"},
    {"kind": "densenet", **TINY["densenet"], "norm_kind": "layer", "compression": 1.0},
]
every = pytest.mark.parametrize("choice", CHOICES, ids=named)


def made(choice, dtype=torch.float64, seed=0, channels=2):
    torch.manual_seed(seed)
    eye = shake(build(IMAGE_ENCODERS, choice, channels=channels).double(), seed + 1)
    with torch.no_grad():  # of a few channels none may be silent everywhere
        for name, parameter in eye.named_parameters():
            parameter.add_(0.5 if name.endswith("bias") else 0.0)
    return eye.to(dtype)


def pictures(rows=3, dtype=torch.float64):
    return drawn(rows, 2, 8, 12).to(dtype)


@every
def test_states_are_the_places_of_a_grid(choice):
    """Row by row; each picture says the same alone."""
    eye = made(choice)
    encoded = eye(pictures())
    if "bottleneck" not in choice:
        assert encoded.grid == GRIDS.get(choice["kind"], encoded.grid)
    assert encoded.states.shape == (3, encoded.grid[0] * encoded.grid[1], eye.dim)
    assert encoded.lengths is None
    close(encoded.summary, encoded.states.mean(1))
    close(eye(pictures()[1:2]).states, encoded.states[1:2])
    if choice["kind"] in ("convolution", "resnet", "densenet"):
        rows, columns = encoded.grid
        close(eye.feature_map(pictures())[:, :, rows - 1, 1], encoded.states[:, (rows - 1) * columns + 1])


@every
def test_gradients_are_what_small_changes_do(choice):
    eye = made(choice)
    names, values = zip(*((n, p.detach().clone().requires_grad_()) for n, p in eye.named_parameters()), strict=True)

    def call(*given):
        return torch.func.functional_call(eye, dict(zip(names, given, strict=True)), (pictures(1),)).states

    assert torch.autograd.gradcheck(call, values, fast_mode=True, atol=1e-6)


@every
def test_dtypes(choice):
    exact = made(choice)(pictures()).states
    for dtype, bound in ((torch.float32, 1e-4), (torch.bfloat16, 0.2)):
        eye = made(choice, dtype)
        states = eye(pictures(dtype=dtype)).states
        assert states.dtype == dtype
        assert (states.double() - exact).abs().max() <= bound * max(1.0, exact.abs().max())
        assert all(slope.isfinite().all() for slope in gradients(eye, [states]))


def test_a_kernel_of_one_place_skips_as_torchs_does():
    torch.manual_seed(1)
    for size in (1, 3):
        made = ConvNorm(4, 6, size, 2, "none")
        x = torch.randn(3, 9, 12, 4).movedim(-1, 1)
        wanted = F.conv2d(x.contiguous(), made.weigh.weight, made.weigh.bias, stride=2, padding=size // 2)
        torch.testing.assert_close(made(x), wanted)


@every
def test_saving(choice, tmp_path):
    one, other = made(choice), made(choice, seed=5)
    assert not torch.allclose(one(pictures()).states, other(pictures()).states)
    save_weights(tmp_path / "w", weights(one))
    load_weights(other, read_tensors(tmp_path / "w"), "w")
    assert torch.equal(one(pictures()).states, other(pictures()).states)


@pytest.mark.parametrize("choice", two_of_a_kind(CHOICES), ids=named)
def test_a_classifier_trains_eager_and_compiled(choice):
    """An eye, any summary and the classifier's head: two steps, the same losses either way."""
    torch._dynamo.reset()
    found, labels = [], torch.tensor([0, 2, 1])
    for compiled in (False, True):
        torch.manual_seed(0)
        eye = build(IMAGE_ENCODERS, choice, channels=2).double().train()
        summary = build(POOLINGS, "attention", input_dim=eye.dim, dim=eye.dim, directions=0).double()
        head = Head(eye.dim, 3).double()

        def loss_of(x, eye=eye, summary=summary, head=head):
            encoded = eye(x)
            return F.cross_entropy(head(summary(encoded.states, encoded.lengths)), labels)

        call = torch.compile(loss_of, backend=COMPILED, fullgraph=True) if compiled else loss_of
        parameters = [p for part in (eye, summary, head) for p in part.parameters()]
        optimiser, losses = torch.optim.SGD(parameters, 0.01), []
        for _ in range(3):
            loss = call(pictures())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
        assert losses[2] < losses[0]
        found.append(torch.stack(losses))
    close(*found, 1e-6)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("name", IMAGE_ENCODERS)
def test_decoders_read_eyes(name, decoder):
    """Trains two steps, writes step by step what it says at once, and attention lies over the grid."""
    torch.manual_seed(0)
    eye = build(IMAGE_ENCODERS, {"kind": name, **TINY.get(name, {})}, channels=2).double()
    sizes = {"input_dim": 5, "memory_dim": eye.dim, "final_dims": eye.final_dims}
    written = {"transformer": {"dim": 8, "layers": 2, "heads": 2, "hidden": 12, "dropout": 0.0}}.get(
        decoder, {"dim": 8}
    )
    writer = build(DECODERS, {"kind": decoder, **written}, **sizes).double()
    tokens, parameters = drawn(3, 4, 5), [*eye.parameters(), *writer.parameters()]
    optimiser, losses = torch.optim.SGD(parameters, 1e-3), []
    for _ in range(2):
        loss = (writer(tokens, writer.begin(eye(pictures())))[0] - 1).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[1] < losses[0]
    assert any(p.grad.abs().sum() > 0 for p in eye.parameters() if p.grad is not None)
    eye.eval(), writer.eval()
    with torch.no_grad():
        encoded = eye(pictures())
        whole, state = writer(tokens, writer.begin(encoded))[0], writer.begin(encoded, room=4)
        for t in range(4):
            y, state = writer(tokens[:, t : t + 1], state)
            close(y, whole[:, t : t + 1])
        if decoder == "attentive":
            with watch(writer) as seen:
                writer(tokens, writer.begin(encoded))
            maps = next(reports[0] for reports in seen.values() if reports and reports[0].dim() == 3)
            assert maps.unflatten(-1, encoded.grid).shape[-2:] == encoded.grid


# Weights of the published ones without their last layer of 1000 classes: 11,689,512 − 513,000 and so on.
PUBLISHED = {
    "ResNet-18": ({"kind": "resnet"}, 11_176_512, 512),
    "ResNet-34": ({"kind": "resnet", "blocks": [3, 4, 6, 3]}, 21_284_672, 512),
    "ResNet-50": ({"kind": "resnet", "blocks": [3, 4, 6, 3], "bottleneck": True}, 23_508_032, 2048),
    "DenseNet-121": ({"kind": "densenet"}, 6_953_856, 1024),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_of_the_published_ones(name):
    choice, count, dim = PUBLISHED[name]
    with torch.device("meta"):
        eye = build(IMAGE_ENCODERS, choice, channels=3)
        encoded = eye.eval()(torch.empty(2, 3, 224, 224))
    assert sum(p.numel() for p in eye.parameters()) == count
    assert (eye.dim, encoded.grid, encoded.states.shape) == (dim, (7, 7), (2, 49, dim))


def test_resnet_18_worked_by_hand():
    """Table 1 of He et al. 2016: rows of the map, and weights, stage by stage; every norm has 2 a channel."""
    with torch.device("meta"):
        eye = build(IMAGE_ENCODERS, "resnet", channels=3).eval()
        x = eye.stem(torch.empty(1, 3, 224, 224))
    assert x.shape == (1, 64, 56, 56)
    table = [  # channels, rows, weights
        (64, 56, 4 * (9 * 64 * 64 + 2 * 64)),
        (128, 28, 9 * 64 * 128 + 3 * 9 * 128 * 128 + 4 * 2 * 128 + 64 * 128 + 2 * 128),
        (256, 14, 9 * 128 * 256 + 3 * 9 * 256 * 256 + 4 * 2 * 256 + 128 * 256 + 2 * 256),
        (512, 7, 9 * 256 * 512 + 3 * 9 * 512 * 512 + 4 * 2 * 512 + 256 * 512 + 2 * 512),
    ]
    for stage, (channels, rows, count) in zip(eye.stages, table, strict=True):
        x = stage(x)
        assert x.shape == (1, channels, rows, rows)
        assert sum(p.numel() for p in stage.parameters()) == count
    assert sum(p.numel() for p in eye.stem.parameters()) == 49 * 3 * 64 + 2 * 64


def largest(x):
    """Of every 3 × 3 places, two apart, beyond the edge none."""
    rows, columns = ((n - 1) // 2 + 1 for n in x.shape[-2:])
    return torch.stack(
        [torch.stack([_around(x, 2 * r, 2 * c).amax((-1, -2)) for c in range(columns)], -1) for r in range(rows)],
        -2,
    )


def _around(x, r, c):
    return x[:, :, max(0, r - 1) : r + 2, max(0, c - 1) : c + 2]


@pytest.mark.parametrize("stem", ["large", "small"])
def test_densenet_by_hand(stem):
    """Stem, stage, transition with the mean of 2 × 2, stage, norm and max(0, x) (Huang et al. 2017, table 1)."""
    eye, x = made({"kind": "densenet", "blocks": [2, 1], "growth": 2, "stem": stem}), pictures()
    y = eye.stem.filter(x).clamp(min=0)
    y = eye.stages[0](largest(y) if stem == "large" else y)
    between = eye.between[0]
    y = between.weigh(between.norm(y).clamp(min=0))
    rows, columns = (n // 2 * 2 for n in y.shape[-2:])
    y = y[:, :, :rows, :columns].unflatten(-1, (-1, 2)).unflatten(-3, (-1, 2)).mean((-1, -3))
    close(eye.feature_map(x), eye.norm(eye.stages[1](y)).clamp(min=0))


def test_patches_enter_as_they_are():
    """Linear, plus a trained vector for each place: nothing is scaled (Dosovitskiy et al. 2021, equation 1)."""
    eye, x = made({"kind": "patches", **TINY["patches"]}), pictures()
    entered = eye.encoder.enter(eye.patch(eye.patches(x).flatten(1, 2)))
    close(entered, eye.patch(eye.patches(x).flatten(1, 2)) + eye.encoder.enter.position.weight[:6])


def test_the_summary_is_the_mean_of_what_is_said():
    for choice in CHOICES:
        encoded = made(choice)(pictures())
        close(encoded.summary, encoded.states.mean(1))


def test_patches_by_hand():
    eye, x = made({"kind": "patches", **TINY["patches"]}), pictures()
    cut = eye.patches(x)
    assert cut.shape == (3, 2, 3, 32)
    close(cut[:, 1, 2].unflatten(-1, (2, 4, 4)), x[:, :, 4:8, 8:12])


@pytest.mark.parametrize(
    ("choice", "shape", "message"),
    [
        ("resnet", (3, 8, 12), r"reads \[images, 2, height, width\], here \[3, 8, 12\]"),
        ("resnet", (1, 3, 8, 8), r"reads \[images, 2, height, width\], here \[1, 3, 8, 8\]"),
        ("patches", (1, 2, 30, 28), "patches of 4 do not tile 30 × 28; choose size from: 1, 2"),
        ("convolution", (1, 2, 3, 9), "a map of 1 × 4 cannot be halved"),
        ("densenet", (1, 2, 9, 9), "cannot be halved; choose fewer layers, or larger images"),
    ],
)
def test_what_does_not_fit_is_said(choice, shape, message):
    with pytest.raises(SeqloomError, match=message):
        build(IMAGE_ENCODERS, choice, channels=2).eval()(torch.zeros(shape))


def test_wrong_names_are_guessed():
    for choice, message in (
        ("resnt", "unknown kind 'resnt'; did you mean 'resnet'"),
        ({"kind": "resnet", "stem": "big"}, "unknown stem 'big'"),
        ({"kind": "resnet", "residual": "dense"}, "unknown residual 'dense'"),
        ({"kind": "convolution", "pool": "maks"}, "unknown pool 'maks'. Choose from: max, mean"),
        ({"kind": "densenet", "compression": 0.0}, "compression is above 0 and at most 1, here 0.0"),
        ({"kind": "grid", "eye": "patches"}, "unknown kind 'patches'"),
        (
            {"kind": "resnet", "blocks": []},
            r"blocks of an image encoder lists at least one number, .*here \[\]",
        ),
        (
            {"kind": "convolution", "dims": [3, 0]},
            r"dims of an image encoder lists at least one number, .*here \[3, 0\]",
        ),
        ({"kind": "convolution", "size": 0}, "size is at least 1, here 0"),
        ({"kind": "patches", "size": 0}, "size is at least 1, here 0"),
        ({"kind": "densenet", "growth": 0}, "growth is at least 1, here 0"),
    ):
        with pytest.raises(SeqloomError, match=message):
            build(IMAGE_ENCODERS, choice, channels=2)


def test_a_transition_leaves_a_channel_at_least():
    eye = build(
        IMAGE_ENCODERS, {"kind": "densenet", "blocks": [1, 1], "growth": 1, "compression": 0.1}, channels=2
    ).eval()
    assert eye.between[0].weigh.out_channels == 1
    assert eye(pictures(dtype=torch.float32)).states.shape == (3, 1, 2)


def test_settings_are_complete():
    for name in IMAGE_ENCODERS:
        whole = complete(IMAGE_ENCODERS, name)
        assert complete(IMAGE_ENCODERS, whole) == whole
