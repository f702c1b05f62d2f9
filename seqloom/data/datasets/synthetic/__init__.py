"""Datasets that are generated, always the same."""
