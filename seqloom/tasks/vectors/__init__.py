"""Word vectors, trained on plain text."""
