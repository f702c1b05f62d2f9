"""Does a change keep every result, bit for bit? Trains, predicts and resumes by two checkouts and compares.

    python benchmarks/frozen_proof.py record CHECKOUT before.json --runs RUNS
    python benchmarks/frozen_proof.py record . after.json --inherit RUNS
    python benchmarks/frozen_proof.py compare before.json after.json

`record` runs every case below by the Seqloom in CHECKOUT, through its command line alone, so that any layout of the
code will do: losses of 20 steps, scores, predictions, names and bytes of all weights, fingerprints of caches. `--runs`
keeps the run folders; `--inherit` takes those of an earlier checkout and predicts, reports and resumes with this one.
On one machine with one thread; another processor may round otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

STEPS = "--max-steps 20 --set training.log_every=1 --set training.valid_every=10 --quiet"
PAIRS = f"pairs.tsv --source-tokens chars --target-tokens words --valid 10% --size tiny {STEPS}"
LABELS = f"labels.tsv --valid 10% --size tiny {STEPS}"
TAGS = f"tags.conll --valid 10% --size tiny {STEPS}"
TEXT = f"book.txt --valid 10% --size tiny {STEPS}"
LINES = f"lines.txt --valid 10% --size tiny {STEPS}"
TABLE = f"table.csv --target label --valid 10% --size tiny {STEPS}"

# name -> (arguments of `train`, file to predict)
CASES = {
    "translate-gru-attention": (f"translate {PAIRS}", "sources.txt"),
    "translate-lstm-feeding": (
        f"translate {PAIRS} --model lstm-attention --rate 0.002"
        " --set decoder.feeding=true --set training.smoothing=0.1",
        "sources.txt",
    ),
    "translate-lstm": (f"translate {PAIRS} --model lstm --fold --accumulate 2", "sources.txt"),
    "translate-transformer": (
        f"translate {PAIRS} --model transformer --set training.agreement=1 --optimiser muon --set training.ema=0.9",
        "sources.txt",
    ),
    "translate-bpe": (
        f"translate pairs.tsv --source-tokens bpe:280 --target-tokens words --size tiny --model transformer {STEPS}"
        " --set encoder.mixer=linformer --set decoder.position=rotary",
        "sources.txt",
    ),
    "classify-lstm": (f"classify {LABELS} --model lstm-attention --lowercase", "lines.txt"),
    "classify-bag": (f"classify {LABELS} --model bag --set grams=2 --schedule constant", "lines.txt"),
    "classify-number": (f"classify numbers.tsv --target number --valid 10% --size tiny {STEPS}", "lines.txt"),
    "tag-lstm-crf": (f"tag {TAGS} --model lstm-crf --set training.agreement=1", "lines.txt"),
    "tag-transformer": (f"tag {TAGS} --model transformer", "lines.txt"),
    "generate-lstm": (f"generate {TEXT} --model awd-lstm --optimiser asgd --set training.trigger=1", None),
    "generate-transformer": (f"generate {TEXT} --model transformer --batch-tokens 256", None),
    "generate-ngram": (f"generate {TEXT} --model ngram", None),
    "mask-transformer": (f"mask {LINES} --model transformer", None),
    "vectors": (f"vectors {LINES} --set embedding=16", "nearest.txt"),
    "table-mlp": (f"table {TABLE} --model mlp", "table.csv"),
    "resumed": (f"translate {PAIRS} --model gru", "sources.txt"),
    "ensemble": (f"--recipe members.yaml {STEPS}", "sources.txt"),
    "folds": (f"translate {PAIRS} --folds 2".replace("--valid 10% ", ""), "sources.txt"),
}
EPOCHS_CASE = "resumed"  # trained for half of its steps first


def data(folder: Path) -> None:
    """Files of every kind, always the same."""
    draw = random.Random(1)
    words = sorted({"".join(draw.choices("abcdefghij", k=draw.randint(2, 8))) for _ in range(300)})
    (folder / "pairs.tsv").write_text("".join(f"{w}\t{' '.join(w[::-1].upper())}\n" for w in words))
    (folder / "sources.txt").write_text("".join(f"{w}\n" for w in words[::30]))
    texts = [f"{draw.choice(['fine', 'poor'])} {draw.choice(['Film', 'song', 'play'])} {w}" for w in words]
    (folder / "lines.txt").write_text("".join(f"{text}\n" for text in texts))
    (folder / "labels.tsv").write_text("".join(f"{text}\t{text.split()[0]}\n" for text in texts))
    (folder / "numbers.tsv").write_text("".join(f"{text}\t{len(text) / 4}\n" for text in texts))
    tagged = ("".join(f"{word} {tag}\n" for word, tag in zip(text.split(), "ANX", strict=True)) for text in texts)
    (folder / "tags.conll").write_text("".join(f"{sentence}\n" for sentence in tagged))
    (folder / "nearest.txt").write_text("fine\npoor\n")
    (folder / "book.txt").write_text(" ".join(texts) * 3 + "\n")
    rows = (f"{len(w)},{draw.random():.3f},{draw.choice('xyz')},{'long' if len(w) > 5 else 'short'}\n" for w in words)
    (folder / "table.csv").write_text("size,share,kind,label\n" + "".join(rows))
    members = "members: [{seed: 1}, {seed: 2, model: transformer}]\n"
    (folder / "members.yaml").write_text(
        "about: Two models\npaper: none\ntask: translate\ntrain: pairs.tsv\nvalid: 10% with seed 3\n"
        "model: gru-attention\nsize: tiny\ndata: {source_tokens: chars, target_tokens: words, rules: 2}\n" + members
    )


def command(*arguments: str) -> str:
    """What `seqloom ARGUMENTS` prints; by whatever Seqloom is first on the path."""
    from seqloom.cli.main import run

    printed, problems = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    sys.argv = ["seqloom", *arguments]
    status: Any = 0
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(problems):
        try:
            run()
        except SystemExit as left:
            status = left.code
    texts = []
    for stream in (printed, problems):
        stream.flush()
        stream.seek(0)
        texts.append(stream.read())
    if status:
        raise RuntimeError(f"seqloom {' '.join(arguments)}\n{texts[1]}")
    return texts[0]


def weights(run: Path) -> dict[str, str]:
    from safetensors.numpy import load_file

    found = {}
    for file in sorted(run.rglob("model.safetensors")):
        if "checkpoints" in file.parts:
            continue
        for name, value in load_file(file).items():
            digest = hashlib.sha256(value.tobytes()).hexdigest()[:16]
            found[f"{file.parent.relative_to(run)}/{name}"] = f"{value.shape} {value.dtype} {digest}"
    return found


def journal(run: Path) -> list[Any]:
    """Losses, gradient norms and scores, without times."""
    dropped = ("time", "seconds", "tokens_per_second", "memory")
    found = []
    for file in sorted(run.rglob("metrics.jsonl")):
        for line in file.read_text().splitlines():
            entry = json.loads(line)
            found.append([v for k, v in entry.items() if isinstance(v, float) and not any(d in k for d in dropped)])
    return found


def scores(run: Path) -> dict[str, Any]:
    found = {}
    for file in sorted(run.rglob("evaluation-*.json")):
        found[str(file.relative_to(run))] = json.loads(file.read_text()).get("metrics", {})
    return found


def answers(run: Path, name: str) -> dict[str, str]:
    asked = CASES[name][1]
    if name == "folds":
        run = run / "fold-1"
    if asked is not None:
        found = {"predict": command("predict", str(run), asked)}
        if name.startswith("translate"):
            found["beam"] = command("predict", str(run), asked, "--beam", "3")
        return found
    if name.startswith("generate"):
        return {"generate": command("generate", str(run), "--prompt", "fine", "--length", "20", "--seed", "3")}
    return {"embed": hashlib.sha256(command("embed", str(run), "lines.txt", "--nearest", "3").encode()).hexdigest()}


def caches(folder: Path) -> list[str]:
    """Names of what the caches hold: they carry the fingerprints."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_dir())


