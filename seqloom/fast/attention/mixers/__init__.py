"""Attentions that compute few pairs: windows, blocks, chunks by hash and sums of features."""
