"""What is raced, by whom, and what we want of it: the two tables, one for a CPU of two cores and one for a large GPU.

A must or an aim is a ratio to peers in the same run where peers can be had, else a figure. Sizes, batches and steps are
data here, so that they travel to the peers' processes as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

OURS = "seqloom"
KINDS = ("train", "decode", "language")
PRECISIONS = ("fp32", "bf16", "int8")
ANY = "any"  # the best of all precisions, beside the best of all
BF16 = {"precision": "bf16"}
COMPILED = {"compiled": True}


@dataclass(frozen=True)
class Entrant:
    """A column: its label, the peer whose process runs it, which of its models, what differs from the work, and what
    is probed for it before (see probing.py)."""

    label: str
    peer: str
    variant: str
    differs: tuple[tuple[str, Any], ...] = ()
    knobs: tuple[str, ...] = ()

    @property
    def precision(self) -> str:
        return dict(self.differs).get("precision", "fp32")


@dataclass(frozen=True)
class Claim:
    """What we want of ours in one precision, beside peers in the same one; or of our best beside their best, ANY.
    `against`: a ratio to the fastest column whose label begins so ("" is any; None: the figure itself is judged)."""

    precision: str
    must: float | None
    aim: float | None
    against: str | None = ""
    aim_against: str | None = None  # where the aim is set by another peer
    compiled: bool = False  # of our column that is compiled, where that is one by itself


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


def entrant(label: str, peer: str, variant: str, *knobs: str, **differs: Any) -> Entrant:
    return Entrant(label, peer, variant, tuple(sorted(differs.items())), knobs)


def each(label: str, peer: str, variant: str, *knobs: str, half: tuple[str, ...] = ()) -> tuple[Entrant, Entrant]:
    """In full precision and in bf16, where there is more to probe: `half`."""
    full = entrant(label, peer, variant, *knobs)
    return full, entrant(f"{label} bf16", peer, variant, *knobs, *half, **BF16)


SMALL = {"name": "transformer", "dim": 256, "layers": 3, "heads": 4, "hidden": 1024, "dropout": 0.1}
LSTM = {"name": "lstm", "embedding": 256, "dim": 512, "dropout": 0.1}
LETTERS = {"name": "language", "dim": 384, "layers": 6, "heads": 6, "hidden": 1536, "block": 256, "dropout": 0.0}
WORDS = {"name": "words", "embedding": 256, "dim": 512, "block": 35, "dropout": 0.2, "size": 33_278}
BASE = {"name": "transformer", "dim": 512, "layers": 6, "heads": 8, "hidden": 2048, "dropout": 0.1, "size": 32_000}
FED = {"name": "lstm", "feeding": True, "embedding": 512, "dim": 512, "dropout": 0.1, "size": 32_000}
GPT2 = {"name": "language", "dim": 768, "layers": 12, "heads": 12, "hidden": 3072, "block": 1024, "dropout": 0.0}

# Every sentence of a batch takes as many steps, so several workers serve where there are many batches, not one word.
_INT8 = {"precision": "int8"}


def _decoders(*knobs: str) -> tuple[Entrant, ...]:
    """CTranslate2 has no bf16 on a CPU: it would fall back to float32. Compiled, `generate` of Hugging Face took 2.3 s
    of one CPU for 512 words, plain 2.0; a word at a time 0.13 and 0.10: it is not compiled."""
    torchs = ("compute",)
    return (
        *each(OURS, OURS, "model", *knobs),
        *each("Hugging Face Marian", "huggingface", "marian", *knobs, half=torchs),
        *each("Hugging Face BART", "huggingface", "bart", *knobs, half=torchs),
        entrant("CTranslate2 float32", "ctranslate2", "transformer", *knobs, "flags"),
        entrant("CTranslate2 int8", "ctranslate2", "transformer", *knobs, "flags", **_INT8),
    )


def _many(key: str, title: str, beam: int) -> Work:
    claims = (
        Claim("fp32", 1.5, 1.0, "Hugging", "CTranslate2 float"),
        Claim("bf16", 1.5, None, "Hugging"),
        Claim(ANY, 1.0, None),
    )
    who = _decoders("workers")
    return Work(key, title, "decode", "words/s", SMALL, 64, who, claims, steps=15, beam=beam, batches=8)


def _one(key: str, title: str, beam: int, must: float, aim: float) -> Work:
    """A figure in milliseconds, and nobody shall be faster."""
    claims = (Claim("fp32", must, aim, None), *(Claim(name, 1.0, None) for name in ("fp32", "bf16", ANY)))
    who = _decoders("threads")
    return Work(key, title, "decode", "ms a word", SMALL, 1, who, claims, steps=15, beam=beam, batches=8)


def _claims(full: tuple[float, float], half: tuple[float, float]) -> tuple[Claim, ...]:
    return (Claim("fp32", *full), Claim("bf16", *half), Claim(ANY, *half))


# torch.compile; of a loop over steps it compiles every length anew, for minutes. The trainers of eole and yoyodyne, as
# which they are driven, do not compile.
_FUSED = ("threads", "compiled")
CPU = (
    Work(
        "transformer",
        "train a Transformer, 3+3 layers of 256",
        "train",
        "words/s",
        SMALL,
        256,
        (
            *each(OURS, OURS, "model", *_FUSED),
            *each("nn.Transformer", "plain", "transformer", *_FUSED),
            *each("Hugging Face Marian", "huggingface", "marian", *_FUSED),
            *each("x-transformers", "xtransformers", "transformer", *_FUSED),
            *each("yoyodyne", "yoyodyne", "transformer", "threads"),
            *each("eole", "eole", "transformer", "threads"),
        ),
        _claims((1.1, 1.3), (1.4, 1.8)),
    ),
    Work(
        "lstm",
        "train an LSTM with attention, no feeding",
        "train",
        "words/s",
        LSTM,
        256,
        (
            *each(OURS, OURS, "model", "threads"),
            *each("nn.LSTM", "plain", "lstm", "threads"),
            *each("eole", "eole", "lstm", "threads"),
        ),
        _claims((1.1, 1.5), (1.1, 1.5)),
    ),
    Work(
        "lstm-feeding",
        "train an LSTM with attention and feeding",
        "train",
        "words/s",
        {**LSTM, "feeding": True},
        256,
        (
            *each(OURS, OURS, "model", "threads"),
            *each("textbook loop", "plain", "lstm", "threads"),
            *each("eole", "eole", "lstm", "threads"),
            *each("yoyodyne", "yoyodyne", "lstm", "threads"),
        ),
        _claims((1.1, 1.5), (1.1, 1.5)),
    ),
    _many("greedy", "decode 15 steps, batch 64, greedy", 1),
    _many("beam", "decode 15 steps, batch 64, beam 5", 5),
    _one("one-greedy", "decode 15 steps, batch 1, greedy", 1, 15, 10),
    _one("one-beam", "decode 15 steps, batch 1, beam 5", 5, 25, 15),
    Work(
        "lstm-greedy",
        "decode 15 steps with an LSTM, batch 64, greedy",
        "decode",
        "words/s",
        LSTM,
        64,
        (*each(OURS, OURS, "model", "workers"), *each("nn.LSTM", "plain", "lstm", "workers", half=("compute",))),
        (Claim("fp32", 1_000, 1_300, None), *(Claim(name, 1.0, None) for name in ("fp32", "bf16", ANY))),
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
            *each(OURS, OURS, "model", *_FUSED),
            *each("plain GPT", "plain", "language", *_FUSED),
            *each("Hugging Face GPT-2", "huggingface", "gpt2", *_FUSED),
            *each("x-transformers", "xtransformers", "language", *_FUSED),
        ),
        _claims((1.0, 1.1), (1.5, 1.8)),
        batches=2,
    ),
    Work(
        "words",
        "train a word-level LSTM language model, 33,278 words",
        "language",
        "tokens/s",
        WORDS,
        20,
        (*each(OURS, OURS, "model", "threads"), *each("nn.LSTM", "plain", "words", "threads")),
        _claims((1.0, 1.1), (1.0, 1.1)),
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
    """The figure of ours by itself, and compiled."""
    return (Claim("bf16", must, aim, None), Claim("bf16", must, aim, None, compiled=True))


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
        (Claim("bf16", 450e3, 800e3, None),),
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
    _steps("one-greedy", "decode 6+6 layers at batch 1, greedy", 1, 1, Claim("bf16", 0.4, 0.2, None)),
    _steps("one-beam", "decode 6+6 layers at batch 1, beam 4", 1, 4, Claim("bf16", 0.6, 0.3, None)),
    _steps("beam", "decode 6+6 layers at batch 64, beam 4", 64, 4, Claim("bf16", 60e3, 100e3, None)),
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