def inside(scratch: Path, runs: Path, inherited: Path | None) -> dict[str, Any]:
    os.chdir(scratch)
    found: dict[str, Any] = {}
    for name, (arguments, _) in CASES.items():
        run, cache = runs / name, scratch / "cache" / name
        os.environ["SEQLOOM_CACHE"] = str(cache)
        if inherited is None:
            if name == EPOCHS_CASE:
                command("train", *arguments.replace("--max-steps 20", "--max-steps 10").split(), "--output", str(run))
                command("train", *arguments.split(), "--output", str(run), "--resume")
            else:
                command("train", *arguments.split(), "--output", str(run))
            found[name] = {"weights": weights(run), "journal": journal(run), "scores": scores(run)}
            found[name] |= {"caches": caches(cache)}
        else:
            shutil.copytree(inherited / name, run)
            found[name] = {"weights": weights(run)}
        found[name]["answers"] = answers(run, name)
        if inherited is not None:
            found[name] |= went_on(run, name)
        print(f"{time.monotonic():.0f} {name}", file=sys.__stderr__)
    return found


def went_on(run: Path, name: str) -> dict[str, Any]:
    """An old run reported, and resumed for ten steps more from its last checkpoint but one."""
    if name != "folds":
        command("report", str(run))
    if name in ("ensemble", "folds", "generate-ngram"):
        return {}
    task = CASES[name][0].split()
    half = [path for path in (run / "checkpoints").glob("step-*") if path.name != "step-10"]
    for path in half:
        shutil.rmtree(path)
    (run / "model.safetensors").unlink()
    command("train", *task, "--output", str(run), "--resume")
    return {"resumed weights": weights(run)}


