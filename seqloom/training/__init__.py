"""Objectives, the loop, optimisers and checkpoints."""
