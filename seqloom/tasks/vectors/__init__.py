"""Word vectors, trained on plain text."""

ABOUT = "plain text, a text a line, for a vector of every word"  # for the command line
CHECK = "texts"  # the module of data/checks by which `seqloom data check` looks through its files
