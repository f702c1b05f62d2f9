"""Optimizers, learning-rate schedules, weight averaging."""
