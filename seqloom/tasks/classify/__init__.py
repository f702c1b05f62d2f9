"""N → 1: labels or a number for a text."""

from seqloom.tasks.about import About, Wording

ABOUT = About(
    home=__name__,
    line="a label, several labels or a number for a text",
    check="labels",
    examples="classify",
    words=Wording(
        "predicts the label of a text",
        "text-classification",
        "text-classification",
        "texts",
        "text",
        right="texts whose label is correct; where there are several, all of them",
    ),
)
