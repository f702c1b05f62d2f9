"""Decoders and left-to-right stacks."""
