"""Optimisers, learning-rate schedules, weight averaging."""
