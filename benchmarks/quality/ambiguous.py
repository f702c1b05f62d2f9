"""Noun or verb? Who can tell by a word that stands so many words before: taggers on the dataset `saw`, on a CPU.

    python benchmarks/quality/ambiguous.py --output benchmarks/results/today-ambiguous.md

Each is trained by `seqloom.train` and asked for the words of the test split that are a noun in one sentence and a verb
in another that is otherwise the same. One vector at a time can only guess; a window can within its width, where half of
it lies before the word. Two minutes on two cores.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import seqloom
from seqloom.data.datasets import catalog
from seqloom.data.datasets.synthetic.ambiguous_words import DISTANCES, word_and_distance
from seqloom.files import write_atomic

BANDS = ((1, 1), (4, 5), (6, 10), (11, 15), (16, 20))  # of distances
# Each by name: the preset, and what differs from it.
TAGGERS: dict[str, tuple[str, dict[str, Any]]] = {
    "each word's commonest tag": ("majority", {}),
    "one vector at a time": ("window", {"encoder.window": 1}),
    "window of 5": ("window", {"encoder.window": 5}),
    "window of 11": ("window", {"encoder.window": 11}),
    "simple RNN": ("rnn", {"encoder.directions": 1}),
    "LSTM": ("lstm", {"encoder.directions": 1}),
    "attention": ("transformer", {"encoder.dim": 64, "encoder.hidden": 128}),
}


def trained(name: str, steps: int, folder: Path) -> Any:
    preset, more = TAGGERS[name]
    more = {} if preset == "majority" else {"dropout": 0.1, "unknown": 0.0, **more}
    training = {"max_steps": steps, "batch_rows": 64, "rate": 3e-3, "valid_every": steps}
    run = seqloom.train(
        "tag",
        "saw",
        output=folder / name.replace(" ", "-"),
        model=preset,
        size="tiny",
        training=training,
        settings=more,
        device="cpu",
        quiet=True,
    )
    return run.load("cpu")


def right(model: Any, sentences: Sequence[Any]) -> dict[int, float]:
    """The share of the words asked for that has its tag, by distance."""
    found: dict[int, list[bool]] = {distance: [] for distance in DISTANCES}
    answers = model.predict([" ".join(word for word, _ in sentence) for sentence in sentences])
    for sentence, tags in zip(sentences, answers, strict=True):
        at, distance = word_and_distance(sentence)
        found[distance].append(tags.split(" ")[at] == sentence[at][1])
    return {distance: sum(several) / len(several) for distance, several in found.items() if several}


def table(found: dict[str, dict[int, float]]) -> str:
    head = ["tagger", *(str(low) if low == high else f"{low}–{high}" for low, high in BANDS)]
    rows = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * len(BANDS)]
    for name, shares in found.items():
        bands = [[share for distance, share in shares.items() if low <= distance <= high] for low, high in BANDS]
        cells = [f"{100 * sum(band) / len(band):.1f}" if band else "" for band in bands]
        rows.append("| " + " | ".join([name, *cells]) + " |")
    note = "Right tags of the ambiguous words, in %, by how many words before them the one that decides stands."
    return "\n".join([*rows, "", note, ""])


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--only", nargs="*", default=list(TAGGERS), choices=list(TAGGERS), metavar="TAGGER")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args(words)
    sentences, found = list(catalog.find("saw").examples("test")), {}
    with tempfile.TemporaryDirectory() as folder:
        for name in args.only:
            found[name] = right(trained(name, args.steps, Path(folder)), sentences)
            print(table({name: found[name]}).splitlines()[2], flush=True)
    text = f"# Noun or verb, {args.steps} updates\n\n`python benchmarks/quality/ambiguous.py`\n\n" + table(found)
    if args.output:
        write_atomic(args.output, text)


if __name__ == "__main__":
    main()
