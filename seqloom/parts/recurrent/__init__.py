"""Recurrent cells, and the layers that any cell becomes."""

from seqloom.former_paths import former_names

__getattr__ = former_names(__name__)
