"""Objectives, the loop, optimizers and checkpoints."""