def record(checkout: Path, output: Path, runs: Path | None, inherited: Path | None) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        data(Path(scratch))
        kept = (runs or Path(scratch) / "runs").resolve()
        kept.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(checkout.resolve()), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
        words = [sys.executable, __file__, "inside", scratch, str(kept), str(inherited.resolve()) if inherited else ""]
        done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, check=True, cwd=checkout)
    output.write_bytes(done.stdout)


def compare(before: Path, after: Path) -> int:
    """Names of cases that differ, and what of them; 0 if none does."""
    old, new = (json.loads(file.read_text()) for file in (before, after))
    differing = 0
    for name, kinds in old.items():
        for kind, value in kinds.items():
            other = new.get(name, {}).get(kind)
            if kind == "weights" and "resumed weights" in new.get(name, {}) and "resumed weights" not in kinds:
                other = new[name]["resumed weights"]
            if other is None and "resumed weights" in new.get(name, {}):
                continue  # of inherited runs only weights and answers are compared
            if other is None and kind in ("journal", "scores", "caches") and "journal" not in new.get(name, {}):
                continue
            if other != value:
                differing += 1
                print(f"{name}: {kind} differ: {first_difference(value, other)}")
    print(f"{len(old)} cases, {differing} differences")
    return differing


def first_difference(a: Any, b: Any) -> str:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in {**a, **b}:
            if a.get(key) != b.get(key):
                return f"{key}: {first_difference(a.get(key), b.get(key))}"
    if isinstance(a, list) and isinstance(b, list):
        for i, (x, y) in enumerate(zip(a, b, strict=False)):
            if x != y:
                return f"[{i}] {first_difference(x, y)}"
        return f"{len(a)} and {len(b)} entries"
    return f"{str(a)[:200]} became {str(b)[:200]}"


def main() -> None:
    if sys.argv[1:2] == ["inside"]:
        scratch, runs, inherited = sys.argv[2:5]
        found = inside(Path(scratch), Path(runs), Path(inherited) if inherited else None)
        json.dump(found, sys.__stdout__)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    recording = actions.add_parser("record")
    recording.add_argument("checkout", type=Path)
    recording.add_argument("output", type=Path)
    recording.add_argument("--runs", type=Path, help="keep the run folders there")
    recording.add_argument("--inherit", type=Path, help="take over the runs that an earlier checkout kept there")
    comparing = actions.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.action == "compare":
        sys.exit(bool(compare(given.before, given.after)))
    record(given.checkout, given.output, given.runs, given.inherit)


if __name__ == "__main__":
    main()
