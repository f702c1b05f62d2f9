"""Scores by the length of the source, of several recipes side by side: does a fixed context fail on long sentences?

    python benchmarks/quality/papers.py --folder runs/lengths --jobs 2 --only multi30k-gru multi30k-fixed
    python benchmarks/quality/lengths.py runs/lengths/papers.jsonl.gz --chart lengths.svg

Reads what papers.py leaves behind, predictions and all. BLEU, or whatever the recipes are scored by first, of the test
sentences in groups of equal number, by words of the source.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from papers import chosen, facts, pieces_of
from published import ROWS
from scoring import examples

from seqloom.data.tokenizers.tokenizers import normalize
from seqloom.metrics.text.text_metrics import score


class Group(NamedTuple):
    shortest: int  # words
    longest: int
    places: list[int]  # of the test set

    def __str__(self) -> str:
        return f"{self.shortest}–{self.longest}"


def groups(lengths: Sequence[int], parts: int) -> list[Group]:
    """Of nearly equal number; sentences of one length stay together."""
    order = sorted(range(len(lengths)), key=lambda place: lengths[place])
    found: list[list[int]] = [[]]
    for place in order:
        full = len(found[-1]) >= len(lengths) / parts
        if full and len(found) < parts and lengths[found[-1][-1]] != lengths[place]:
            found.append([])
        found[-1].append(place)
    return [Group(lengths[part[0]], lengths[part[-1]], part) for part in found if part]


def by_length(told: dict[str, Any], parts: int) -> dict[str, float]:
    """By group: the first score of the recipe. `told`: an outcome of papers.py with what scoring must know."""
    pairs = [pair for name in told["test"] for pair in examples(name)][: len(told["predictions"])]
    wanted = [tuple(normalize(text, told["fold"]) for text in targets) for _, targets in pairs]
    metric, tokenize = _metric(told), told["evaluate"].get("tokenize", "13a")
    found = {}
    for group in groups([len(source.split()) for source, _ in pairs], parts):
        guesses, references = ([texts[i] for i in group.places] for texts in (told["predictions"], wanted))
        made = score(guesses, references, split=str.split, metrics=[metric], tokenize=tokenize, samples=0)
        found[str(group)] = made.metrics[metric]
    return found


def _metric(told: dict[str, Any]) -> str:
    return told["evaluate"]["metrics"][0]


def table(found: dict[str, dict[str, float]]) -> str:
    heads = list(dict.fromkeys(group for scores in found.values() for group in scores))
    lines = [f"| words of the source | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    for name, scores in found.items():
        lines.append(f"| {name} | {' | '.join(f'{scores[head]:.2f}' for head in heads)} |")
    return "\n".join(lines)


def drawn(found: dict[str, dict[str, float]], metric: str, file: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, scores in found.items():
        axes.plot(list(scores), list(scores.values()), "o-", label=name)
    axes.set(xlabel="words of the source", ylabel=metric)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)  # the same picture every time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outcomes", type=Path, help="papers.jsonl.gz")
    parser.add_argument("--parts", type=int, default=6, help="groups of sentences")
    parser.add_argument("--chart", type=Path, help="SVG or PNG file; needs matplotlib")
    args = parser.parse_args()
    known = chosen(pieces_of(ROWS), ROWS, None)
    outcomes = [json.loads(line) for line in gzip.decompress(args.outcomes.read_bytes()).splitlines()]
    told = {one["key"]: {**one, **facts(known[one["key"]])} for one in outcomes if "predictions" in one}
    rows = [key.rpartition("-")[0] for key in told]  # without the seed, where it tells nothing
    names = rows if len(set(rows)) == len(rows) else list(told)
    found = {name: by_length(one, args.parts) for name, one in zip(names, told.values(), strict=True)}
    print(table(found))
    if args.chart:
        drawn(found, " and ".join(dict.fromkeys(_metric(one) for one in told.values())), args.chart)


if __name__ == "__main__":
    main()
