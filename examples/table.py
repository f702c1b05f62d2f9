"""Train, score and look inside models of table rows: `python examples/table.py [table.csv] [steps]`.

Without a file it learns what houses cost from their area, age, garden, district and a short note (`houses`, generated).
The last column of a table is the target. Everything here is the public face of Seqloom.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import seqloom


def main(data: str = "houses", steps: int = 500) -> None:
    folder = Path(tempfile.mkdtemp())

    # From what any model must beat to one that reads the text column too: the model is one word.
    runs = {}
    for model in ("majority", "linear", "mlp"):
        runs[model] = seqloom.train(
            "table",
            data,
            output=folder / model,
            model=model,
            size="tiny",
            training={"max_steps": steps, "batch_rows": 128},
            quiet=True,
        )
        print(model, "best validation:", runs[model].best)

    # What was trained is loaded from its folder, as anybody else would. What kinds were its columns taken for?
    model = seqloom.load(runs["mlp"].folder)
    print({column.name: column.kind for column in model.schema.columns}, "->", model.schema.target.name)

    # A row is a dict, a JSON object or a line of fields; what it does not say counts as missing.
    first = model.schema.columns[0].name
    print(model.predict([{first: 1}, {first: 2}]))

    # Which columns count: how much R² (or accuracy) of held-out rows is lost when one is dealt out anew.
    rows, _ = model.read([str(path) for path in files(data)], model.reading())
    for one in model.evaluation_details(rows, most=300)["importance"]["columns"]:
        print(f"  {one['column']:<12} {one['fall']:.3f}")

    # A linear model is its weights: what each value adds to the answer, in the units of the table.
    told = seqloom.load(runs["linear"].folder).weights()
    for value, weight in zip(told["values"], told["per_unit"][0], strict=True):
        print(f"  {value:<24} {weight:+.2f}")


def files(data: str) -> list[Path]:
    from seqloom.data.datasets import catalog

    return catalog.files(data, "test") if data in catalog.DATASETS else [Path(data)]


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
