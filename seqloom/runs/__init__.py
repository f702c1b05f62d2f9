"""The run folder: train into it, load from it."""
