"""Masked language models, trained on plain text."""

from seqloom.tasks.about import About, Wording

ABOUT = About(
    home=__name__,
    line="plain text, a text a line, to pretrain an encoder by predicting hidden tokens",
    check="texts",
    examples="mask",
    reads=("classify", "generate"),
    words=Wording(
        "fills in masked tokens of a text",
        "fill-mask",
        "masked-language-model",
        "texts",
        "masked token",
        tokens=True,
        right="masked tokens that were predicted correctly",
    ),
)
