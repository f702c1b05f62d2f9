"""Masked language models, trained on plain text."""
