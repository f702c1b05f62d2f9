"""Encoders, decoders and the model of each task shape."""
