"""Deep plain stacks train worse than shallow ones; with ways around their blocks they do not."""

import math

import pytest
from depth import trained

from seqloom.parts.transformer.residual import RESIDUALS

MANY = {"transformer": (16, 80), "convolution": (24, 100)}  # blocks, steps


@pytest.mark.slow
@pytest.mark.parametrize("kind", MANY)
def test_depth(kind):
    many, steps = MANY[kind]
    loss = {way: [trained(kind, way, layers, steps) for layers in (2, many)] for way in RESIDUALS}
    assert loss["none"][1] > loss["none"][0] + 0.3
    assert loss["none"][1] > 0.5 * math.log(8)
    for way in ("add", "dense"):
        assert loss[way][1] < loss[way][0]
        assert loss[way][1] < 0.5 * loss["none"][1]


def test_the_same_seed_gives_the_same_loss():
    assert trained("convolution", "dense", 2, 3) == trained("convolution", "dense", 2, 3)
