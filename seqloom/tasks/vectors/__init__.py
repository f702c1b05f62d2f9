"""Word vectors, trained on plain text."""

from seqloom.tasks.about import About, Wording

ABOUT = About(
    home=__name__,
    line="plain text, a text a line, for a vector of every word",
    check="texts",
    examples="vectors",
    reads=("classify", "generate"),
    words=Wording("has a vector for every word", "feature-extraction", "word-vectors", "texts", "pair", tokens=True),
)
