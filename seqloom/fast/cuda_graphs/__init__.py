"""Decoding with fixed shapes, by CUDA graphs."""
