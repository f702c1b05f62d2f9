"""N → N: a tag for every word."""

from seqloom.tasks.about import About, Wording

ABOUT = About(
    home=__name__,
    line="a tag for each word of a sentence: parts of speech, names",
    check="tags",
    examples="tag",
    words=Wording(
        "gives every word of a sentence its tag",
        "token-classification",
        "tagging",
        "sentences",
        "word",
        right="words whose tag is correct",
    ),
)
