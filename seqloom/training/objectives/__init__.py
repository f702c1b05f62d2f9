"""Objectives: batch to loss."""
