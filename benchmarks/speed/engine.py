"""What `--engine ct2` costs beside CTranslate2 itself: the same files, the same words, the same search, alternating.

    python benchmarks/speed/engine.py --rounds 7

A Transformer of the race's sizes is made with random weights that never end a word, exported as `seqloom export --to
ct2` does it, and decoded by `Translator.answers`, which tokenizes words and returns texts with scores, and by
`ctranslate2.Translator.translate_batch` on the tokens alone. Every word takes as many steps as its limit says. Both
run with one thread and with more, since one thread is faster for a single word.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "race"))
from targets import SMALL
from words import cmudict

import seqloom
from seqloom.data.tokenizers.tokenizers import EOS
from seqloom.decoding.search_options import Search
from seqloom.files import write_atomic
from seqloom.runs.interop.ctranslate2_run import PATIENCE
from seqloom.runs.interop.engines import load_engine
from seqloom.training.checkpoint import save_weights, weights

NEVER = -30.0  # a bias with which no word ends, yet small enough to compare outputs
WORKS = [(1, 1), (1, 5), (64, 1), (64, 5)]  # words at once, beam


def made(folder: Path, words: int) -> tuple[Path, list[str]]:
    """A run whose model never ends a word by itself, and some words of one length, so that they have one limit."""
    file = cmudict(folder / "words.tsv")
    sizes = {name: SMALL[name] for name in ("dim", "layers", "heads", "hidden", "dropout")}
    settings = {f"{side}.{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()}
    seqloom.train(
        "translate",
        str(file),
        output=folder / "run",
        model="transformer",
        settings=settings | {"embedding": SMALL["dim"], "tie_embeddings": True},
        data={"source_tokens": "chars", "target_tokens": "words", "limit": 2000},
        training={"max_steps": 1, "batch_rows": 16},
        quiet=True,
    )
    model = seqloom.load(folder / "run").model
    with torch.no_grad():
        model.output.bias[EOS] = NEVER
    save_weights(folder / "run" / "model.safetensors", weights(model))
    sources = (line.split("\t")[0] for line in file.read_text(encoding="utf-8").splitlines())
    return folder / "run", list(islice((source for source in sources if len(source) == 7), words))


def timed(call: Callable[[], Any], least: float = 1.0) -> float:
    """Seconds a call, over a second of them."""
    started, calls = time.perf_counter(), 0
    while (spent := time.perf_counter() - started) < least:
        call()
        calls += 1
    return spent / calls


def ways(translator: Any, words: list[str], beam: int) -> dict[str, Callable[[], Any]]:
    """Seqloom's translator on CTranslate2, and CTranslate2 alone with the same options."""
    search, texts = Search(beam=beam), translator.texts
    held, encoded = texts.held, [texts.encode(word) for word in words]
    [limit] = {texts.bound(len(source)) for source in encoded}
    letters = [[held.names[0][token] for token in source] for source in encoded]
    asked = {"beam_size": beam, "num_hypotheses": beam, "length_penalty": search.alpha if beam > 1 else 0.0}
    asked |= {"patience": PATIENCE if search.alpha else 1.0, "max_decoding_length": limit, "min_decoding_length": 0}
    return {
        "seqloom": lambda: list(translator.answers(words, search, rows=len(words))),
        "CTranslate2": lambda: held.translator.translate_batch(letters, return_scores=True, **asked),
    }


def raced(both: dict[str, Callable[[], Any]], rounds: int) -> tuple[float, float]:
    """Milliseconds of theirs and of ours, alternating: the medians."""
    for way in both.values():
        way()
    found: dict[str, list[float]] = {name: [] for name in both}
    for turn in range(rounds):
        for name in list(both)[:: 1 if turn % 2 else -1]:
            found[name].append(1e3 * timed(both[name]))
    return statistics.median(found["CTranslate2"]), statistics.median(found["seqloom"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, help="words at once; else one and 64")
    parser.add_argument("--threads", type=int, default=2, help="at most; one is measured too")
    parser.add_argument("--output", type=Path, help="Markdown file")
    args = parser.parse_args()
    lines = [
        "| words at once | beam | threads | CTranslate2, ms | seqloom --engine ct2, ms | ratio |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        run, words = made(Path(folder), max(rows for rows, _ in WORKS))
        for threads in sorted({1, args.threads}):
            torch.set_num_threads(threads)
            translator = load_engine(run, "ct2")
            for rows, beam in (work for work in WORKS if args.rows in (None, work[0])):
                theirs, ours = raced(ways(translator, words[:rows], beam), args.rounds)
                lines.append(f"| {rows} | {beam} | {threads} | {theirs:.2f} | {ours:.2f} | {ours / theirs:.3f} |")
                print(lines[-1], flush=True)
    if args.output:
        write_atomic(args.output, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
