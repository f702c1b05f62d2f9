"""Positions: absolute, relative, rotary, continuous."""
