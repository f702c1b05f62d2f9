"""Baselines without a network."""
