"""Masked language models, trained on plain text."""

ABOUT = "plain text, a text a line, to pretrain an encoder by predicting hidden tokens"  # for the command line
CHECK = "texts"  # the module of data/checks by which `seqloom data check` looks through its files
