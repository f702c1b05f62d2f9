"""N → M: pairs of source and target."""

ABOUT = "pairs of source and target, of any kind and length"  # for the command line
CHECK = "pairs"  # the module of data/checks by which `seqloom data check` looks through its files
