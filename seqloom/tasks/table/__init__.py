"""N → 1: a class or a number for a row of a table."""

ABOUT = "a class or a number from the other columns of a table"  # for the command line
CHECK = "table"  # the module of data/checks by which `seqloom data check` looks through its files
