"""Facts of runs that never were: whole, bare and hostile."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from seqloom.data.prepare.pairs import SIDES, DataOptions, prepare_pairs
from seqloom.data.prepare.request import PrepareRequest
from seqloom.reporting.run_facts import Facts
from tests.conftest import words, write_pairs

HOSTILE = [
    "<script>alert(1)</script>",
    "</svg></style></title>",
    "\"' onmouseover='x",
    "&amp;]]>-->",
    "‮שלום\u202d",
    "nul\x00esc\x1b",
    "|`` ` ``|\n---\n# no",
    "a\u0301中文",
]
CONFIG: dict[str, Any] = {
    "format": 1,
    "seqloom": "0.1.0",
    "task": "translate",
    "preset": {"model": "gru-attention", "size": "tiny"},
    "data": {"source_tokens": "chars", "target_tokens": "words"},
    "model": {"kind": "seq2seq", "encoder": {"kind": "recurrent", "dim": 64}},
    "training": {"select": "per", "seed": 7, "learning_rate": 0.004},
    "decoding": {"ratio": 1.5, "longest": 20},
    "inputs": {"train": ["words.tsv"], "valid": "5%"},
}
HISTORY = [
    {
        "step": 10,
        "epoch": 0,
        "loss": 3.0,
        "learning_rate": 1e-3,
        "norm": 2.0,
        "tokens_per_second": 900.0,
        "seconds": 1.0,
    },
    {"skipped": 12, "epoch": 0, "rows": [1]},
    {"step": 20, "epoch": 0, "loss": None, "learning_rate": 2e-3, "norm": float("nan"), "tokens_per_second": 1000.0},
    {"step": 20, "epoch": 0, "valid": {"loss": 2.0, "perplexity": 7.4, "per": 40.0, "exact_match": 5.0}, "best": True},
    {
        "step": 30,
        "epoch": 1,
        "loss": 1.0,
        "learning_rate": 1e-3,
        "norm": 1.0,
        "tokens_per_second": 1100.0,
        "seconds": 75.0,
    },
    {"step": 30, "epoch": 1, "valid": {"loss": 2.1, "perplexity": float("inf"), "per": 41.0}, "best": False},
    {"average": 3, "valid": {"per": 42.0}, "best": False},
]


def data_of() -> dict[str, Any]:
    """What a training leaves as data.json: made by those who write it, so that the report cannot expect another."""
    with TemporaryDirectory() as folder:
        file = write_pairs(Path(folder) / "words.tsv", words(1300))
        with file.open("ab") as more:
            more.write(b"no target\nno target either\n\xff\tB\n")
        options = DataOptions(source_tokens="chars", target_tokens="words", skip_bad=True)
        return prepare_pairs(PrepareRequest([str(file)], 0.05, options, seed=7, cache=Path(folder) / "cache")).facts


DATA = data_of()


def example(source: str, wanted: list[str], written: list[str]) -> dict[str, Any]:
    pairs = [list(pair) for pair in zip(wanted, written, strict=True)]
    return {
        "source": source,
        "references": [" ".join(wanted), "another"],
        "prediction": " ".join(written),
        "log_probability": -1.2,
        "confidence": 0.8,
        "edits": sum(a != b for a, b in pairs),
        "pairs": pairs,
    }


def record(tokens: list[str], value: float = 12.5, fingerprint: str = "f") -> dict[str, Any]:
    shown = [example(token, tokens, [*tokens[1:], tokens[0]]) for token in tokens]
    return {
        "schema": 1,
        "metrics": {"per": value, "exact_match": 60.0, "bleu": None, "perplexity": 1.5},
        "intervals": {"per": [value - 1, value + 1], "exact_match": [55.0, 65.0], "bleu": [None, None]},
        "signature": {"per": "per|refs:closest", "exact_match": "exact_match|refs:any"},
        "count": 200,
        "available": 700,
        "fingerprint": fingerprint,
        "search": {"beam": 1, "sample": False},
        "device": "cpu",
        "parameters": 248_875,
        "seconds": 0.5,
        "per_second": 400.0,
        "lengths": [
            {"shortest": 2, "longest": 4, "count": 100, "error_rate": 10.0, "interval": [8.0, 12.0]},
            {"shortest": 5, "longest": 5, "count": 100, "error_rate": 15.0, "interval": [None, None]},
        ],
        "examples": {"best": [example("good", ["A", "B"], ["A", "B"])], "worst": shown, "random": shown},
        "confusion": {
            "right": 900,
            "substituted": 5,
            "inserted": 1,
            "deleted": 1,
            "pairs": [[tokens[0], tokens[-1], 5], [None, tokens[0], 1], [tokens[0], None, 1]],
            "tokens": tokens,
            "table": [[i * j for j in range(len(tokens) + 1)] for i in range(len(tokens) + 1)],
        },
        "attention": {
            "source": tokens,
            "target": tokens,
            "layer": "attention",
            "heads": 4,
            "weights": [[round(1 / (1 + i + j), 3) for j in range(len(tokens))] for i in range(len(tokens))],
        },
    }


def whole(name: str = "words", **changes: Any) -> Facts:
    known: dict[str, Any] = {
        "name": name,
        "config": CONFIG,
        "history": HISTORY,
        "environment": {"seqloom": "0.1.0", "python": "3.11", "packages": {"torch": "2.13"}, "gpus": [], "cores": 2},
        "data": DATA,
        "records": {"valid": record(["AA", "B", "CH"])},
        "parameters": 248_875,
        "vocabulary": {side: DATA["vocabulary"][side]["size"] for side in SIDES},
        "command": ("seqloom", "train", "translate", "/home/me/words.tsv", "--output", "runs/words-again"),
    }
    return Facts(**{**known, **changes})


def imported(**inputs: Any) -> Facts:
    """As `seqloom import hf` leaves it."""
    config = {
        **CONFIG,
        "preset": {"model": "marian", "size": "imported"},
        "decoding": {"ratio": 1.0, "longest": 511, "limit": 511},
        "inputs": {"train": ["/home/me/opus-mt"], "valid": None, **inputs},
    }
    words = ("seqloom", "import", "hf", "/home/me/opus-mt", "--output", "runs/opus-again")
    return whole("opus", config=config, history=[], data={}, records={}, command=words)


def bare() -> Facts:
    """A run of an older Seqloom, stopped before its first line."""
    return Facts(name="old", config={"format": 1, "task": "translate"})


def hostile() -> Facts:
    """Every text a user or a file can bring is an attack."""
    bad = HOSTILE[0] + HOSTILE[1] + HOSTILE[2]
    config = {
        **CONFIG,
        "preset": {"model": bad + ".yaml", "size": bad},
        "inputs": {"train": HOSTILE, "valid": HOSTILE},
        "data": {"source_tokens": bad, "target_tokens": bad},
        "model": {bad: bad},
    }
    vocabulary = {side: {**DATA["vocabulary"][side], "commonest": [[token, 1] for token in HOSTILE]} for side in SIDES}
    data = {
        **DATA,
        "vocabulary": vocabulary,
        "skipped": {"count": 1, "reasons": {bad: 1}, "first": HOSTILE},
        "notes": HOSTILE,
    }
    found = {**record(HOSTILE), "signature": {"per": bad}, "device": bad, "metrics": {"per": 1.0, bad: 2.0}}
    found["attention"]["layer"] = bad
    return whole(
        name=bad,
        config=config,
        data=data,
        records={"test": found, "valid": found},
        environment={bad: bad, "gpus": HOSTILE, "packages": {bad: bad}},
        command=("seqloom", *HOSTILE),
    )
