"""Whole pages: a run, a comparison."""
