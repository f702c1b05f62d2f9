"""Attention over short rows and within windows; queries, keys and values from one matmul."""
