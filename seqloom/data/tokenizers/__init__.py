"""Text to tokens and back, and the vocabulary."""
