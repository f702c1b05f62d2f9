"""Train language models on a text and let them write: `python examples/generate.py [text.txt] [steps]`.

Without a file it makes up a small language. Everything here is the public face of Seqloom.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import seqloom

ANIMALS, PLACES = ("cat", "dog", "crow", "mouse"), ("mat", "roof", "hill", "moon")


def rhymes(folder: Path) -> Path:
    draw = random.Random(1)
    path = folder / "rhymes.txt"
    lines = (f"the {draw.choice(ANIMALS)} sat on the {draw.choice(PLACES)}\n" for _ in range(2000))
    path.write_text("".join(lines), encoding="utf-8")
    return path


def main(data: str | None = None, steps: int = 300) -> None:
    folder = Path(tempfile.mkdtemp())
    text = Path(data) if data else rhymes(folder)

    # A counted model first: what a neural one must beat. It needs no training, only one look at the text.
    baseline = seqloom.train("generate", text, output=folder / "ngram", model="ngram", size="tiny", quiet=True)
    print("n-grams:", baseline.best)

    # An LSTM over contiguous streams, its state carried from batch to batch; the last tenth of the text is held out.
    run = seqloom.train(
        "generate",
        text,
        output=folder / "lstm",
        valid="10%",
        model="lstm",
        size="tiny",
        data={"tokens": "chars", "batches": "stream", "length": 64},
        training={"max_steps": steps, "batch_rows": 32, "learning_rate": 5e-3},
        settings={"dropout": 0.0},
    )
    print("best validation:", run.best)

    # What was trained is loaded from its folder, as anybody else would.
    model = seqloom.load(run.folder)
    print({name: round(value, 3) for name, value in model.evaluate(text).metrics.items()})

    # Text comes in pieces, as it is written; the same seed writes the same.
    search = seqloom.Search(sample=True, temperature=0.7, top_k=10, seed=7)
    for piece in model.generate("the ", search):
        print(piece, end="", flush=True)
    print()

    # Several prompts at once; greedy where nothing is drawn.
    for prompt, continuation in zip(("the cat", "the"), model.predict(["the cat", "the"]), strict=True):
        print(repr(prompt), "->", repr(continuation[:40]))


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
