"""Small data with no option but the data: is the batch that Seqloom chooses as good as the best of four?

    python benchmarks/quality/small_data.py --data DIR --out DIR --jobs 16 --device cpu

Three languages of SIGMORPHON 2021 cut to 3,600 pairs, TREC, SST-2 and the names, each trained by default and with
--batch-rows 16, 32, 64 and 128. Prints the scores on the test data with the paired bootstrap interval of the difference
to the best of the four (Koehn 2004), and those on development data that no training saw, by which the rule was chosen.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

LANGUAGES = ("dut", "fre", "geo")
PAIRS = 3600
ROWS = (16, 32, 64, 128)
SAMPLES = 10_000
# Longest first, so that no core waits for the last one. The options are those the dataset of that name brings.
DATA: dict[str, tuple[str, dict[str, Any]]] = {
    "names": ("classify", {"tokens": "chars"}),
    "sst2": ("classify", {"tokens": "words", "min_count": 2}),
    **{language: ("translate", {}) for language in LANGUAGES},
    "trec": ("classify", {"tokens": "words", "min_count": 2}),
}
Pairs = list[tuple[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="holds sigmorphon2021_g2p, textclass and names")
    parser.add_argument("--out", type=Path, required=True, help="what was done is not done again")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="trainings at once, one thread each")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--only", default=",".join(DATA), help="some of them, commas between")
    parser.add_argument("--rows", default=",".join(map(str, ROWS)))
    parser.add_argument("--seeds", default="7", help="several are averaged, item by item")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        train(json.loads(given.one))
        return
    names, rows = given.only.split(","), [int(number) for number in given.rows.split(",")]
    for name in names:
        write(given.data, given.out / name, name)
    seeds = [int(seed) for seed in given.seeds.split(",")]
    works = [
        {"name": name, "rows": one, "seed": seed, "out": str(given.out / name), "device": given.device}
        for name in names
        for one in (None, *rows)
        for seed in seeds
    ]
    works.sort(key=lambda work: (list(DATA).index(work["name"]) // 2, work["rows"] or 16))
    with ThreadPoolExecutor(given.jobs) as pool:
        failed = [text for text in pool.map(begin, works) if text]
    print("\n".join(failed), file=sys.stderr)
    print(report(given.out, names, rows, seeds))
    sys.exit(1 if failed else 0)


def begin(work: dict[str, Any]) -> str:
    """One training in a process of its own; what went wrong, if anything did."""
    if result(work).is_file():
        return ""
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "SEQLOOM_CACHE": str(Path(work["out"]) / "cache")}
    given = [sys.executable, __file__, "--data", ".", "--out", ".", "--one", json.dumps(work)]
    done = subprocess.run(given, env=os.environ | one, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{work}: {done.stderr[-2000:]}"


def folder(work: dict[str, Any]) -> Path:
    return Path(work["out"]) / f"{work['rows'] or 'default'}-{work['seed']}"


def result(work: dict[str, Any]) -> Path:
    return folder(work).with_suffix(".json")


def train(work: dict[str, Any]) -> None:
    """As a user would who names the file and nothing else, and then which items of other files are right."""
    import torch

    import seqloom

    torch.set_num_threads(1)
    task, options = DATA[work["name"]]
    home = Path(work["out"])
    training = {"seed": work["seed"]} | ({"batch_rows": work["rows"]} if work["rows"] else {})
    started = time.monotonic()
    run = seqloom.train(
        task,
        home / "train.tsv",
        output=folder(work),
        data=options,
        training=training,
        device=work["device"],
        quiet=True,
    )
    seconds = time.monotonic() - started
    model = run.load(work["device"])
    found: dict[str, Any] = {"rows": run.config["training"]["batch_rows"], "updates": run.step, "seconds": seconds}
    found["tokens"] = run.config["data"].get("target_tokens", run.config["data"].get("tokens"))
    for split in ("dev", "test"):
        pairs = read(home / f"{split}.tsv")
        answers = model.predict([source for source, _ in pairs])
        found[split] = [int(answer.strip() == target) for answer, (_, target) in zip(answers, pairs, strict=True)]
        (folder(work) / f"{split}.txt").write_text("".join(f"{answer}\n" for answer in answers), encoding="utf-8")
    result(work).write_text(json.dumps(found))


def report(out: Path, names: list[str], rows: list[int], seeds: list[int]) -> str:
    """The table in Markdown, test data first."""
    lines: list[str] = []
    for split in ("test", "dev"):
        lines += [f"\n{split}: examples all right, %\n"]
        columns = ["data", "rows by default", "updates", "default", *map(str, rows), "default − best, 95 %", "no worse"]
        lines += ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
        for name in names:
            found = {one: loaded(out / name, one, seeds) for one in (None, *rows)}
            if any(not several for several in found.values()):
                lines.append(f"| {name} | not done |")
                continue
            right = {one: np.mean([each[split] for each in several], axis=0) for one, several in found.items()}
            best = max(rows, key=lambda one: right[one].mean())
            low, high = interval(right[None] - right[best])
            default = found[None][0]
            told = [name, f"{default['rows']}", f"{default['updates']:,}", f"{100 * right[None].mean():.1f}"]
            told += [f"{100 * right[one].mean():.1f}" for one in rows]
            told += [f"{100 * (right[None] - right[best]).mean():+.1f} [{low:+.1f}, {high:+.1f}]"]
            lines.append("| " + " | ".join([*told, "yes" if high >= 0 else "NO"]) + " |")
    spent = [each["seconds"] for name in names for one in (None, *rows) for each in loaded(out / name, one, seeds)]
    return "\n".join(
        [*lines, f"\n{len(spent)} trainings, {sum(spent):,.0f} s together, the longest {max(spent):,.0f} s"]
    )


def loaded(home: Path, rows: int | None, seeds: list[int]) -> list[dict[str, Any]]:
    paths = [home / f"{rows or 'default'}-{seed}.json" for seed in seeds]
    return [json.loads(path.read_text()) for path in paths] if all(map(Path.is_file, paths)) else []


def interval(differences: np.ndarray) -> tuple[float, float]:
    """95 % of the mean difference over draws of the items, in points."""
    draw = np.random.default_rng(12345)
    size = len(differences)
    means = [differences[draw.integers(0, size, size)].mean() for _ in range(SAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5])
    return 100 * float(low), 100 * float(high)


def write(data: Path, home: Path, name: str) -> None:
    """train.tsv, dev.tsv and test.tsv: dev and test are never trained on nor validated by."""
    home.mkdir(parents=True, exist_ok=True)
    for split, pairs in splits(data, name).items():
        text = "".join(f"{source}\t{target}\n" for source, target in pairs)
        (home / f"{split}.tsv").write_text(text, encoding="utf-8")


def splits(data: Path, name: str) -> dict[str, Pairs]:
    if name in LANGUAGES:
        base = data / "sigmorphon2021_g2p" / "medium"
        every = {split: read(base / f"{name}_{split}.tsv") for split in ("train", "dev", "test")}
        return every | {"train": sorted(every["train"], key=digest)[:PAIRS]}
    if name == "sst2":
        return {split: rated(data / "textclass" / f"stsa.binary.{split}") for split in ("train", "dev", "test")}
    if name == "trec":
        train, test = (asked(data / "textclass" / f"TREC.raw.{split}") for split in ("train", "test"))
        train = sorted(train, key=digest)
        return {"train": train[len(train) // 10 :], "dev": train[: len(train) // 10], "test": test}
    files = sorted(one for one in (data / "names").glob("*.txt") if one.stem != "SOURCE")
    every = [
        (line.strip(), file.stem) for file in files for line in file.read_text("utf-8").splitlines() if line.strip()
    ]
    found: dict[str, Pairs] = {"train": [], "dev": [], "test": []}
    for pair in every:
        tenth = digest((pair[0], ""))[0] % 10
        found["dev" if tenth == 0 else "test" if tenth == 1 else "train"].append(pair)
    return found


def read(file: Path) -> Pairs:
    lines = file.read_text(encoding="utf-8").splitlines()
    return [(source, target) for source, _, target in (line.partition("\t") for line in lines)]


def rated(file: Path) -> Pairs:
    """`1 a stirring film`: SST-2 as Kim 2014 cut it."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return [(text, label) for label, _, text in (line.partition(" ") for line in lines)]


def asked(file: Path) -> Pairs:
    """`DESC:manner How did …`: TREC, by its six coarse classes."""
    lines = file.read_text(encoding="latin-1").splitlines()
    return [(text, kind.partition(":")[0]) for kind, _, text in (line.partition(" ") for line in lines)]


def digest(pair: tuple[str, str]) -> bytes:
    return hashlib.sha256("\t".join(pair).encode()).digest()


if __name__ == "__main__":
    main()
