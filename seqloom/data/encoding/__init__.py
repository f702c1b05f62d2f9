"""Tokens, tags and table fields to ids and numbers, stored in a memory-mapped cache."""
