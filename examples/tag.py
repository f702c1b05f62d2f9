"""Train, score and use a model that tells the parts of speech: `python examples/tag.py [words.tsv] [steps]`.

A file has a word, a TAB and its tag on each line, and an empty line after each sentence; CoNLL and CoNLL-U are read
too. Without one it learns the small sentences below. Everything here is the public face of Seqloom.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import seqloom

NOUNS, ADJECTIVES, VERBS = (
    ("cats", "dogs", "birds", "runs"),
    ("old", "quick", "red"),
    ("runs", "sees", "likes", "watches"),
)


def made_up(folder: Path) -> Path:
    """Every adjective with every noun and verb: `the red cats likes the dogs`. One word, runs, is two things."""
    rows = [
        [("the", "DET"), (adjective, "ADJ"), (noun, "NOUN"), (verb, "VERB"), ("the", "DET"), (other, "NOUN")]
        for adjective in ADJECTIVES
        for noun in NOUNS
        for verb in VERBS
        for other in NOUNS
    ]
    path = folder / "words.tsv"
    path.write_text("".join("".join(f"{word}\t{tag}\n" for word, tag in row) + "\n" for row in rows), encoding="utf-8")
    return path


def main(data: str | None = None, steps: int = 100) -> None:
    folder = Path(tempfile.mkdtemp())
    words = Path(data) if data else made_up(folder)

    # An LSTM both ways over words and their characters, with a CRF; `window` and `majority` are its baselines.
    run = seqloom.train(
        "tag",
        words,
        output=folder / "run",
        model="lstm-crf",
        size="tiny",
        valid="10%",
        training={"max_steps": steps, "learning_rate": 5e-3, "warmup": 10},
    )
    print("best validation:", run.best)

    # What was trained is loaded from its folder, as anybody else would. One tag comes back for each word.
    model = seqloom.load(run.folder)
    text = "the quick runs runs the dogs"
    for word, tag in zip(text.split(), model.predict([text])[0].split(), strict=True):
        print(f"  {word:<10} {tag}")
    answer = next(iter(model.answers([text])))[0]
    print(f"confidence {answer.confidence:.3f}, log p(all tags) {answer.log_probability:.3f}")

    # Scores with their intervals; where tags mark spans (B-PER, I-PER, O), span F1 too.
    print(model.evaluate(words).metrics)


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
