"""What each ingredient gave: rows with one thing changed beside the row they change, on the same test examples.

    python benchmarks/quality/papers.py --folder runs/parts --jobs 4 --only "cmudict-attention, no agreement" "cmudict-attention, one layer"
    python benchmarks/quality/ablations.py runs/parts/papers.jsonl.gz --base "cmudict-attention, no agreement"

Reads what papers.py leaves behind, predictions and all. The interval is that of the difference, 95 %, from the same
draws of test examples for both (Koehn 2004): where it holds 0, the test data do not tell the two apart. It knows
nothing of what another seed would have done.
"""  # noqa: E501 (a command to copy)

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from papers import Piece, facts, pieces_of
from published import ROWS, Row
from scoring import references

from seqloom.metrics.bootstrap import percentiles, resampled_sums
from seqloom.metrics.metric import CorpusScore
from seqloom.metrics.text.text_metrics import METRICS, Examples


class Difference(NamedTuple):
    """Of a score, as papers show it, from that of the base."""

    score: float
    by: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.score:.2f} | {self.by:+.2f} ({self.low:+.2f} … {self.high:+.2f})"


def measured(told: dict[str, Any], metric: str) -> CorpusScore:
    """`told`: an outcome of papers.py with what scoring must know."""
    tokenize = told["evaluate"].get("tokenize", "13a")
    return METRICS[metric](Examples(told["predictions"], references(told), str.split, tokenize))


def difference(one: CorpusScore, base: CorpusScore, errors: bool = False) -> Difference:
    """`errors`: the score is shown as 100 − itself."""
    sums = resampled_sums(np.hstack([one.table, base.table]))
    mine, theirs = np.split(sums, [one.table.shape[1]], axis=1)
    sign = -1 if errors else 1
    moved = [sign * (one.finish(a) - base.finish(b)) for a, b in zip(mine, theirs, strict=True)]
    shown = 100 - one.score if errors else one.score
    return Difference(shown, sign * (one.score - base.score), *percentiles(moved, 0.95))


def table(base: Row, rows: Sequence[Row], told: dict[str, dict[str, Any]]) -> str:
    """A line for each row; `told` by the row's key."""
    lines = [
        f"| | {' | '.join(f'{goal.name} | more than the first' for goal in base.goals)} |",
        "|---|" + "---:|---|" * len(base.goals),
    ]
    whole = [measured(told[base.key], goal.metric) for goal in base.goals]
    first = " | ".join(f"{goal.shown(one.score):.2f} |" for goal, one in zip(base.goals, whole, strict=True))
    lines.append(f"| {base.key} | {first} |")
    for row in rows:
        found = [
            difference(measured(told[row.key], goal.metric), one, goal.errors)
            for goal, one in zip(base.goals, whole, strict=True)
        ]
        lines.append(f"| {row.key.partition(', ')[2] or 'the recipe'} | {' | '.join(map(str, found))} |")
    return "\n".join(lines)


def read(files: Sequence[Path], pieces: dict[str, list[Piece]]) -> dict[str, dict[str, Any]]:
    """Outcomes with predictions, by the key of their row, its first seed."""
    lines = [line for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]
    outcomes = {one["key"]: one for one in map(json.loads, lines) if "predictions" in one}
    first = {row: several[0] for row, several in pieces.items()}
    return {row: {**outcomes[one.key], **facts(one)} for row, one in first.items() if one.key in outcomes}


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outcomes", type=Path, nargs="+", help="papers.jsonl.gz, one or several")
    parser.add_argument("--base", required=True, metavar="ROW", help="the row that the others change")
    args = parser.parse_args(words)
    told = read(args.outcomes, pieces_of(ROWS))
    by_key = {row.key: row for row in ROWS}
    if args.base not in told:
        parser.error(f"no answers of {args.base!r}; there are those of: {'; '.join(told) or 'none'}")
    base = by_key[args.base]
    others = [by_key[key] for key in told if by_key[key].recipe == base.recipe and key != base.key]
    print(table(base, others, told))


if __name__ == "__main__":
    main()
