"""Learn from text without labels, then from a few labels: `python examples/pretrain.py [texts.txt] [steps]`.

Without a file it reads the sources of the dataset `dates`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import seqloom
from seqloom.data.datasets import catalog
from seqloom.data.formats.pairs import read_sources
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.documents import read_json
from seqloom.tasks.shared.embeddings import Embedder, nearest


def dates_file(folder: Path) -> Path:
    path = folder / "dates.txt"
    path.write_text("".join(f"{source}\n" for source, _ in catalog.find("dates").examples("train")), encoding="utf-8")
    return path


def main(data: str | None = None, steps: int = 600) -> None:
    folder = Path(tempfile.mkdtemp())
    texts = Path(data) if data else dates_file(folder)

    # 15 % of the tokens are hidden, others every time; the model, which sees both sides of each, learns to guess them.
    run = seqloom.train(
        "mask",
        texts,
        output=folder / "run",
        model="gru",
        size="tiny",
        data={"tokens": "chars", "max_length": 64},
        training={"max_steps": steps, "batch_rows": 128, "learning_rate": 4e-3},
    )
    print("best validation:", run.best)

    # What it learned can be asked for directly: the likeliest characters in a gap.
    model = run.load()
    first = next(iter(read_sources(texts)))
    gap = f"{first[:2]}<mask>{first[3:]}"
    for answer in next(iter(model.answers([gap], seqloom.Search(beam=3, n_best=3)))):
        print(f"  {answer.confidence:.2f}  {gap} -> {answer.text}")

    # Or used for something else: the mean of the encoder's states is a vector of the text, and like texts are near.
    # (`seqloom embed RUN texts.txt --nearest 3` does the same from the command line.)
    embedder = Embedder.of(model, Codec.from_json(read_json(run.folder / "source.json")))
    some = list(dict.fromkeys(read_sources(texts)))[:200]
    vectors = embedder.matrix(some)
    near = nearest(vectors, vectors, 3, same=True)
    for text, rows in list(zip(some, near.rows.tolist(), strict=True))[:3]:
        print(f"  {text} is near: {', '.join(some[row] for row in rows)}")

    # Or trained further, for another task: the classifier begins with the vocabulary, the embedding and the encoder.
    # `freeze` would leave these as they are: training={"freeze": "source,encoder"}.
    middle = sorted(map(len, some))[len(some) // 2]
    labelled = folder / "labelled.tsv"
    labelled.write_text("".join(f"{text}\t{'long' if len(text) > middle else 'short'}\n" for text in some))
    tuned = seqloom.train(
        "classify",
        labelled,
        output=folder / "tuned",
        start=run.folder,
        valid="20%",
        training={"max_steps": min(steps, 100), "learning_rate": 1e-3, "valid_every": 50},
    )
    print("after fine-tuning:", tuned.best)


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
