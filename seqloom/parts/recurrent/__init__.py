"""Recurrent cells, and the layers that any cell becomes."""
