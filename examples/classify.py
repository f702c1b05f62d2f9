"""Train, score and look inside a model that labels texts: `python examples/classify.py [texts.tsv] [steps]`.

The file holds a text, a TAB and its label on every line. Without one it learns which language a surname is from (the
dataset `names`). Everything here is the public face of Seqloom.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import seqloom


def main(data: str = "names", steps: int = 600) -> None:
    folder = Path(tempfile.mkdtemp())

    # A baseline first: what does always guessing the commonest label give? It is counted, not trained.
    usual = seqloom.train("classify", data, output=folder / "majority", model="majority", quiet=True)
    print("the commonest label:", usual.best)

    # The encoder is one word, the way to sum it up another; every keyword of every part can be set by its name.
    run = seqloom.train(
        "classify",
        data,
        output=folder / "run",
        model="gru-attention",
        size="tiny",
        data={"tokens": "chars", "class_weights": "balanced"},
        training={"max_steps": steps, "batch_rows": 128, "learning_rate": 4e-3},
        settings={"hidden": 32, "activation": "tanh"},
    )
    print("best validation:", run.best)

    # What was trained is loaded from its folder, as anybody else would. Every label comes with its probability.
    model = seqloom.load(run.folder)
    texts = ["Nakamura", "O'Brien", "Rossi"] if data == "names" else Path(data).read_text().split("\t", 1)[:1]
    for text, answers in zip(texts, model.answers(texts, seqloom.Search(beam=3, n_best=3)), strict=True):
        print(text, "->", ", ".join(f"{answer.text} {answer.confidence:.0%}" for answer in answers))

    # Which tokens counted: the weights of the attention that sums the text up.
    print(" ".join(f"{token}:{weight:.2f}" for token, weight in model.attention(texts[0])))

    # Scores with intervals; precision and recall by label, confusion and calibration stand in the run's report.html.
    if data == "names":
        result = model.evaluate("names")
        print({name: (round(value, 1), result.intervals[name]) for name, value in result.metrics.items()})


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
