"""Every registered twin obeys the law: see `twin_law.py`."""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from seqloom import acceleration
from seqloom.fast.triton_common import runtime
from tests.fast import twin_law

acceleration.load()
EXAMPLES: dict[str, list[twin_law.Maker]] = {}
for file in sorted(Path(__file__).parent.glob("*/examples.py")):
    EXAMPLES |= import_module(f"tests.fast.{file.parent.name}.examples").EXAMPLES

TWINS = [
    pytest.param(name, twin, id=f"{name.removeprefix('seqloom.')}-{twin.fast.__module__.removeprefix('seqloom.fast.')}")
    for name, twins in sorted(acceleration.TWINS.items())
    for twin in twins
    if twin.fast.__module__.startswith("seqloom.")
]


def plain_function(name: str):
    """The plain function of a name, which may be a method's."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        if (found := sys.modules.get(".".join(parts[:end]))) is not None:
            for part in parts[end:]:
                found = getattr(found, part)
            return acceleration.plain_of(found)
    raise AssertionError(f"{name} is nowhere")


@pytest.mark.parametrize(("name", "twin"), TWINS)
def test_twin(name, twin):
    """Values and gradients equal those of the plain function in every example that the twin supports."""
    supported = [make for make in EXAMPLES.get(name, []) if twin_law.supports(twin, make)]
    if not supported and not runtime.READY and not torch.cuda.is_available() and _needs_gpu(twin):
        pytest.skip("its kernel needs a GPU or Triton's interpreter")
    assert supported, f"no example of {name} is supported by {twin.fast.__module__}.{twin.fast.__qualname__}"
    for make in supported:
        twin_law.obeys(twin, plain_function(name), make)


def _needs_gpu(twin: acceleration.Twin) -> bool:
    home = twin.fast.__module__
    return "gpu" in home or "triton" in home or "cuda" in home


def test_a_twin_takes_the_arguments_of_its_plain_function():
    """By the same names, so that calls with keywords mean the same."""
    for name, twins in acceleration.TWINS.items():
        for twin in twins:
            if twin.fast.__module__.startswith("seqloom."):
                wanted = list(inspect.signature(plain_function(name)).parameters)[1:]
                for function in (twin.fast, twin.supported):
                    assert list(inspect.signature(function).parameters)[1:] == wanted, f"{function} for {name}"


def test_the_law_finds_a_twin_that_is_wrong():
    double = acceleration.accelerated(lambda x: x + x)
    acceleration.TWINS.pop(f"{double.__module__}.{double.__qualname__}")
    make = lambda: twin_law.call(torch.ones(2, requires_grad=True))  # noqa: E731
    for fast in (lambda x: 2.1 * x, lambda x: (2 * x).detach() + 0 * x):
        with pytest.raises(AssertionError):
            twin_law.obeys(acceleration.Twin(fast, lambda x: True, False, False), lambda x: x + x, make)
