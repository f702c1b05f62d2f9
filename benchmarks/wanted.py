"""What is raced, by whom, and what we want of it: the two tables, one for a CPU of two cores and one for a large GPU.

A must or an aim is a ratio to peers in the same run where peers can be had, else a figure. Sizes, batches and steps are
data here, so that they travel to the peers' processes as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

OURS = "seqloom"
KINDS = ("train", "decode", "language")
BF16 = {"precision": "bf16"}
COMPILED = {"compiled": True}


@dataclass(frozen=True)
class Entrant:
    """A column: its label, the peer whose process runs it, which of its models, and what differs from the work."""

    label: str
    peer: str
    variant: str
    differs: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Claim:
    """What we want of one of our columns. `against`: a ratio to the fastest column whose label begins so ("" is any
    peer in full precision; None: the figure itself is judged)."""

    ours: str
    must: float | None
    aim: float | None
    against: str | None = ""
    aim_against: str | None = None  # where the aim is set by another peer


@dataclass(frozen=True)
class Work:
    """A row of a table. `unit` says what is counted: see `rate`."""

    key: str
    title: str
    kind: str  # of KINDS
    unit: str
    model: dict[str, Any]
    rows: int
    entrants: tuple[Entrant, ...]
    claims: tuple[Claim, ...]
    steps: int = 0  # to decode
    beam: int = 1
    batches: int = 4
    memory: float | None = None  # GB that we may use at most

    @property
    def falling(self) -> bool:
        """Less is better: milliseconds."""
        return self.unit.startswith("ms")


def entrant(label: str, peer: str, variant: str, **differs: Any) -> Entrant:
    return Entrant(label, peer, variant, tuple(sorted(differs.items())))


SMALL = {"name": "transformer", "dim": 256, "layers": 3, "heads": 4, "hidden": 1024, "dropout": 0.1}
LSTM = {"name": "lstm", "embedding": 256, "dim": 512, "dropout": 0.1}
LETTERS = {"name": "language", "dim": 384, "layers": 6, "heads": 6, "hidden": 1536, "block": 256, "dropout": 0.0}
BASE = {"name": "transformer", "dim": 512, "layers": 6, "heads": 8, "hidden": 2048, "dropout": 0.1, "size": 32_000}
FED = {"name": "lstm", "feeding": True, "embedding": 512, "dim": 512, "dropout": 0.1, "size": 32_000}
GPT2 = {"name": "language", "dim": 768, "layers": 12, "heads": 12, "hidden": 3072, "block": 1024, "dropout": 0.0}

_BOTH = (entrant(OURS, OURS, "model"), entrant(f"{OURS} bf16", OURS, "model", **BF16))
_DECODERS = (
    entrant(OURS, OURS, "model"),
    entrant("Hugging Face Marian", "huggingface", "marian"),
    entrant("Hugging Face BART", "huggingface", "bart"),
    entrant("CTranslate2 float32", "ctranslate2", "float32"),
    entrant("CTranslate2 int8", "ctranslate2", "int8"),
)


def _decode(key: str, title: str, rows: int, beam: int, claim: Claim, **more: Any) -> Work:
    unit = "ms a word" if rows == 1 else "words/s"
    return Work(key, title, "decode", unit, SMALL, rows, _DECODERS, (claim,), steps=15, beam=beam, batches=8, **more)


CPU = (
    Work(
        "transformer",
        "train a Transformer, 3+3 layers of 256",
        "train",
        "words/s",
        SMALL,
        256,
        (
            *_BOTH,
            entrant("nn.Transformer", "plain", "transformer"),
            entrant("nn.Transformer bf16", "plain", "transformer", **BF16),
            entrant("Hugging Face Marian", "huggingface", "marian"),
            entrant("x-transformers", "xtransformers", "transformer"),
            entrant("yoyodyne", "yoyodyne", "transformer"),
            entrant("eole", "eole", "transformer"),
        ),
        (Claim(OURS, 1.1, 1.3), Claim(f"{OURS} bf16", 1.4, 1.8)),
    ),
    Work(
        "lstm",
        "train an LSTM with attention, no feeding",
        "train",
        "words/s",
        LSTM,
        256,
        (
            *_BOTH,
            entrant("nn.LSTM", "plain", "lstm"),
            entrant("nn.LSTM bf16", "plain", "lstm", **BF16),
            entrant("eole", "eole", "lstm"),
        ),
        (Claim(OURS, 1.1, 1.5), Claim(f"{OURS} bf16", 1.1, 1.5)),
    ),
    Work(
        "lstm-feeding",
        "train an LSTM with attention and feeding",
        "train",
        "words/s",
        {**LSTM, "feeding": True},
        256,
        (
            *_BOTH,
            entrant("textbook loop", "plain", "lstm"),
            entrant("textbook loop bf16", "plain", "lstm", **BF16),
            entrant("eole", "eole", "lstm"),
            entrant("yoyodyne", "yoyodyne", "lstm"),
        ),
        (Claim(OURS, 1.1, 1.5), Claim(f"{OURS} bf16", 1.1, 1.5)),
    ),
    _decode(
        "greedy", "decode 15 steps, batch 64, greedy", 64, 1, Claim(OURS, 1.5, 1.0, "Hugging", "CTranslate2 float")
    ),
    _decode("beam", "decode 15 steps, batch 64, beam 5", 64, 5, Claim(OURS, 1.5, 1.0, "Hugging", "CTranslate2 float")),
    _decode("one-greedy", "decode 15 steps, batch 1, greedy", 1, 1, Claim(OURS, 15, 10, None)),
    _decode("one-beam", "decode 15 steps, batch 1, beam 5", 1, 5, Claim(OURS, 25, 15, None)),
    Work(
        "lstm-greedy",
        "decode 15 steps with an LSTM, batch 64, greedy",
        "decode",
        "words/s",
        LSTM,
        64,
        (entrant(OURS, OURS, "model"), entrant("nn.LSTM", "plain", "lstm")),
        (Claim(OURS, 1_000, 1_300, None),),
        steps=15,
        batches=8,
    ),
    Work(
        "letters",
        "train a character language model, 6 layers of 384",
        "language",
        "tokens/s",
        LETTERS,
        12,
        (
            *_BOTH,
            entrant("plain GPT", "plain", "language"),
            entrant("plain GPT bf16", "plain", "language", **BF16),
            entrant("Hugging Face GPT-2", "huggingface", "gpt2"),
            entrant("x-transformers", "xtransformers", "language"),
        ),
        (Claim(OURS, 1.0, 1.1), Claim(f"{OURS} bf16", 1.5, 1.8)),
        batches=2,
    ),
)


def _halves(*found: tuple[str, str, str]) -> tuple[Entrant, ...]:
    """Ours and the peers, each in bf16, plain and compiled."""
    made = []
    for label, peer, variant in ((OURS, OURS, "model"), *found):
        made.append(entrant(label, peer, variant, **BF16))
        made.append(entrant(f"{label} compiled", peer, variant, **BF16, **COMPILED))
    return tuple(made)


_BASES = _halves(("nn.Transformer", "plain", "transformer"), ("Hugging Face Marian", "huggingface", "marian"))
_STEPPERS = (
    entrant(OURS, OURS, "model", **BF16),
    entrant("nn.Transformer", "plain", "transformer", **BF16),
    entrant("Hugging Face Marian", "huggingface", "marian", **BF16),
)


def _both(must: float, aim: float) -> tuple[Claim, ...]:
    return (Claim(OURS, must, aim, None), Claim(f"{OURS} compiled", must, aim, None))


def _base(rows: int, must: float, aim: float) -> Work:
    title = f"train Transformer-base, {rows:,} × 32 tokens"
    return Work(f"base-{rows}", title, "train", "tokens/s", BASE, rows, _BASES, _both(must, aim))


def _steps(key: str, title: str, rows: int, beam: int, claim: Claim) -> Work:
    unit, who = ("ms a step", _STEPPERS) if rows == 1 else ("tokens/s", _STEPPERS[::2])
    who = who if beam == 1 else _STEPPERS[::2]  # nn.Transformer has no beam search
    return Work(key, title, "decode", unit, BASE, rows, who, (claim,), steps=32, beam=beam, batches=2)


GPU = (
    _base(384, 500e3, 900e3),
    _base(1536, 900e3, 1200e3),
    Work(
        "fed",
        "train an LSTM with attention and feeding, 512, 256 × 32 tokens",
        "train",
        "tokens/s",
        FED,
        256,
        _halves(("textbook loop", "plain", "lstm"))[::2],  # compiling a loop gains nothing, and takes minutes
        (Claim(OURS, 450e3, 800e3, None),),
    ),
    Work(
        "gpt2",
        "train the 124M shape of GPT-2, 32 × 1,024 tokens",
        "language",
        "tokens/s",
        {**GPT2, "size": 50_304},
        32,
        (
            *_halves(("plain GPT", "plain", "language"), ("Hugging Face GPT-2", "huggingface", "gpt2")),
            entrant("x-transformers compiled", "xtransformers", "language", **BF16, **COMPILED),
        ),
        _both(520e3, 600e3),
        batches=2,
        memory=21.0,
    ),
    _steps("one-greedy", "decode 6+6 layers at batch 1, greedy", 1, 1, Claim(OURS, 0.4, 0.2, None)),
    _steps("one-beam", "decode 6+6 layers at batch 1, beam 4", 1, 4, Claim(OURS, 0.6, 0.3, None)),
    _steps("beam", "decode 6+6 layers at batch 64, beam 4", 64, 4, Claim(OURS, 60e3, 100e3, None)),
)
TABLES = {"cpu": CPU, "cuda": GPU}
TINY = {"dim": 64, "layers": 2, "heads": 4, "hidden": 128, "size": 100, "block": 32, "embedding": 64}


def works(table: str, only: list[str], small: bool = False) -> list[Work]:
    """The rows asked for, by kind or by key. `small`: models of a toy's size, to see whether everything runs."""
    chosen = [work for work in TABLES[table] if not only or {work.kind, work.key} & set(only)]
    if not small:
        return chosen
    toys = [{**work.model, **{k: v for k, v in TINY.items() if k in work.model}} for work in chosen]
    return [replace(work, model=toy, rows=min(work.rows, 8), batches=2) for work, toy in zip(chosen, toys, strict=True)]
