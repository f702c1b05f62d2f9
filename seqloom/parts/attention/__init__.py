"""Scores, their normalisation, and the attention layers made of them."""
