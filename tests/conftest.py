"""What several tests share: small data, and one small trained run."""

from __future__ import annotations

import gc
import os
import random
from pathlib import Path

import pytest
from hypothesis import settings

# No test is about time unless it says so: cores are shared here, and a pause of one example is no failure.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")

# Before torch is loaded, and for what tests start: models are tiny here, and threads that wait for each other cost more
# than they bring, above all beside another process of tests.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["SEQLOOM_LANG"] = "en"  # whatever the locale of the machine

SOUNDS = {"a": "AH", "b": "B", "c": "K", "d": "D", "e": "EH", "f": "F", "g": "G", "h": "HH", "i": "IH", "j": "JH"}


def pronounce(word: str) -> str:
    """A small language: a letter a sound, but `ch` is one, and a doubled letter is spoken once."""
    sounds, i = [], 0
    while i < len(word):
        if word[i : i + 2] == "ch":
            sounds.append("CH")
            i += 2
        elif i and word[i] == word[i - 1]:
            i += 1
        else:
            sounds.append(SOUNDS[word[i]])
            i += 1
    return " ".join(sounds)


def words(count: int, seed: int = 1, longest: int = 8) -> list[str]:
    draw = random.Random(seed)
    found = {"".join(draw.choices(list(SOUNDS), k=draw.randint(2, longest))) for _ in range(3 * count)}
    return sorted(found)[:: max(len(found) // count, 1)][:count]


def write_pairs(path: Path, chosen: list[str]) -> Path:
    path.write_text("".join(f"{word}\t{pronounce(word)}\n" for word in chosen), encoding="utf-8")
    return path


# The files that take longest, which begin first: else one process may be left with one of them at the end.
LONG = ("runs/train/test_torchrun.py", "test_docs.py", "runs/interop/test_onnx_export.py", "runs/train/test_resume.py")
LONG += ("runs/many/test_parallel_jobs.py", "models/test_compile.py", "parts/test_laws.py", "models/test_laws.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {Path(__file__).parent / name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: rank.get(item.path, len(LONG)))


def pytest_collection_finish() -> None:
    """What has been loaded by now stays: no search for garbage need go through it, nor begin so often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Never the user's own cache; inherited by the commands that tests start."""
    folder = tmp_path_factory.mktemp("cache")
    patch = pytest.MonkeyPatch()
    patch.setenv("SEQLOOM_CACHE", str(folder))
    patch.setenv("NO_COLOR", "1")
    return folder


@pytest.fixture(autouse=True, scope="session")
def unsynced() -> None:
    """Only a power cut could show that nothing waits for the disk here. Processes that tests start do wait for it."""
    pytest.MonkeyPatch().setattr(os, "fsync", os.fstat)


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("pairs") / "words.tsv", words(600))


@pytest.fixture(scope="session")
def run(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small attentive GRU that has learned something."""
    import seqloom

    folder = tmp_path_factory.mktemp("runs") / "small"
    seqloom.train(
        "translate",
        pairs,
        output=folder,
        model="gru-attention",
        size="tiny",
        valid="10%",
        data={"source_tokens": "chars", "target_tokens": "words"},
        training={"max_steps": 250, "batch_rows": 64, "learning_rate": 5e-3, "valid_every": 125},
        quiet=True,
    )
    return folder
