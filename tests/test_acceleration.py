"""The switch between plain code and its fast twins."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from seqloom import acceleration
from seqloom.acceleration import accelerated, disturbed, plain, plain_of, twin_of


@pytest.fixture
def double():
    """A plain function with a fast twin for positive numbers, which says that it ran."""

    @accelerated
    def double(x: int) -> tuple[int, str]:
        return x + x, "plain"

    twin_of(double, lambda x: x > 0)(lambda x: (2 * x, "fast"))
    return double


def test_the_first_twin_that_supports_a_call_takes_it(double):
    twin_of(double, lambda x: True)(lambda x: (2 * x, "second"))
    assert double(3) == (6, "fast")
    assert double(-3) == (-6, "second")
    assert plain_of(double)(3) == (6, "plain")


def test_plain_switches_all_twins_off_and_on_again(double):
    with plain():
        with plain():
            assert double(3) == (6, "plain")
        assert double(3) == (6, "plain")
    assert double(3) == (6, "fast")
    with pytest.raises(ZeroDivisionError), plain():
        raise ZeroDivisionError
    assert double(3) == (6, "fast")


def test_a_state_that_fast_code_made_goes_on(double):
    twin_of(double, lambda x: x == -5, own_state=True)(lambda x: (2 * x, "own"))
    with plain():
        assert double(-5) == (-10, "own")
        assert double(3) == (6, "plain")


def test_probes_and_hooks_take_the_plain_path():
    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        @accelerated
        def forward(self, x):
            return self.inner(x), "plain"

    twin_of(Part.forward, lambda part, x: True)(lambda part, x: (x, "fast"))
    part, x = Part(), torch.zeros(1, 2)
    assert part(x)[1] == "fast"
    assert not disturbed(part)
    hook = part.inner.register_forward_hook(lambda *_: None)
    assert disturbed(part)
    assert part(x)[1] == "plain"
    hook.remove()
    part.inner.probe = print
    assert part(x)[1] == "plain"
    del part.inner.probe
    assert part(x)[1] == "fast"


def test_a_twin_that_calls_the_same_modules_runs_beside_hooks():
    class Part(nn.Module):
        @accelerated
        def forward(self, x):
            return x, "plain"

    twin_of(Part.forward, lambda self, x: True, hooks=True)(lambda self, x: (x, "fast"))
    part = Part()
    with part.register_forward_hook(lambda *given: None):
        assert part(1) == (1, "fast")
        with plain():
            assert part(1) == (1, "plain")


@pytest.mark.parametrize(("compiles", "taken"), [(False, "plain"), (True, "fast")])
def test_compilers_trace_the_plain_form_unless_the_twin_compiles(compiles, taken):
    @accelerated
    def double(x):
        return x + x, "plain"

    twin_of(double, lambda x: True, compiles=compiles)(lambda x: (2 * x, "fast"))
    compiled = torch.compile(double, backend="eager", fullgraph=True)
    y, path = compiled(torch.ones(2))
    assert path == taken
    assert y.tolist() == [2, 2]
    with plain():
        assert compiled(torch.ones(2))[1] == "plain"
    assert compiled(torch.ones(2))[1] == taken


def test_the_environment_switches_twins_off():
    code = """
import importlib, os
from seqloom import acceleration
for value, depth in (("1", 1), ("0", 0), ("", 0)):
    os.environ["SEQLOOM_PLAIN"] = value
    assert importlib.reload(acceleration)._plain == depth
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_twin_is_known_by_the_name_of_its_plain_function():
    acceleration.load()
    assert "seqloom.parts.attention.attend.attend" in acceleration.TWINS
    assert all(
        twin.fast.__module__.startswith("seqloom.fast.")
        for twin in acceleration.TWINS["seqloom.parts.layers.linear.linear"]
    )
