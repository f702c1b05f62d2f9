"""Language models: prefix → continuation."""

from seqloom.tasks.about import About, Wording

ABOUT = About(
    home=__name__,
    line="plain text, or lines, of which the next token is predicted",
    check="texts",
    examples="generate",
    reads=("classify",),  # the texts, or labels and texts: a language model may be conditioned (--columns 2,1)
    words=Wording("continues a prompt", "text-generation", "language-model", "tokens", "token", tokens=True),
)
