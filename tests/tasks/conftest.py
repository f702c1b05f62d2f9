"""Small texts for the tasks that learn from text alone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

ANIMALS, FOODS = ("cat", "dog", "cow", "hen", "pig"), ("bread", "rice", "corn", "cake", "soup")


def sentences(count: int, seed: int = 1) -> list[str]:
    """Two kinds of sentences, in which animals stand in like places, and foods in others."""
    draw = random.Random(seed)
    forms = (
        "the {a} runs over the hill",
        "a {a} sleeps under the tree",
        "we eat {f} with salt",
        "they cook {f} at noon",
    )
    return [draw.choice(forms).format(a=draw.choice(ANIMALS), f=draw.choice(FOODS)) for _ in range(count)]


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plain") / "plain.txt"
    path.write_text("".join(f"{line}\n" for line in sentences(400)), encoding="utf-8")
    return path
