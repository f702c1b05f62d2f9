"""N → 1: labels or a number for a text."""

ABOUT = "a label, several labels or a number for a text"  # for the command line
CHECK = "labels"  # the module of data/checks by which `seqloom data check` looks through its files
