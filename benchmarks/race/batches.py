"""The batches everybody is fed with, written once as numbers: words of CMUdict, letters of a text, or random tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from targets import Work
from words import Words, cmudict

from seqloom.data.tokenizers.tokenizers import BOS, EOS, SPECIALS

SEED, WIDTH = 7, 32  # tokens of a random sentence


def write(file: Path, work: Work, words: Words | None, text: str | None) -> dict[str, int]:
    """`words`: None on a GPU, where tokens are drawn. Gives what one pass over the batches holds."""
    if work.kind == "language":
        letters = text is not None and work.model["name"] != "words"
        arrays = _letters(work, text or "") if letters else _drawn_text(work)
    elif words is not None:
        arrays = words.arrays(work.batches, work.rows)
    else:
        arrays = _drawn_pairs(work)
    np.savez(file, **arrays)
    return counted(work, arrays)


def counted(work: Work, arrays: dict[str, np.ndarray]) -> dict[str, int]:
    """Of one pass: words (or sentences), and target tokens that are guessed or written."""
    lengths = [lengths for name, lengths in arrays.items() if name.startswith("target_lengths_")]
    rows = sum(map(len, lengths))
    real = int(sum(part.sum() for part in lengths)) - rows  # the first is given
    return {"words": rows, "tokens": rows * work.steps if work.kind == "decode" else real, "batches": len(lengths)}


def _letters(work: Work, text: str) -> dict[str, np.ndarray]:
    known = sorted(set(text))
    number = {letter: len(SPECIALS) + n for n, letter in enumerate(known)}
    ids = np.array([number[letter] for letter in text[: 1 << 20]], np.int64)
    return _blocks(work, ids, len(SPECIALS) + len(known))


def _drawn_text(work: Work) -> dict[str, np.ndarray]:
    """As words are: the n-th as often as 1/n; all alike where the model is of no words."""
    size, random = work.model["size"], np.random.default_rng(SEED)
    need = work.batches * work.rows * (work.model["block"] + 1)
    if work.model["name"] != "words":
        return _blocks(work, random.integers(len(SPECIALS), size, need), size)
    often = 1 / np.arange(1, size - len(SPECIALS) + 1)
    return _blocks(work, len(SPECIALS) + random.choice(len(often), need, p=often / often.sum()), size)


def _blocks(work: Work, ids: np.ndarray, size: int) -> dict[str, np.ndarray]:
    """Stretches of the text, anywhere in it, each with the token after it."""
    width, random = work.model["block"] + 1, np.random.default_rng(SEED)
    arrays = {"sizes": np.array([size, size])}
    for n in range(work.batches):
        starts = random.integers(0, len(ids) - width + 1, work.rows)
        arrays[f"target_{n}"] = ids[starts[:, None] + np.arange(width)]
        arrays[f"target_lengths_{n}"] = np.full(work.rows, width)
    return arrays


def _drawn_pairs(work: Work) -> dict[str, np.ndarray]:
    """Targets of WIDTH guessed tokens. Sources of an LSTM are of unequal length, so that its masks have work to do."""
    size, random = work.model["size"], np.random.default_rng(SEED)
    arrays = {"sizes": np.array([size, size])}
    ragged = work.model["name"] == "lstm"
    for n in range(work.batches):
        lengths = random.integers(WIDTH * 3 // 4, WIDTH + 1, work.rows) if ragged else np.full(work.rows, WIDTH)
        source = random.integers(len(SPECIALS), size, (work.rows, WIDTH))
        source[np.arange(WIDTH) >= lengths[:, None]] = 0
        source[np.arange(work.rows), lengths - 1] = EOS
        target = random.integers(len(SPECIALS), size, (work.rows, WIDTH + 1))
        target[:, 0], target[:, -1] = BOS, EOS
        arrays |= {f"source_{n}": source, f"source_lengths_{n}": lengths}
        arrays |= {f"target_{n}": target, f"target_lengths_{n}": np.full(work.rows, WIDTH + 1)}
    return arrays


def text_of(file: str | None, folder: Path) -> str:
    """A text file, or the lines of CMUdict."""
    return (Path(file) if file else cmudict(folder / "letters.tsv")).read_text(encoding="utf-8")
