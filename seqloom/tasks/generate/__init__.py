"""Language models: prefix → continuation."""

ABOUT = "plain text, or lines, of which the next token is predicted"  # for the command line
CHECK = "texts"  # the module of data/checks by which `seqloom data check` looks through its files
