"""N → 1: a class or a number for a row of a table."""

from seqloom.tasks.about import About, Wording

ABOUT = About(
    home=__name__,
    line="a class or a number from the other columns of a table",
    check="table",
    examples="table",
    words=Wording(
        "predicts a column of a table from the others",
        "tabular-classification",
        "tabular-classification",
        "rows",
        "row",
        right="rows whose class is correct",
    ),
)
