"""Greedy search, sampling and beam search over a Stepper."""
