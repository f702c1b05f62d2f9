"""Scores of written text: BLEU, chrF, error rates."""
