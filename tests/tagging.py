"""A small language with tags, for tests: what a word is, its ending says, and for some words the word before."""

from __future__ import annotations

import random
from pathlib import Path

STEMS = ("lan", "mor", "tis", "ven", "kal", "dor", "sim", "bru", "fel", "gon", "pav", "rud")


def sentences(count: int, seed: int = 1) -> list[list[tuple[str, str]]]:
    """The man-made: `the` DET, -o NOUN, -i ADJ, -as VERB; `ca` is a NOUN after `the` and else a VERB."""
    draw = random.Random(seed)

    def stem() -> str:
        return "".join(draw.choices(STEMS, k=draw.randint(1, 2)))

    found = []
    for _ in range(count):
        row: list[tuple[str, str]] = []
        for _ in range(draw.randint(1, 3)):
            row.append(("the", "DET"))
            if draw.random() < 0.5:
                row.append((f"{stem()}i", "ADJ"))
                row.append((f"{stem()}o", "NOUN"))
            else:
                row.append(("ca", "NOUN") if draw.random() < 0.3 else (f"{stem()}o", "NOUN"))
            row.append(("ca", "VERB") if draw.random() < 0.3 else (f"{stem()}as", "VERB"))
        found.append([*row, (".", "PUNCT")] if draw.random() < 0.8 else row)
    return found


def names(count: int, seed: int = 1) -> list[list[tuple[str, str]]]:
    """The same with spans in BIO: what begins with a capital is a person, two in a row are one; after `in` a place."""
    draw = random.Random(seed)
    found = []
    for row in sentences(count, seed):
        tagged = [(word, "O") for word, _ in row]
        for _ in range(draw.randint(0, 2)):
            at = draw.choice([0, len(tagged)])  # never inside another span
            kind, before = draw.choice([("PER", []), ("LOC", [("in", "O")])])
            span = [
                (draw.choice(STEMS).title(), f"{'I' if place else 'B'}-{kind}") for place in range(draw.randint(1, 2))
            ]
            tagged[at:at] = [*before, *span, (",", "O")]
        found.append(tagged)
    return found


def write_tags(path: Path, rows: list[list[tuple[str, str]]], between: str = "\t") -> Path:
    text = "".join("".join(f"{word}{between}{tag}\n" for word, tag in row) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
    return path
