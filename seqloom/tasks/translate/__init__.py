"""N → M: pairs of source and target."""

from seqloom.tasks.about import About, Wording

ABOUT = About(
    home=__name__,
    line="pairs of source and target, of any kind and length",
    check="pairs",
    examples="translate",
    words=Wording(
        "turns a source text into a target text",
        "text2text-generation",
        "sequence-to-sequence",
        "pairs",
        "target token",
        tokens=True,
    ),
)
