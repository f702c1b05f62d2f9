"""Readers, one a format: pairs, tables, CoNLL, plain text, JSON lines, word vectors, examples given in Python."""
