"""Decoding of fixed shapes, recorded as CUDA graphs and replayed."""
