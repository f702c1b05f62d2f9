"""Scores, their normalization, and the attention layers made of them."""
