"""N → N: a tag for every word."""

ABOUT = "a tag for each word of a sentence: parts of speech, names"  # for the command line
CHECK = "tags"  # the module of data/checks by which `seqloom data check` looks through its files
