"""Where peers run: each by an interpreter of its own, with what it needs installed beside the torch that we run with.

transformers, x-transformers and CTranslate2 ask for nothing that the others mind, so the three share an environment;
eole and yoyodyne pin and pull much more, and have one each. On a machine where nothing can be installed all run by our
own interpreter, and one that cannot be imported there is said to be absent.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
READY = "race-ready.txt"
MINUTES = 20  # for installing one environment


@dataclass(frozen=True)
class Environment:
    packages: tuple[str, ...]
    alone: tuple[str, ...] = ()  # installed without what they ask for


# yoyodyne asks for torchvision and torchaudio, of which there is no build beside a CPU torch, and uses neither.
# Two releases of lightning on the index were malicious; a later one is asked for.
ENVIRONMENTS = {
    "shared": Environment(("transformers>=5", "x-transformers>=2", "ctranslate2>=4.6,<5")),
    "eole": Environment(("eole>=0.6,<0.7",)),
    "yoyodyne": Environment(
        ("lightning>=2.6.5,<3", "maxwell", "omegaconf", "jsonargparse[signatures]", "rich", "torchmetrics", "wandb"),
        ("yoyodyne>=0.5,<0.6",),
    ),
}
# Which environment each peer runs in; None: ours.
PEERS: dict[str, str | None] = {
    "seqloom": None,
    "plain": None,
    "huggingface": "shared",
    "xtransformers": "shared",
    "ctranslate2": "shared",
    "eole": "eole",
    "yoyodyne": "yoyodyne",
}


class AbsentError(Exception):
    """Why a peer cannot take part, in one line."""


def interpreter(peer: str, folder: Path | None) -> str:
    """The Python that runs a peer; its environment is made in `folder` if it is not there yet (None: ours)."""
    name = PEERS[peer]
    if name is None or folder is None:
        return sys.executable
    place = folder / name
    if not _ready(place, ENVIRONMENTS[name]):
        _make(place, ENVIRONMENTS[name])
    return str(place / "bin" / "python")


def command(peer: str, python: str, folder: Path | None = None) -> tuple[list[str], dict[str, str]]:
    """How a worker is started. -P: else peers/eole.py would be found in the place of the package it imports. What
    torch.compile makes is kept in `folder` for the next run."""
    path = os.pathsep.join((str(HERE), str(HERE.parents[1])))
    kept = {"TORCHINDUCTOR_CACHE_DIR": str((folder / "compiled").resolve())} if folder else {}
    return [python, "-P", str(HERE / "peers" / f"{peer}.py")], {**os.environ, **kept, "PYTHONPATH": path}


def _asked(environment: Environment) -> str:
    return "\n".join((_torch(), *environment.packages, *environment.alone)) + "\n"


def _torch() -> str:
    """The release that we run with, for all: else a peer might win or lose by its torch."""
    import torch

    return f"torch=={torch.__version__.partition('+')[0]}"


def _ready(place: Path, environment: Environment) -> bool:
    mark = place / READY
    return mark.exists() and mark.read_text(encoding="utf-8") == _asked(environment)


def _make(place: Path, environment: Environment) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", "--clear", str(place)])
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, _torch(), *environment.packages])
    if environment.alone:
        _run([*pip, "--no-deps", *environment.alone])
    (place / READY).write_text(_asked(environment), encoding="utf-8")


def _run(words: list[str]) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60 * MINUTES)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AbsentError(f"not installed: {type(error).__name__}") from error
    if done.returncode:
        told = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise AbsentError(f"not installed: {told[-1].strip()[:200] if told else 'no reason given'}")
